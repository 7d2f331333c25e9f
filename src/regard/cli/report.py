"""`regard report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import print_line


def report(folder: Annotated[Path, typer.Argument(help="The run's folder.", show_default=False)]) -> None:
    """Write the report of a run again from its folder, also of a run that has not ended.

    A run writes its report when it ends: report.html, and report.md with the same content.

    [bold]Example[/]

      regard report runs/first
    """
    from regard.training.report import write_report

    for path in write_report(folder):
        print_line(str(path))
