"""What all commands share: common options, lines in and out, messages, tables."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, TypeVar

import typer

from regard.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Item = TypeVar("Item")
_CONTROL_CHARACTERS = dict.fromkeys((7, 8, 11, 12, 13, 27))  # they move the cursor of a terminal
MAX_PATH = 4096  # characters of a path
TYPE = "type a sentence a line; Ctrl-D ends"

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
OneModelOrBuiltin = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        help="The model folder, run/checkpoints/step-N, or a pulled model's name; default: a built-in model.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Threads = Annotated[int, typer.Option(min=0, max=1024, help="CPU threads; 0 = one per usable core.")]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16", "int8"],
    typer.Option(help="Inference precision; auto: the fastest that keeps a model's results."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Texts = Annotated[list[str] | None, typer.Argument(help="Texts or files; nothing or - reads stdin.")]
Files = Annotated[list[Path] | None, typer.Option("--input", "-i", help="A file of texts; repeatable.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")]
Scores = Annotated[bool, typer.Option("--scores", help="Put the score and a tab before each result.")]
Beam = Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any field of the section decode: --set length_penalty=0.6."),
]


def messages() -> Console:
    """The console of stderr, for all that is not a result. No markup: a path may contain [b] or :x:."""
    from rich.console import Console  # imported here: translating a sentence does not need it

    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def tables() -> Console:
    """The console of stdout, for tables; 200 columns wide in a file or a pipe."""
    from rich.console import Console

    class TableConsole(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1
            raise ReaderGone

    return TableConsole(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 200)


def explain(text: str) -> None:
    from rich.text import Text

    messages().print(Text.assemble(("error:", "bold red"), " ", text))


def thread_count(threads: int) -> int:
    """The number of threads that a command sets for its process: --threads, or the default."""
    from regard.device import default_threads

    return threads or default_threads()


def open_stdin() -> BinaryIO:
    if sys.stdin is None:
        raise UsageError("stdin is closed; give a text or a file")
    return sys.stdin.buffer


def read_stdin() -> Iterator[str]:
    """Lines of stdin, by the rules of a file: UTF-8, ending at a newline only."""
    for number, raw in enumerate(open_stdin(), start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"stdin, line {number}: byte {error.start + 1} is not UTF-8") from None
        line = line.removesuffix("\n").removesuffix("\r")
        yield line.removeprefix("\ufeff") if number == 1 else line


def read_all_stdin() -> str:
    """Stdin as one text, its line ends as they are."""
    raw = open_stdin().read()
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin, byte {error.start}: 0x{raw[error.start]:02x} is not UTF-8") from None


def read_inputs(names: Iterable[str], files: Iterable[Path] = ()) -> Iterator[str]:
    """The lines of files, of stdin for `-`, or texts given directly; nothing given means stdin."""
    from regard.data.files import text_lines

    names, files = list(names), list(files)
    for path in files:
        yield from text_lines(path)
    for name in names or ([] if files else ["-"]):
        if name == "-":
            yield from read_stdin()
        elif os.path.exists(name):  # noqa: PTH110  (Path.exists raises for a text longer than a file name)
            yield from text_lines(Path(name))
        elif looks_like_path(name):
            message = f"{name}: no such file (if it is meant as text, give it through stdin)"
            raise UsageError(message, code="E_NO_FILE")
        else:
            yield from name.split("\n")


def looks_like_path(text: str) -> bool:
    """Whether a person who wrote this meant a file: one word with a suffix, or in a folder that exists."""
    if len(text.split()) != 1 or len(text) > MAX_PATH:
        return False
    in_folder = "/" in text and (text[0] in "./~" or Path(text).parent.is_dir())
    return in_folder or "\\" in text or bool(Path(text).suffix.strip(".?!…"))


def portions(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    items = iter(items)
    while portion := list(islice(items, size)):
        yield portion


def is_typed(names: Sequence[str], advice: str = TYPE) -> bool:
    """Whether a person types the lines; they are answered line by line."""
    typed = names in ([], ["-"]) and sys.stdin is not None and sys.stdin.isatty()
    if typed:
        say(advice)
    return typed


def parse_options(given: list[str] | None, beam: int | None = None) -> dict[str, object]:
    """`--set field=value` and `--beam` as fields of [decode]."""
    from regard.config.load import parse_value

    options: dict[str, object] = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--set {each}: write field=value, for example --set length_penalty=0.6")
        options[name.strip().removeprefix("decode.")] = parse_value(value)
    return options if beam is None else {**options, "beam": beam}


class ReaderGone(Exception):
    """The reader of stdout has closed it, as `| head -1` does; the command ends."""


def print_line(text: str, flush: bool = False) -> None:
    """One line of result, in UTF-8 and with "\\n" on every system."""
    put(f"{text}\n", flush)


def put(text: str | bytes, flush: bool = False) -> None:
    """A part of a result."""
    try:
        sys.stdout.buffer.write(text if isinstance(text, bytes) else text.encode("utf-8", errors="replace"))
        if flush:
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGone from None


def put_lines(lines: Iterable[str], output: Path | None = None, summary: str = "") -> None:
    """Lines of result to stdout or to a file; `summary` says what was written."""
    text = "".join(f"{line}\n" for line in lines)
    if output is None:
        put(text, flush=True)
        return
    from regard.storage import write_text

    write_text(output, text)
    say(f"wrote {summary} to {output}")


def json_line(row: Mapping[str, object]) -> str:
    return json.dumps(row, ensure_ascii=False)


def one_line(text: str) -> str:
    """Without newlines, which a model of bytes can write: each result is one line."""
    return text.replace("\n", " ")


def writable(output: Path | None) -> Path | None:
    """The file to write, checked before the work; None for `-`, which is stdout."""
    if output is not None and output.is_dir():
        raise UsageError(f"{output} is a folder; give the name of a file to write")
    return None if output == Path("-") else output


def say(text: str) -> None:
    """A line on stderr, without control characters."""
    if sys.stderr is not None:
        print(text.translate(_CONTROL_CHARACTERS), file=sys.stderr, flush=True)


def print_table(
    rows: Iterable[Sequence[str | Text]],
    heads: Sequence[str] = (),
    right: Iterable[int] = (),
    fold: bool = False,
    boxed: bool = False,
) -> None:
    """A table on stdout; the columns `right` are right-aligned. Cells are plain text, without markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=bool(heads))
    if not boxed:
        table.box, table.pad_edge = None, False
    rows, right = list(rows), set(right)
    for column in range(len(heads) or max(map(len, rows), default=0)):
        head = Text(heads[column]) if heads else ""
        justify: Literal["right", "left"] = "right" if column in right else "left"
        table.add_column(head, justify=justify, overflow="fold" if fold else "ellipsis")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    tables().print(table)


@dataclass
class Notes:
    """Remarks about lines of input; each kind is printed once, with its count and first line."""

    first: dict[str, int] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, line: int, count: int = 1) -> None:
        self.first.setdefault(kind, line)
        self.count[kind] = self.count.get(kind, 0) + count

    def print(self) -> None:
        for kind, count in self.count.items():
            first = self.first[kind]
            say(f"{f'line {first}' if count == 1 else f'{count} lines, the first is {first}'}: {kind}")
