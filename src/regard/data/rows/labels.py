"""Texts and their labels: a .tsv of text, tab, label; or objects with "text" and "label" or "labels"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from regard.data.files import checked_lines
from regard.data.findings import Findings
from regard.data.formats import kind
from regard.data.rows import BETWEEN_LABELS, Row, Unfit
from regard.data.rows.tables import TABLES, Object, name_of, read_objects, text_of
from regard.errors import UsageError

TEXT, LABEL = ("text", "sentence"), ("label", "labels")


def read_labels(path: Path, many: bool, findings: Findings) -> Iterator[Row]:
    """With `many`, a text has any number of labels: in a .tsv parted by commas, in an object a list."""
    if kind(path) in TABLES:
        return read_objects(path, findings, lambda found: labelled(found, many))
    if kind(path) == ".tsv":
        return read_columns(path, many, findings)
    raise UsageError(f"{path}: texts with labels stand in a .tsv (text, tab, label), a .jsonl or a .parquet")


def read_columns(path: Path, many: bool, findings: Findings) -> Iterator[Row]:
    """Two columns; or, below a header whose last name is "label", as many as the header has."""
    place, width = 0, 2
    for number, line in enumerate(checked_lines(path, findings), start=1):
        if line is None or not line.strip("\r "):
            continue
        columns = line.split("\t")
        if number == 1 and is_header(columns):
            findings.add("header", str(path), number)
            place, width = _text_column(columns), len(columns)
            continue
        try:
            if len(columns) != width:
                raise Unfit("malformed", f"{len(columns)} of {width} columns; write text, tab, label")
            labels = columns[-1].split(",") if many else columns[-1:]
            if many and not columns[-1].strip():
                labels = []
            sides = with_labels(columns[place], labels, many)
        except Unfit as wrong:
            findings.add(wrong.kind, str(path), number, note=wrong.note)
        else:
            yield number, *sides


def has_header(path: Path) -> bool:
    """Whether a .tsv begins with the names of its columns, the last of which is "label"."""
    first = next(checked_lines(path, Findings()), None)
    return first is not None and is_header(first.split("\t"))


def is_header(columns: Sequence[str]) -> bool:
    return len(columns) > 1 and columns[-1].strip().casefold() in LABEL


def _text_column(header: Sequence[str]) -> int:
    names = [name.strip().casefold() for name in header]
    return next((names.index(name) for name in TEXT if name in names), 0)


def labelled(found: Object, many: bool) -> tuple[str, str]:
    text = text_of(found, *TEXT)
    value = next((found[name] for name in LABEL if found.get(name) is not None), None)
    if value is None:
        raise Unfit("malformed", 'needs "label" (or the list "labels")')
    return with_labels(text, value if isinstance(value, list) else [value], many)


def with_labels(text: str, values: Iterable[object], many: bool) -> tuple[str, str]:
    names = [name_of(value) for value in values]
    labels = list(dict.fromkeys(name for name in names if name))  # a label said twice is one
    if not all(names) or BETWEEN_LABELS in "".join(labels):
        raise Unfit("malformed", "a label that is empty, or neither a string nor a number")
    if not many and len(labels) != 1:
        raise Unfit("malformed", f"{len(labels)} labels; for any number of them set task.multi_label = true")
    if not text.strip():
        raise Unfit("empty")
    return text, BETWEEN_LABELS.join(labels)
