"""`regard config init | show | check`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.terminal import print_line, say
from regard.errors import UsageError

app = typer.Typer(help="Write, show and check the TOML file of a run.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="The run's TOML file.")]
# As in config/schema.py, which is not imported for a help text: pydantic takes longer than all the rest.
TaskName = Literal["translate", "generate", "fill", "classify", "tag", "answer", "transcribe", "caption"]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="section.field=value")]


@app.command("init")
def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("run.toml"),
    task: Annotated[TaskName, typer.Option(help="Task of the model.")] = "translate",
) -> None:
    """Write a config file to start from, with every field and its default.

    [bold]Examples[/]

      regard config init run.toml
      regard config init reviews.toml --task classify
    """
    from regard.config import template
    from regard.storage.files import write_text

    if path.exists():
        message = f"{path} already exists{' as a folder' * path.is_dir()}; choose another name"
        raise UsageError(message, code="E_OUTPUT_EXISTS")
    write_text(path, template(path.name, task))
    say(f"wrote {path}; train with:  regard train {shlex.quote(str(path))} -o runs/first")


@app.command("show")
def show(path: File, override: Overrides = None) -> None:
    """Print the complete config of a run: presets, defaults and the shape of the model of [init] filled in.

    [bold]Examples[/]

      regard config show run.toml
      regard config show run.toml --set model.preset=transformer-base
    """
    import tomli_w

    from regard.config.load import load_config, to_tree

    config = load_config(path, override or [])
    tree, notes = to_tree(config), []
    given = config.train.model_fields_set
    if config.train.epochs and "steps" not in given:
        computed = [name for name in ("steps", "warmup") if name not in given]
        tree["train"] = {name: value for name, value in tree["train"].items() if name not in computed}
        notes.append(
            f"train.{' and train.'.join(computed)}: computed from train.epochs when the data is read"
        )
    if config.init.model is not None:
        from regard.storage.folder import describe
        from regard.training.initial import with_shape

        try:
            shape = describe(Path(config.init.model)).config
        except UsageError as error:
            tree["model"] = {name: tree["model"][name] for name in config.model.model_fields_set}
            notes.append(f"model: all other fields are those of init.from, which cannot be opened: {error}")
        else:
            tree["model"] = to_tree(with_shape(config, shape))["model"]
    print_line(tomli_w.dumps(tree).rstrip("\n"))
    for note in notes:
        print_line("# " + note.replace("\n", " "))


@app.command("check")
def check(path: File, override: Overrides = None) -> None:
    """Check a config file, and the beginning of each of its corpora.

    [bold]Example[/]

      regard config check run.toml
    """
    from regard.config.load import load_config
    from regard.data.corpora import check_data

    config = load_config(path, override or [])
    check_data(config.data, config.task)
    say(f"{path}: OK")
