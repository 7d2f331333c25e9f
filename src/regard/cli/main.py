"""`regard`: all commands, and the one place where errors become a message and an exit code."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer

from regard import __version__
from regard.cli.terminal import ReaderGone, explain, say
from regard.compat import current_arguments
from regard.errors import RegardError

INTERRUPTED = 130  # what typer returns after Ctrl-C

# command -> module and function, group of commands (`app`), or class that extends the description of a task
COMMANDS = {
    "train": "train.train",
    "translate": "translate.TranslateCommand",
    "generate": "generate.GenerateCommand",
    "chat": "chat.chat",
    "caption": "media.CaptionCommand",
    "fill": "generate.FillCommand",
    "classify": "understanding.ClassifyCommand",
    "tag": "understanding.TagCommand",
    "answer": "understanding.AnswerCommand",
    "embed": "understanding.EmbedCommand",
    "transcribe": "speech.TranscribeCommand",
    "score": "generate.ScoreCommand",
    "evaluate": "evaluate.evaluate",
    "compare": "evaluate.compare",
    "explain": "explain.explain",
    "explore": "explore.explore",
    "serve": "serve.app",
    "report": "train.report",
    "sweep": "sweep.sweep",
    "average": "train.average",
    "export": "export.export",
    "calibrate": "export.calibrate",
    "import": "models.import_",
    "tokenizer": "tokenizer.app",
    "config": "config.app",
    "data": "data.app",
    "models": "models.app",
    "bench": "bench.app",
    "doctor": "doctor.doctor",
}


def _version(wanted: bool) -> None:
    if wanted:
        print(f"regard {__version__}")
        raise typer.Exit


def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print it."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    pass


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The app with some commands. Typer inspects the options of all of them, which takes longer than
    translating a sentence: so `main` makes the app of one command."""
    app = typer.Typer(
        name="regard",
        help="Train, run and see Transformers: text files in, a model of your own out.",
        epilog="Begin with:  regard config init run.toml  &&  regard train run.toml -o runs/first",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    for name in names:
        command = find_command(name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def find_command(name: str) -> Any:
    module, member = COMMANDS[name].split(".")
    command = getattr(importlib.import_module(f"regard.cli.{module}"), member)
    if not isinstance(command, type):
        return command
    from regard.cli.tasks import make_command

    return make_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exit 0 when done, 1 on failure, 2 on wrong use, 130 when interrupted."""
    # Before torch loads OpenMP: waiting threads soon sleep. As fast on an idle machine, and faster when
    # other programs use the cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    gc.set_threshold(50_000)  # importing torch creates many objects and no garbage
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    texts = arguments.index("--") if "--" in arguments else len(arguments)
    debug = "--debug" in arguments[:texts]
    try:
        rest = [each for at, each in enumerate(arguments) if each != "--debug" or at > texts]
        app = make_app([rest[0]] if rest and rest[0] in COMMANDS else COMMANDS)
        rest = current_arguments(rest, say)
        with keep_interrupts():
            code = app(args=rest, prog_name="regard", standalone_mode=False)
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
