"""`regard report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import print_line


def report(folder: Annotated[Path, typer.Argument(help="The run's folder.", show_default=False)]) -> None:
    """Write a run's report again, from its folder alone; of a run that goes on, what is known so far.

    Every run writes one when it ends: report.html for the eye, report.md for everything else.

    [bold]Example[/]

      regard report runs/first
    """
    from regard.training.report import write_report

    for path in write_report(folder):
        print_line(str(path))
