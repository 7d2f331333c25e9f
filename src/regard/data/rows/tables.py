"""Objects of .jsonl and .parquet files, as the hub's datasets have them, to rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from regard.data.files import checked_lines, stamp
from regard.data.findings import Findings
from regard.data.formats import kind
from regard.data.rows import Row, Unfit
from regard.errors import UsageError
from regard.inputs.text.tokenizer import replace_surrogates

TABLES = (".jsonl", ".parquet")
ROWS_AT_ONCE = 256  # a row may be a book

Object = Mapping[str, Any]


def read_objects(
    path: Path, findings: Findings, convert: Callable[[Object], tuple[str, str]]
) -> Iterator[Row]:
    """The rows that `convert` makes of the objects; what it calls `Unfit` is left out and counted."""
    for number, found in objects(path, findings):
        try:
            sides = convert(found)
        except Unfit as wrong:
            findings.add(wrong.kind, str(path), number, note=wrong.note)
        else:
            yield number, *sides


def objects(path: Path, findings: Findings) -> Iterator[tuple[int, Object]]:
    """Numbered; what is no object at all is empty, so that a reader misses in it what it needs."""
    found = _parquet(path) if kind(path) == ".parquet" else _jsonl(path, findings)
    for number, value in found:
        yield number, value if isinstance(value, dict) else {}


def _jsonl(path: Path, findings: Findings) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(checked_lines(path, findings, json=True), start=1):
        if line is None or not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            findings.add("malformed", str(path), number, note=f"not valid JSON ({error})")
        else:
            yield number, found


def _parquet(path: Path) -> Iterator[tuple[int, object]]:
    """Some rows at a time: a file may be larger than the memory."""
    stamp(path)
    try:
        library = import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(f'{path}: to read .parquet files, pip install "regard[hub]"') from None
    number = 0
    try:
        portions = library.ParquetFile(path).iter_batches(ROWS_AT_ONCE)
        rows = (row for portion in portions for row in portion.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield number, row
    except (OSError, ValueError) as error:  # the library's own errors are of these kinds
        reason = str(error).split("\n")[0]
        raise UsageError(f"{path}, after row {number}: not a readable .parquet file ({reason})") from None


def text_of(found: Object, *names: str) -> str:
    """The first of the named strings that is there."""
    for name in names:
        if isinstance(value := found.get(name), str):
            return clean(value)
    raise Unfit("malformed", "needs the string " + quoted(names))


def list_of(found: Object, *names: str) -> list[Any]:
    for name in names:
        if isinstance(value := found.get(name), list):
            return value
    raise Unfit("malformed", "needs the list " + quoted(names))


def quoted(names: Sequence[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def clean(text: str) -> str:
    """JSON can spell half a character ("\\ud800"), which no UTF-8 file can hold."""
    return replace_surrogates(text)


def name_of(value: object) -> str | None:
    """A label as a string: 1, 1.0 and "1" are the same one, and so are true and "true"; None for no label."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value) if math.isfinite(value) else None
    return clean(str(value)).strip() if isinstance(value, int | str) else None
