"""Where the data files of the package lie."""

from importlib.resources import files
from pathlib import Path

WEB = Path(str(files("regard"))) / "server" / "web"  # the explorer page: index.html, style.css, js/
