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
from regard.resources import read_data

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
    dropped: bool  # the row is not used


ISSUE_KINDS: Mapping[str, IssueKind] = {
    name: IssueKind(**fields) for name, fields in read_data("issues").items()
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
