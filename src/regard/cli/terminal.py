"""What all commands share: lines in and out, messages, common options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from regard.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from regard.tasks import Translator

Item = TypeVar("Item")
_MOVES = dict.fromkeys((7, 8, 11, 12, 13, 27))
AT_ONCE = 2000  # lines read before they are sorted by length and translated together

Models = Annotated[
    list[Path],
    typer.Option(
        "--model", "-m", help="The model folder, or run/checkpoints/step-N; several are an ensemble."
    ),
]
OneModel = Annotated[
    Path,
    typer.Option("--model", "-m", help="The model folder, run/checkpoints/step-N, or a pulled model's name."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Threads = Annotated[int, typer.Option(min=0, max=1024, help="CPU threads; 0 = one per usable core.")]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16", "int8"],
    typer.Option(help="Of products; auto: int8 if `regard calibrate` has measured the model, else float32."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def messages() -> Console:
    """Where everything goes that is not a result. What is printed is text: a path may hold [b] or :x:."""
    from rich.console import Console  # here: a sentence that is translated need not wait for it

    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def tables() -> Console:
    """Where tables of results go; in a file or a pipe they are as wide as they need to be."""
    from rich.console import Console

    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 200)


def explain(text: str) -> None:
    from rich.text import Text

    messages().print(Text.assemble(("error:", "bold red"), " ", text))


def thread_count(threads: int) -> int:
    """The number of threads that a command sets for its process: --threads, or the default."""
    from regard.device import default_threads

    return threads or default_threads()


def open_model(
    paths: Sequence[Path], device: str, threads: int, precision: str = "auto", language: str | None = None
) -> Translator:
    from regard.tasks import Translator, load_as

    opened = load_as(Translator, paths, device, thread_count(threads), precision)
    return opened if language is None else opened.into(language)


def read_stdin() -> Iterator[str]:
    """Lines of stdin, by the rules of a file: UTF-8, ending at a newline only."""
    if sys.stdin is None:
        raise UsageError("stdin is closed; give a text or a file")
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"stdin, line {number}: byte {error.start + 1} is not UTF-8") from None
        line = line.removesuffix("\n").removesuffix("\r")
        yield line.removeprefix("\ufeff") if number == 1 else line


def read_all_stdin() -> str:
    """Stdin as one text, its line ends as they are."""
    if sys.stdin is None:
        raise UsageError("stdin is closed; give a text or a file")
    raw = sys.stdin.buffer.read()
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin, byte {error.start}: 0x{raw[error.start]:02x} is not UTF-8") from None


def read_inputs(names: Iterable[str]) -> Iterator[str]:
    """The lines of files, of stdin for `-`, or texts given directly; nothing given means stdin."""
    from regard.data.files import lines

    for name in list(names) or ["-"]:
        if name == "-":
            yield from read_stdin()
        elif os.path.exists(name):  # noqa: PTH110  (Path.exists raises for a text longer than a file name)
            yield from lines(Path(name))
        elif looks_like_path(name):
            raise UsageError(f"{name}: no such file (if it is meant as text, give it through stdin)")
        else:
            yield from name.split("\n")


def looks_like_path(text: str) -> bool:
    """Whether a person who wrote this meant a file: one word with a suffix or a folder in it."""
    return len(text.split()) == 1 and ("/" in text or "\\" in text or bool(Path(text).suffix.strip(".?!…")))


def portions(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    items = iter(items)
    while portion := list(islice(items, size)):
        yield portion


class ReaderGone(Exception):
    """Nobody reads our results any more, as after `| head -1`; a command just ends."""


def print_line(text: str, flush: bool = False) -> None:
    """One line of result, in UTF-8 and with "\\n" on every system."""
    put(f"{text}\n", flush)


def put(text: str, flush: bool = False) -> None:
    """A part of a line of result."""
    try:
        sys.stdout.buffer.write(text.encode("utf-8", errors="replace"))
        if flush:
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGone from None


def one_line(text: str) -> str:
    """A model of bytes can say a newline; where a line is an answer, it would shift all the others."""
    return text.replace("\n", " ")


def writable(output: Path | None) -> Path | None:
    """Where to write; what cannot be is said before the work and not after it. `-` is stdout."""
    if output is not None and output.is_dir():
        raise UsageError(f"{output} is a folder; give the name of a file to write")
    return None if output == Path("-") else output


def say(text: str) -> None:
    """A line about what was done. Signs that would move a terminal's cursor are left out."""
    if sys.stderr is not None:
        print(text.translate(_MOVES), file=sys.stderr, flush=True)
