"""The report of a data check: how often each issue occurs, where, and whether its rows are dropped.

Places name files, lines and bytes, never text, because the report becomes part of the model card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from regard.config import Task
from regard.errors import RegardError, UsageError

UNITS = {
    "translate": "pairs",
    "answer": "questions",
    "tag": "sentences",
    "image": "pictures",
    "video": "videos",
    "audio": "sounds",
}  # by task or input, else texts
MAX_PLACES = 10  # listed for each kind of issue; the rest is only counted


@dataclass(frozen=True)
class IssueKind:
    meaning: str
    dropped: bool  # the row is not used; otherwise it is used, repaired where nothing is lost by that


# A row is a pair, or a text with its annotation.
ISSUE_KINDS: Mapping[str, IssueKind] = {
    "bad-utf8": IssueKind("a line that is not UTF-8", True),
    "nul": IssueKind("a line with a NUL byte", True),
    "endless": IssueKind("a line longer than 1 MiB", True),
    "malformed": IssueKind("a row without the required fields", True),
    "misaligned": IssueKind("a sentence with a word that has no tag", True),
    "answer-not-there": IssueKind("a question whose answer is not at its offset in the context", True),
    "empty": IssueKind("an empty text, or a pair with an empty side", True),
    "ratio": IssueKind("a pair of very different lengths", True),
    "too-long": IssueKind("longer than model.max_length", True),
    "unreadable": IssueKind("a picture or sound that cannot be read", True),
    "header": IssueKind("column names (not read as a row)", False),
    "quoted": IssueKind("a .tsv with quoted fields (read as a .csv)", False),
    "bom": IssueKind("a byte order mark (removed)", False),
    "carriage-return": IssueKind('a line that ends in "\\r\\n" (read as "\\n")', False),
    "odd-separator": IssueKind("another line separator inside a line (kept as text)", False),
    "no-newline": IssueKind("a file without a newline at its end", False),
    "duplicate": IssueKind("a row that repeats an earlier one", False),
    "unseen-label": IssueKind("a held-out row with a label that no training row has", False),
    "leak-exact": IssueKind("a training row that is in the held-out data", True),
    "leak-normalised": IssueKind("a leak that differs in case, spaces or punctuation", True),
    "shared-exact": IssueKind("a training pair of which one side is in the held-out data", False),
    "shared-normalised": IssueKind("a shared side that differs in case, spaces or punctuation", False),
}
# Rows that cannot be read at all.
UNREADABLE = frozenset({"bad-utf8", "nul", "endless", "malformed", "misaligned", "answer-not-there"})


@dataclass(frozen=True, slots=True)
class RowPlace:
    file: str
    line: int
    byte: int | None = None  # offset in the (unpacked) file, from 0
    note: str = ""

    def __str__(self) -> str:
        byte = f", byte {self.byte}" if self.byte is not None else ""
        return f"{self.file}, line {self.line}{byte}{': ' if self.note else ''}{self.note}"


class DataReport:
    """The count of each kind of issue, and its first places."""

    def __init__(self, kept: frozenset[str] = frozenset(), dropped: frozenset[str] = frozenset()) -> None:
        """`kept` and `dropped` override `ISSUE_KINDS`, as the config of the run says."""
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[RowPlace]] = {}
        self.kept, self.dropped = kept, dropped

    def add(self, kind: str, file: str, line: int, byte: int | None = None, note: str = "") -> None:
        self.counts[kind] += 1
        places = self.places.setdefault(kind, [])
        if len(places) < MAX_PLACES:
            places.append(RowPlace(file, line, byte, note))

    def drops(self, kind: str) -> bool:
        return kind in self.dropped or (ISSUE_KINDS[kind].dropped and kind not in self.kept)

    def to_json(self, whole_paths: bool = True) -> list[dict[str, Any]]:
        """In the order of `ISSUE_KINDS`; without `whole_paths`, only the names of files, for publication."""
        return [
            {
                "kind": kind,
                "meaning": ISSUE_KINDS[kind].meaning,
                "count": self.counts[kind],
                "left_out": self.drops(kind),
                "places": [
                    asdict(place if whole_paths else replace(place, file=Path(place.file).name))
                    for place in self.places[kind]
                ],
            }
            for kind in ISSUE_KINDS
            if self.counts[kind]
        ]


class StrictReport(DataReport):
    """Raises at the first row that cannot be read, for inputs that must be complete."""

    def add(self, kind: str, file: str, line: int, byte: int | None = None, note: str = "") -> None:
        if kind in UNREADABLE:
            code = "E_DATA_ENCODING" if kind in ("bad-utf8", "nul") else "E_DATA_ROW"
            raise UsageError(f"{RowPlace(file, line, byte, note)}; fix or remove the line", code=code)
        super().add(kind, file, line, byte, note)


def refuse_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    """`--strict`: any finding stops the run."""
    if findings:
        first = findings[0]["places"][0]
        counts = ", ".join(f"{each['count']:,} x {each['kind']}" for each in findings)
        raise RegardError(
            f"--strict: {counts}; the first in {first['file']}, line {first['line']}; "
            '"regard data check" lists them',
            code="E_DATA_STRICT",
        )


def summary(record: Mapping[str, Any], task: Task) -> str:
    """One line about the check; the rest is in data.json."""
    findings = record["findings"]
    used = sum(each["used"] for each in record["corpora"] if each["split"] == "train")
    left_out = sum(each["count"] for each in findings if each["left_out"])
    kinds = [f"{each['count']:,} {each['kind']}" for each in findings]
    issues = f" (found: {', '.join(kinds)}; see data.json)" if kinds else ""
    unit = UNITS.get(task.input, UNITS.get(task.name, "texts"))
    return f"{used:,} training {unit}, {left_out:,} left out{issues}"
