"""`regard config init | show | check`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.terminal import print_line, say
from regard.errors import UsageError

app = typer.Typer(help="Write, see and check the TOML file of a run.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="The run's TOML file.")]
# As in config/schema.py, which is not imported for a help text: its library takes longer than all the rest.
TaskName = Literal["translate", "generate", "fill", "classify", "tag", "answer"]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="section.field=value")]


@app.command("init")
def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("run.toml"),
    task: Annotated[TaskName, typer.Option(help="What the model is to do.")] = "translate",
) -> None:
    """Write a file to start from, with every field and its default.

    [bold]Examples[/]

      regard config init run.toml
      regard config init reviews.toml --task classify
    """
    from regard.config import template
    from regard.storage.files import write_text

    if path.exists():
        raise UsageError(f"{path} already exists{' as a folder' * path.is_dir()}; choose another name")
    write_text(path, template(path.name, task))
    say(f"wrote {path}; train with:  regard train {shlex.quote(str(path))} --out runs/first")


@app.command("show")
def show(path: File, override: Overrides = None) -> None:
    """Print the run as it would be done: presets filled in, defaults written out.

    [bold]Examples[/]

      regard config show run.toml
      regard config show run.toml --set model.preset=transformer-base
    """
    from regard.config import load_config, to_toml

    print_line(to_toml(load_config(path, override or [])).rstrip("\n"))


@app.command("check")
def check(path: File, override: Overrides = None) -> None:
    """Say what is wrong with a file, or that nothing is; the beginning of each corpus is read too.

    [bold]Example[/]

      regard config check run.toml
    """
    from regard.config import load_config
    from regard.data.corpora import check_data

    config = load_config(path, override or [])
    check_data(config.data, config.task)
    say(f"{path} is right")
