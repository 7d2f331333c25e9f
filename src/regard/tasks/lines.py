"""Lines of text as what a model reads: parts with their pieces, tokenised once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.tasks.segments import Segment, Split, segment, segments

TooLong = Literal["cut", "skip", "error"]


@dataclass(frozen=True)
class Line:
    """A line and its parts; `sources` holds the pieces of each part, nothing for a blank one."""

    text: str
    parts: list[Segment]
    sources: list[list[int]]
    skipped: bool = False

    @property
    def broken(self) -> bool:
        return any(part.broken for part in self.parts)

    @property
    def spoken(self) -> list[int]:
        """The numbers of the parts that have something to translate."""
        return [] if self.skipped else [place for place, part in enumerate(self.parts) if part.text]


@dataclass(frozen=True)
class Cutter:
    """Cuts lines into parts that a model can read. Lengths are in pieces.

    `above` is what counts as long, `longest` what the model can read at all.
    """

    tokenizer: Tokenizer
    above: int
    longest: int
    too_long: TooLong = "cut"
    before: str = ""  # stands before every part

    def cut(self, texts: Sequence[str], splits: Sequence[Split], first: int = 1) -> list[Line]:
        """The lines, of which the first has the number `first`. Only long ones are tokenised twice."""
        whole = self.encode([text.strip() for text in texts])
        return [
            self.cut_one(text, own, split, number)
            for number, (text, own, split) in enumerate(zip(texts, whole, splits, strict=True), first)
        ]

    def cut_one(self, text: str, whole: list[int], split: Split, number: int) -> Line:
        most = {"always": 0, "auto": min(self.above, self.longest), "never": self.longest}[split]
        if len(whole) <= most or not whole:
            return Line(text, [segment(text)], [whole])
        parts = segments(text, self.count, split, self.above, self.longest)
        if any(part.broken for part in parts) and self.too_long == "error":
            raise UsageError(
                f"line {number}: a sentence has more than the {self.longest} pieces that the model reads; "
                "shorten it, or take --too-long cut"
            )
        if any(part.broken for part in parts) and self.too_long == "skip":
            return Line(text, parts, [], skipped=True)
        return Line(text, parts, self.encode([part.text for part in parts]))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The pieces of each text behind `before`; of no text none."""
        return self.tokenizer.encode_batch([f"{self.before}{text}" if text else "" for text in texts])

    def count(self, text: str) -> int:
        return len(self.encode([text])[0])


@dataclass(frozen=True)
class Job:
    """One part to translate."""

    line: int
    place: int  # among the parts of its line
    source: Sequence[int]
    prefix: Sequence[int] = ()  # what its translation begins with


def jobs(lines: Sequence[Line], prefixes: Sequence[Sequence[int]] | None) -> Iterator[Job]:
    """All parts with something to translate; the prefix of a line is that of its first part."""
    for number, line in enumerate(lines):
        for rank, place in enumerate(line.spoken):
            prefix = prefixes[number] if prefixes is not None and rank == 0 else ()
            yield Job(number, place, line.sources[place], prefix)
