"""`regard train`, `regard average` and `regard report`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import messages, print_line, say
from regard.errors import PeerError, RegardError, UsageError
from regard.resources import texts_of

if TYPE_CHECKING:
    from regard.config import Config

Folder = Annotated[Path, typer.Option("--output", "-o", help="The folder to write.", show_default=False)]


def train(
    output: Folder,
    config: Annotated[Path | None, typer.Argument(help="The run's TOML file.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint.")] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after this time, all resumptions included.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="Any field: --set train.lr=3e-4 --set model.layers=3.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop before training if the data check finds anything.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines even on a terminal.")] = False,
) -> None:
    """Train a model; Ctrl-C saves and prints the command to resume.

    [bold]Examples[/]

      regard train run.toml -o runs/first
      regard train run.toml -o runs/wide --set model.width=256 --minutes 30
      regard train --resume -o runs/first
    """
    from regard.config import load_config
    from regard.config.load import apply_override, read_toml, resolve

    given = list(override or [])
    if minutes is not None:
        given.append(f"train.minutes={minutes}")
    if config is None:
        if not resume:
            raise UsageError(
                'missing config: give a TOML file ("regard config init" writes it), or --resume',
                code="E_OPTION_MISSING",
            )
        resolved = None
        if given:
            stored = output / "run.toml"
            if not stored.is_file():
                raise UsageError(
                    f"{output} holds no run to resume; give its TOML file to begin one", code="E_RUN_MISSING"
                )
            tree = read_toml(stored)
            for each in given:
                apply_override(tree, each)
            resolved = resolve(tree, where=str(stored))
    else:
        resolved = load_config(config, given)
    run(resolved, output, resume, strict, plain)


def unit_of(config: Config | None, out: Path) -> str:
    """What an update counts: tokens, or the texts or files that have one label each."""
    from regard.config.load import load_run_settings

    if config is None and not (out / "run.toml").is_file():
        return "tokens"
    task = (config or load_run_settings(out / "run.toml")).task
    if task.name != "classify" or task.multi_label:
        return "tokens"
    return "texts" if task.input == "text" else "files"


def run(config: Config | None, out: Path, resume: bool, strict: bool, plain: bool) -> None:
    from regard.cli.train_view import view
    from regard.training import train as train_model
    from regard.training.distributed import is_rank0
    from regard.training.report import score_line

    console = messages()
    place = shlex.quote(str(out))
    if not is_rank0():
        try:
            outcome = train_model(config, out, resume, strict=strict)
        except RegardError as error:  # rank 0 reports it, unless it is the one that is gone
            if isinstance(error, PeerError) and error.reports:
                raise
            sys.exit(error.exit_code)
        sys.exit(0 if outcome.finished else 130)
    with view(console, plain, unit_of(config, out)) as listener:
        outcome = train_model(config, out, resume, [listener], strict)
    if not outcome.finished:
        console.print(f"saved after step {outcome.step}; resume with:  regard train --resume -o {place}")
        sys.exit(130)
    if promised := outcome.promised.expected:
        console.print(f"expected: {promised}; {outcome.promised.time or 'no time given'}")
        console.print(f"reached in {outcome.seconds / 60:.0f} minutes on {outcome.machine}:")
    for record in outcome.records:
        console.print(score_line(outcome.task, record, outcome.input))
    console.print(f"the report is {out / 'report.html'}")
    use = texts_of(outcome.task, outcome.input)["command"].format(model=place)
    console.print(f"the model is in {out}; use it:  {use}")


def average(
    checkpoints: Annotated[
        list[Path], typer.Argument(help="Checkpoint folders (step-N), or one run for its newest.")
    ],
    output: Folder,
    last: Annotated[int, typer.Option(min=1, help="How many, when a run is given; it keeps train.keep.")] = 3,
) -> None:
    """Average checkpoints into a new model folder.

    [bold]Example[/]

      regard average runs/first --last 3 -o runs/first-averaged
    """
    from regard.storage.average import average_into

    folders = average_into(checkpoints, output, last)
    say(f"wrote the average of {', '.join(path.name for path in folders)} to {output}")


def report(folder: Annotated[Path, typer.Argument(help="The run's folder.", show_default=False)]) -> None:
    """Write the report of a run again from its folder, also of an unfinished run.

    A run writes its report when it ends: report.html, and report.md with the same content.

    [bold]Example[/]

      regard report runs/first
    """
    from regard.training.report import write_report

    for path in write_report(folder):
        print_line(str(path))
