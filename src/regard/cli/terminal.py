"""What all commands share: lines in and out, messages, common options."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Translator

Item = TypeVar("Item")
AT_ONCE = 2000  # lines read before they are sorted by length and translated together

ModelFolder = Annotated[Path, typer.Option("--model", "-m", help="The model folder.", show_default=False)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Threads = Annotated[int, typer.Option(min=0, help="Threads of the CPU; 0 = one for each core.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def messages() -> Console:
    """Where everything goes that is not a result."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def explain(text: str) -> None:
    messages().print(f"[bold red]error:[/] {escape(text)}")


def escape(text: str) -> str:
    from rich.markup import escape as escaped

    return escaped(text)


def open_model(path: Path, device: str, threads: int) -> Translator:
    from regard.tasks import load

    return load(path, device, threads)


def read_stdin() -> Iterator[str]:
    """Lines of stdin, by the rules of a file: UTF-8, ending at a newline only."""
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"stdin, line {number}: byte {error.start + 1} is not UTF-8") from None
        yield line.removesuffix("\n").removesuffix("\r")


def read_inputs(names: Iterable[str]) -> Iterator[str]:
    """The lines of files, of stdin for `-`, or texts given directly; nothing given means stdin."""
    from regard.data.files import lines

    for name in list(names) or ["-"]:
        if name == "-":
            yield from read_stdin()
        elif Path(name).is_file():
            yield from lines(Path(name))
        elif looks_like_path(name):
            raise UsageError(f"{name}: no such file")
        else:
            yield name


def looks_like_path(text: str) -> bool:
    """Whether a person who wrote this meant a file: one word with a suffix or a folder in it."""
    return len(text.split()) == 1 and ("/" in text or "\\" in text or bool(Path(text).suffix.strip(".?!…")))


def portions(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    items = iter(items)
    while portion := list(islice(items, size)):
        yield portion


def print_line(text: str) -> None:
    """One line of result, in UTF-8 and with "\\n" on every system."""
    sys.stdout.buffer.write(text.encode("utf-8", errors="replace") + b"\n")
