"""`regard sweep`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import messages, print_line, print_table
from regard.errors import RegardError


def sweep(
    config: Annotated[Path, typer.Argument(help="The sweep's TOML file.", show_default=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder of its runs.", show_default=False)
    ],
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time; they share the cores.")] = 1,
) -> None:
    """Train with varied fields and name the best run; the same command resumes a sweep.

    [bold]Example[/]

      regard sweep sweep.toml -o sweeps/first --jobs 2
    """
    from regard.config.sweep import load_sweep
    from regard.training.sweep import sweep as run_sweep
    from regard.training.sweep_report import write_sweep

    loaded = load_sweep(config)
    console = messages()
    finished, trials = run_sweep(loaded, output, jobs, lambda text: console.print(text, markup=False))
    table = write_sweep(loaded, output, trials)
    if not finished:
        console.print(
            f"saved; resume with:  regard sweep {shlex.quote(str(config))} -o {shlex.quote(str(output))}"
        )
        sys.exit(130)
    print_table(table.rows, table.head, right=(2, 3))
    if table.best is None:
        errors = [str(trial.user_attrs["error"]) for trial in trials if "error" in trial.user_attrs]
        raise RegardError(
            f"no trial is complete; the last one: {errors[-1] if errors else 'pruned'}", code="E_SWEEP_FAILED"
        )
    print_line(f"best: {table.best}")
