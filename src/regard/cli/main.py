"""`regard`: all commands, and the one place where errors become a message and an exit code."""

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
    compare,
    config,
    data,
    doctor,
    evaluate,
    export,
    generate,
    models,
    score,
    serve,
    tokenizer,
    train,
    translate,
    understanding,
)
from regard.cli.explain import explain as explain_text
from regard.cli.explore import explore
from regard.cli.terminal import ReaderGone, explain
from regard.errors import RegardError

INTERRUPTED = 130  # what typer returns after Ctrl-C

app = typer.Typer(
    name="regard",
    help="Train, run and see Transformers: text files in, a model of your own out.",
    epilog="Begin with:  regard config init run.toml  &&  regard train run.toml -o runs/first",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("translate")(translate.translate)
app.command("generate")(generate.generate)
app.command("fill")(generate.fill)
app.command("classify")(understanding.classify)
app.command("tag")(understanding.tag)
app.command("answer")(answer.answer)
app.command("embed")(understanding.embed)
app.command("score")(score.score)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("explain")(explain_text)
app.command("explore")(explore)
app.add_typer(serve.app, name="serve")
app.command("report")(train.report)
app.command("average")(train.average)
app.command("export")(export.export)
app.command("calibrate")(export.calibrate)
app.command("import")(models.import_)
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
    """The app with only the named command, else the whole app: typer inspects all options of all commands,
    which takes longer than translating a sentence."""
    named = [each for each in app.registered_commands if each.name == command]
    if not named:
        return app
    one = copy(app)
    one.registered_commands, one.registered_groups = named, []
    return one


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exit 0 when done, 1 on failure, 2 on wrong use, 130 when interrupted."""
    # Before torch loads OpenMP: waiting threads soon sleep. As fast on an idle machine, and faster when
    # other programs use the cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    gc.set_threshold(50_000)  # importing torch creates many objects and no garbage
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    try:
        rest = [argument for argument in arguments if argument != "--debug"]
        with keep_interrupts():
            code = app_for(rest[0] if rest else "")(args=rest, prog_name="regard", standalone_mode=False)
        sys.stdout.flush()  # here, where a closed pipe can still be handled
    except (BrokenPipeError, ReaderGone):
        # the reader of stdout has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:  # while typer parses the arguments
        code = INTERRUPTED
    except Exception as error:
        if debug and not hasattr(error, "format_message"):  # usage errors have no traceback
            raise
        text, code = describe_error(error)
        explain(text) if text else None
    if code == INTERRUPTED:
        explain("interrupted")
    # No garbage collection over all of torch at exit, which takes a third of a second.
    gc.freeze()
    sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def keep_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt after Ctrl-C even if a library turned it into another error."""
    signals: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        raise KeyboardInterrupt

    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        try:
            signal.signal(signal.SIGINT, handle)
        except ValueError:  # not in the main thread, which receives signals
            is_default = False
    try:
        yield
    except Exception as error:
        if signals:
            raise KeyboardInterrupt from error
        raise
    finally:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def describe_error(error: Exception) -> tuple[str, int]:
    """The message for an error, and the exit code."""
    match error:
        case RegardError():
            return str(error), error.exit_code
        case _ if hasattr(error, "format_message"):  # of typer: an unknown option, a wrong value
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "regard"
            reason = error.format_message().rstrip(".")  # empty if the help was printed
            return f'{reason}; see "{command} --help"' if reason else "", 2
        case MemoryError():
            return "not enough memory; try a smaller batch (tokens_per_batch) or beam", 1
        case OSError(filename=name, strerror=reason):
            return f"{name or 'cannot write'}: {reason or error}", 1
    return f"{type(error).__name__}: {error}; this is a bug; --debug shows the traceback", 1
