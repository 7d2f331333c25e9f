"""Corpora as raw rows: (number, source, target), read from checked lines or from objects.

| task | source | target |
|---|---|---|
| translate | a sentence | its translation |
| generate, fill | a document, or a part of it | CONTINUED if it continues the row before, MORE if the next row continues it |
| classify | a text | its labels, joined by LABEL_SEPARATOR |
| tag | words, joined by spaces | as many tags, joined by spaces |
| answer | the question, "\\n", the context | JSON: a list of [answer, its offset in the context] |

The number is that of the line or the entry, for messages.
"""  # noqa: E501  (a table)

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from regard.data.files import checked_lines, stamp
from regard.data.report import DataReport
from regard.errors import UsageError, extra
from regard.inputs.text.tokenizer import replace_surrogates

RawRow = tuple[int, str, str]  # number, source, target
Object = Mapping[str, Any]

CONTINUED, MORE = "-", "+"
LABEL_SEPARATOR = "\x1f"

TABLES = (".jsonl", ".parquet")
ROWS_AT_ONCE = 256  # a row may be a book


class InvalidRow(ValueError):
    """A row that cannot be used: the kind of issue, and a note about it."""

    def __init__(self, kind: str, note: str = "") -> None:
        super().__init__(note)
        self.kind, self.note = kind, note


def read_objects(
    path: Path, suffix: str, report: DataReport, convert: Callable[[Object], tuple[str, str]]
) -> Iterator[RawRow]:
    """The rows that `convert` makes of the objects; it raises `InvalidRow` for those to drop."""
    for number, value in objects(path, suffix, report):
        try:
            sides = convert(value)
        except InvalidRow as error:
            report.add(error.kind, str(path), number, note=error.note)
        else:
            yield number, *sides


def objects(path: Path, suffix: str, report: DataReport) -> Iterator[tuple[int, Object]]:
    """The numbered objects of a .jsonl or .parquet; {} for a JSON value that is not an object."""
    values = _parquet(path) if suffix == ".parquet" else _jsonl(path, report)
    for number, value in values:
        yield number, value if isinstance(value, dict) else {}


def _jsonl(path: Path, report: DataReport) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(checked_lines(path, report, json=True), start=1):
        if line is None or not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            report.add("malformed", str(path), number, note=f"not valid JSON ({error})")
        else:
            yield number, value


def _parquet(path: Path) -> Iterator[tuple[int, object]]:
    """Some rows at a time: the file may be larger than the memory."""
    stamp(path)
    with extra("hub"):
        library = import_module("pyarrow.parquet")
    number = 0
    try:
        batches = library.ParquetFile(path).iter_batches(ROWS_AT_ONCE)
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield number, row
    except (OSError, ValueError) as error:  # pyarrow's errors derive from these
        reason = str(error).split("\n")[0]
        raise UsageError(f"{path}, after row {number}: not a readable .parquet file ({reason})") from None


def string_field(value: Object, *names: str) -> str:
    """The first field of these names that is a string."""
    for name in names:
        if isinstance(text := value.get(name), str):
            return replace_surrogates(text)  # JSON can contain half a character ("\ud800"), UTF-8 cannot
    raise InvalidRow("malformed", "needs the string " + _quoted(names))


def list_field(value: Object, *names: str) -> list[Any]:
    for name in names:
        if isinstance(items := value.get(name), list):
            return items
    raise InvalidRow("malformed", "needs the list " + _quoted(names))


def _quoted(names: Sequence[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def label_name(value: object) -> str | None:
    """A label as a string: 1, 1.0 and "1" are equal, and so are true and "true"; else None."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value) if math.isfinite(value) else None
    return replace_surrogates(str(value)).strip() if isinstance(value, int | str) else None
