"""What a report is made of. A page is a list of sections; how a block looks is the renderer's business.

All text in here is plain text, of which much was written by strangers (corpora) or by a model: a renderer
escapes every piece of it.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_SHOWN = 600  # characters of a sentence
TURNS_DIRECTION = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
NOT_SHOWN = ("Cc", "Cs", "Zl", "Zp")  # controls, lone surrogates, line and paragraph separators

Point = tuple[float, float]


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Code:
    """Lines to be copied: a command, a signature."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Tiles:
    """The few numbers one looks for first: (name, value, remark)."""

    tiles: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1  # from the left; the others hold numbers


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[Point]
    dots: bool = False  # each point was measured on its own

    def finite(self) -> list[Point]:
        return [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]


@dataclass(frozen=True)
class Chart:
    title: str
    series: Sequence[Series]
    from_zero: bool = False  # where only the distance from nothing says how much a change is
    over: str = "update"
    names: Sequence[str] = ()  # of the places 0, 1, 2 ... where these are no numbers


@dataclass(frozen=True)
class Charts:
    charts: Sequence[Chart]
    picture: str  # a file of the folder that shows the same


@dataclass(frozen=True)
class Matrix:
    """How often each label was called what: `counts[i][j]` texts of label i were called j."""

    labels: Sequence[str]
    counts: Sequence[Sequence[int]]
    corner: str = "reference ↓ output →"


@dataclass(frozen=True)
class Case:
    """One held-out text, as (name, text): what stood there and what the model made of it."""

    lines: Sequence[tuple[str, str]]
    remark: str


@dataclass(frozen=True)
class Alignment:
    """Which source word each word of the output looked at most: (source, output) by number."""

    source: Sequence[str]
    output: Sequence[str]
    links: Sequence[tuple[int, int]]


Block = Paragraph | Code | Tiles | Table | Charts | Matrix | Case | Alignment


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]


def shown_lines(text: str) -> list[str]:
    """A text of several lines as such; what is too long is cut off as a whole."""
    whole = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + " …"
    return [printable(line) for line in whole.removesuffix("\n").split("\n")]


def printable(text: str) -> str:
    """Text whose every character is seen: controls and turns of the direction of writing stand as escapes."""
    shown = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + " …"
    return "".join(
        f"\\u{ord(sign):04x}"
        if unicodedata.category(sign) in NOT_SHOWN or ord(sign) in TURNS_DIRECTION
        else sign
        for sign in shown
    )
