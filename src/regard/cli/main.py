"""`regard`: the commands put together, and the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from types import FrameType

import typer

from regard import __version__
from regard.cli import (
    answer,
    bench,
    classify,
    compare,
    config,
    data,
    doctor,
    embed,
    evaluate,
    export,
    fill,
    generate,
    importing,
    models,
    report,
    score,
    serve,
    tag,
    tokenizer,
    train,
    translate,
)
from regard.cli.explain import explain as explain_text
from regard.cli.explore import explore
from regard.cli.terminal import ReaderGone, explain
from regard.errors import RegardError

INTERRUPTED = 130  # what typer returns after Ctrl-C

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
app.command("generate")(generate.generate)
app.command("fill")(fill.fill)
app.command("classify")(classify.classify)
app.command("tag")(tag.tag)
app.command("answer")(answer.answer)
app.command("embed")(embed.embed)
app.command("score")(score.score)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("explain")(explain_text)
app.command("explore")(explore)
app.add_typer(serve.app, name="serve")
app.command("report")(report.report)
app.command("average")(train.average)
app.command("export")(export.export)
app.command("calibrate")(export.calibrate)
app.command("import")(importing.import_)
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.add_typer(bench.app, name="bench")
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


def app_for(command: str) -> typer.Typer:
    """The app with one command where that is named, else the whole: typer looks at all options of all
    commands that it has, which takes longer than to translate a sentence."""
    named = [each for each in app.registered_commands if each.name == command]
    if not named:
        return app
    one = copy(app)
    one.registered_commands, one.registered_groups = named, []
    return one


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exit 0 when done, 1 on failure, 2 on wrong use, 130 when interrupted."""
    # Before torch loads OpenMP: threads that wait soon sleep. As fast when alone, and faster when
    # another program wants the cores too.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    try:
        own = [argument for argument in arguments if argument != "--debug"]
        with interrupts_kept():
            code = app_for(own[0] if own else "")(args=own, prog_name="regard", standalone_mode=False)
        sys.stdout.flush()  # here, where a reader that has gone can still be handled
    except (BrokenPipeError, ReaderGone):
        # whoever read our output has gone, as `head` does: nothing to tell, and nowhere to tell it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:  # while typer still reads what was asked for
        code = INTERRUPTED
    except Exception as error:
        if debug and not hasattr(error, "format_message"):  # wrong use is explained, never traced
            raise
        text, code = in_words(error)
        explain(text) if text else None
    if code == INTERRUPTED:
        explain("interrupted")
    # Else Python would look through all of torch for garbage before it leaves: a third of a second.
    gc.freeze()
    sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Ctrl-C stays Ctrl-C, whatever error a library makes of it: matplotlib says that a matrix is not one."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        try:
            signal.signal(signal.SIGINT, hear)
        except ValueError:  # not in the main thread, to which signals come
            ours = False
    try:
        yield
    except Exception as error:
        if heard:
            raise KeyboardInterrupt from error
        raise
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def in_words(error: Exception) -> tuple[str, int]:
    """One sentence for whatever ended a command, and the exit code."""
    match error:
        case RegardError():
            return str(error), error.exit_code
        case _ if hasattr(error, "format_message"):  # typer's own: an unknown option, a value of another kind
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "regard"
            reason = error.format_message().rstrip(".")  # empty where the help itself was the answer
            return f'{reason}; see "{command} --help"' if reason else "", 2
        case MemoryError():
            return "not enough memory; try a smaller batch (tokens_per_batch) or beam", 1
        case OSError(filename=name, strerror=reason):
            return f"{name or 'cannot write'}: {reason or error}", 1
    return f"{type(error).__name__}: {error}; this should not happen, --debug shows where it did", 1
