"""The commands. Results go to stdout, all else to stderr; torch is imported only where it is needed."""

from regard.cli.main import main
