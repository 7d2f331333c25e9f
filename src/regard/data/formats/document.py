"""What a translator's file is to the rest of the house: pairs to learn from, and units to fill."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from regard.config import Task
from regard.data.files import LONGEST_INPUT
from regard.errors import UsageError

Pair = tuple[int, str, str]  # line in the file, source, target
UNKNOWN = Task()  # the names that stand there until a person gives languages


@dataclass(frozen=True)
class Unit:
    """Something to translate as a whole: one text, or the forms of a plural.

    `fill` takes a translation for each source and whether a person shall review it; `leave` marks what could
    not be translated. `fits` says whether a text can stand for the source of that number (its tags are well
    nested).
    """

    sources: tuple[str, ...]
    placeholders: re.Pattern[str]  # what must come back as it is
    fill: Callable[[Sequence[str], bool], None]
    leave: Callable[[], None] = lambda: None
    fits: Callable[[int, str], bool] = lambda number, text: True


class Document(Protocol):
    """A file that holds its own layout; what is not filled stays as it was."""

    entries: int  # how much text there is, translated or not
    reviewable: bool  # whether the format can say "a person shall look at this"

    def units(self, everything: bool) -> list[Unit]: ...

    def content(self) -> bytes: ...


def read_bytes(path: Path) -> bytes:
    """A whole file, unpacked if it is a .gz."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(LONGEST_INPUT + 1)  # a small .gz may hold any amount
        if len(content) > LONGEST_INPUT:
            raise UsageError(f"{path}: larger than {LONGEST_INPUT >> 20} MiB; cut it into several files")
        return content
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: the gzip file is damaged or cut short ({error}); fetch it again") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot read it: {error.strerror}") from None


def decode(raw: bytes, encoding: str, path: Path) -> str:
    """Text of bytes, as they are: no newline is changed."""
    try:
        return raw.decode(encoding)
    except LookupError:
        raise UsageError(f'{path}: its header names the unknown charset "{encoding}"') from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}, line {line}: byte 0x{raw[error.start]:02x} is not {encoding}; "
            "convert the file (for example with iconv)"
        ) from None


def encode(text: str, encoding: str, path: Path) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise UsageError(
            f'{path}: its charset {encoding} has no "{text[error.start]}"; convert it to UTF-8 first '
            "(a .po with msgconv -t UTF-8)"
        ) from None


@lru_cache(maxsize=1024)
def same_language(one: str, other: str) -> bool:
    """Whether one code says the other, or more of it: "en" and "en-US", but not "en-GB" and "en-US"."""
    left, right = (re.split(r"[-_@.]", code.casefold()) for code in (one, other))
    length = min(len(left), len(right))
    return left[:length] == right[:length]


def check_language(path: Path, role: str, found: str | None, wanted: str) -> None:
    """A file of another language is a mistake; one that does not say, or a model that does not, is none."""
    unknown = getattr(UNKNOWN, role)
    if found and wanted != unknown and not same_language(found, wanted):
        raise UsageError(f'{path}: its {role} language is "{found}", not "{wanted}"')


def both(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Only pairs with text on both sides."""
    return (pair for pair in pairs if pair[1].strip() and pair[2].strip())
