"""`regard`: the commands put together, and the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from regard import __version__
from regard.cli import config, doctor, evaluate, score, tokenizer, train, translate
from regard.cli.terminal import explain
from regard.errors import RegardError

app = typer.Typer(
    name="regard",
    help="Train, run and see Transformers: text files in, a model of your own out.",
    epilog="Begin with:  regard config init run.toml  &&  regard train run.toml --out runs/first",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("translate")(translate.translate)
app.command("score")(score.score)
app.command("evaluate")(evaluate.evaluate)
app.command("average")(train.average)
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(config.app, name="config")
app.command("doctor")(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print it."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exit 0 when done, 1 on failure, 2 on wrong use, 130 when interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    try:
        app(args=[argument for argument in arguments if argument != "--debug"])
    except RegardError as error:
        if debug:
            raise
        explain(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        explain("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        # whoever read our output has gone, as `head` does: nothing to tell, and nowhere to tell it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError:
        explain("not enough memory; try a smaller batch (tokens_per_batch) or beam")
        sys.exit(1)
