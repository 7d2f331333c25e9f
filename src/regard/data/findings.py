"""What was found in a corpus: how often, where, and what was done about it.

Places name files, lines and bytes, never sentences: the record goes into the model card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from regard.errors import UsageError

PLACES = 10  # of each kind that are named; the rest is counted


@dataclass(frozen=True)
class Kind:
    meaning: str
    left_out: bool  # the row is not used; else it is used, mended where that loses nothing


# A row is a pair, or a text with what is asked of it.
KINDS: Mapping[str, Kind] = {
    "bad-utf8": Kind("a line that is not UTF-8", True),
    "nul": Kind("a line with a NUL byte", True),
    "endless": Kind("a line longer than a mebibyte", True),
    "malformed": Kind("a row that lacks what it needs", True),
    "misaligned": Kind("a sentence of which a word has no tag", True),
    "answer-not-there": Kind("a question with an answer that is not at its place in the context", True),
    "empty": Kind("an empty text, or a pair with an empty side", True),
    "ratio": Kind("a pair of absurdly unequal lengths", True),
    "too-long": Kind("longer than model.max_length", True),
    "header": Kind("the names of the columns (not read as a row)", False),
    "bom": Kind("a byte order mark (removed)", False),
    "carriage-return": Kind('a line that ends in "\\r\\n" (read as "\\n")', False),
    "odd-separator": Kind("a line with another line separator inside (kept as text)", False),
    "no-newline": Kind("a file whose last line has no end (read all the same)", False),
    "duplicate": Kind("a row that came before", False),
    "unseen-label": Kind("a held-out row with a label that no training row has", False),
    "leak-exact": Kind("a training row that is in the held-out data", True),
    "leak-normalised": Kind("a training row that is in the held-out data but for case or signs", True),
    "leak-near": Kind("a training row one word away from a held-out one", True),
    "shared-exact": Kind("a training pair of which one side is in the held-out data", False),
    "shared-normalised": Kind("a training pair with one held-out side but for case or signs", False),
    "shared-near": Kind("a training pair with one side one word away from a held-out one", False),
}
REFUSED = frozenset({"bad-utf8", "nul", "endless", "malformed", "misaligned", "answer-not-there"})


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    line: int
    byte: int | None = None  # from the start of the (unpacked) file, counted from 0
    note: str = ""

    def __str__(self) -> str:
        at = f", byte {self.byte}" if self.byte is not None else ""
        return f"{self.file}, line {self.line}{at}{': ' if self.note else ''}{self.note}"


class Findings:
    """Counts of every kind, and the first places of each."""

    def __init__(self, kept: frozenset[str] = frozenset(), dropped: frozenset[str] = frozenset()) -> None:
        """`kept` and `dropped`: kinds for which the run's config decides otherwise than `KINDS`."""
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[Place]] = {}
        self.kept, self.dropped = kept, dropped

    def add(self, kind: str, file: str, line: int, byte: int | None = None, note: str = "") -> None:
        self.counts[kind] += 1
        places = self.places.setdefault(kind, [])
        if len(places) < PLACES:
            places.append(Place(file, line, byte, note))

    def leaves_out(self, kind: str) -> bool:
        return kind in self.dropped or (KINDS[kind].left_out and kind not in self.kept)

    def to_json(self, whole_paths: bool = True) -> list[dict[str, Any]]:
        """In the order of `KINDS`. What leaves this machine names files, not the folders they lie in."""
        return [
            {
                "kind": kind,
                "meaning": KINDS[kind].meaning,
                "count": self.counts[kind],
                "left_out": self.leaves_out(kind),
                "places": [
                    asdict(place if whole_paths else replace(place, file=Path(place.file).name))
                    for place in self.places[kind]
                ],
            }
            for kind in KINDS
            if self.counts[kind]
        ]


class Refused(Findings):
    """For text that must be right as it is: the first line that could not be used is an error."""

    def add(self, kind: str, file: str, line: int, byte: int | None = None, note: str = "") -> None:
        if kind in REFUSED:
            raise UsageError(f"{Place(file, line, byte, note)}; mend or remove the line")
        super().add(kind, file, line, byte, note)
