"""Files at any fsspec address to parts of rows: lines of text, JSONL, CSV, Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.errors import UsageError, located

FORMATS = {".jsonl": "jsonl", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}  # others are lines of text
LONGEST = 64 << 20  # bytes of a row


@dataclass(frozen=True)
class RowRange:
    """Rows of a file. Of Parquet `begin` and `end` are numbers of rows, else bytes."""

    address: str
    first: int  # number of the first row, from 1, over all files
    count: int
    begin: int
    end: int
    column: str
    key: str | None
    output: str = ""  # of its results

    @property
    def format(self) -> str:
        return FORMATS.get(Path(self.address).suffix.lower(), "text")


@dataclass(frozen=True)
class Row:
    """A row of a part: its value, or why it has none."""

    number: int
    value: str
    key: Any = None
    reason: str = ""


# --- files to parts


def filesystem(address: str) -> tuple[Any, str]:
    """The fsspec file system of an address, and the path there."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError) as error:
        raise UsageError(f"{address}: {error}", code="E_NO_FILE") from None
    return system, path


def expand(addresses: Sequence[str]) -> list[str]:
    """The files of addresses; one with `*` stands for several, by name."""
    files: list[str] = []
    for address in addresses:
        system, path = filesystem(address)
        paths = sorted(system.glob(path)) if "*" in path else [path]
        if not paths or not system.isfile(paths[0]):
            raise UsageError(f"{address}: no such file", code="E_NO_FILE")
        files += [system.unstrip_protocol(each) for each in paths]
    return files


def split(addresses: Sequence[str], rows: int, column: str, key: str | None = None) -> Iterator[RowRange]:
    """Parts of `rows` rows. Lines are counted by reading each file once."""
    first = 1
    for address in addresses:
        part = RowRange(address, first, 0, 0, 0, column, key)
        system, path = filesystem(address)
        with located(address), system.open(path, "rb") as file:
            for begin, end, count in SCANS[part.format](file, part, rows):
                yield replace(part, first=first, count=count, begin=begin, end=end)
                first += count


def scan_lines(file: Any, part: RowRange, rows: int) -> Iterator[tuple[int, int, int]]:
    """(begin, end, count) of portions of lines."""
    return portions_of(raw_lines(file), rows)


def scan_csv(file: Any, part: RowRange, rows: int) -> Iterator[tuple[int, int, int]]:
    """Rows, which may have line breaks in quotation marks."""
    sizes: list[int] = []
    records = csv.reader(counted(raw_lines(file), sizes), delimiter=delimiter(part))
    check_columns(part, next(records, []))

    def record_sizes() -> Iterator[bytes | int]:
        header = sum(sizes)
        yield -header
        sizes.clear()
        for _ in records:
            yield sum(sizes)
            sizes.clear()

    return portions_of(record_sizes(), rows)


def portions_of(lines: Iterator[Any], rows: int) -> Iterator[tuple[int, int, int]]:
    """Of lines or their sizes; a negative size is skipped."""
    begin = end = count = 0
    for line in lines:
        size = line if isinstance(line, int) else len(line)
        if size < 0:
            begin = end = -size
            continue
        end, count = end + size, count + 1
        if count == rows:
            yield begin, end, count
            begin, count = end, 0
    if count:
        yield begin, end, count


def scan_parquet(file: Any, part: RowRange, rows: int) -> Iterator[tuple[int, int, int]]:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file)
    except pyarrow.ArrowInvalid as error:
        raise UsageError(f"not a Parquet file ({error})", code="E_DATA_TYPE") from None
    check_columns(part, table.schema_arrow.names)
    total = table.metadata.num_rows
    for begin in range(0, total, rows):
        yield begin, min(begin + rows, total), min(rows, total - begin)


def raw_lines(file: Any) -> Iterator[bytes]:
    while line := file.readline(LONGEST + 1):
        if len(line) > LONGEST:
            raise UsageError(f"a line is longer than {LONGEST >> 20} MiB", code="E_DATA_SIZE")
        yield line


def counted(lines: Iterator[bytes], sizes: list[int]) -> Iterator[str]:
    """The lines as text; their sizes are added to `sizes`."""
    for line in lines:
        sizes.append(len(line))
        yield line.decode(errors="surrogateescape")


def delimiter(part: RowRange) -> str:
    return "\t" if part.address.lower().endswith(".tsv") else ","


def check_columns(part: RowRange, names: Sequence[str]) -> None:
    for name in filter(None, (part.column, part.key)):
        if name.removeprefix("\ufeff") not in [each.removeprefix("\ufeff") for each in names]:
            raise UsageError(
                f'no column "{name}"; there are {", ".join(names[:20]) or "none"}', code="E_DATA_COLUMN"
            )


SCANS: dict[str, Callable[[Any, RowRange, int], Iterator[tuple[int, int, int]]]] = {
    "text": scan_lines,
    "jsonl": scan_lines,
    "csv": scan_csv,
    "parquet": scan_parquet,
}


# --- a part to rows


def read_rows(part: RowRange) -> Iterator[Row]:
    system, path = filesystem(part.address)
    with system.open(path, "rb") as file:
        values = parquet_values(file, part) if part.format == "parquet" else lines_of(file, part)
        for number, (value, key, reason) in enumerate(values, part.first):
            if not reason and not isinstance(value, str):
                reason = f'"{part.column}" is missing' if value is None else f'"{part.column}" is not text'
            if not reason and not is_unicode(value):
                reason = "not UTF-8"
            yield Row(number, "" if reason else value, key if not isinstance(key, bytes) else None, reason)


Values = Iterator[tuple[Any, Any, str]]  # value, key, reason


def lines_of(file: Any, part: RowRange) -> Values:
    header: list[str] = []
    if part.format == "csv":
        header = next(csv.reader(counted(raw_lines(file), []), delimiter=delimiter(part)), [])
        header = [name.removeprefix("\ufeff") for name in header]
    file.seek(part.begin)
    content = io.BytesIO(file.read(part.end - part.begin))
    lines = counted(raw_lines(content), [])
    if part.format == "csv":
        for cells in csv.reader(lines, delimiter=delimiter(part)):
            record = dict(zip(header, cells))
            yield record.get(part.column), record.get(part.key or ""), ""
        return
    for number, line in enumerate(lines):
        text = line.removesuffix("\n").removesuffix("\r")
        if not number and not part.begin:
            text = text.removeprefix("\ufeff")
        if part.format == "text":
            yield text, None, ""
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield None, None, f"not JSON ({error})"
            continue
        if isinstance(record, dict):
            yield record.get(part.column), record.get(part.key or ""), ""
        else:
            yield None, None, "not a JSON object"


def parquet_values(file: Any, part: RowRange) -> Values:
    import pyarrow.parquet

    table, at = pyarrow.parquet.ParquetFile(file), 0
    names = [name for name in (part.column, part.key) if name]
    for group in range(table.num_row_groups):
        size = table.metadata.row_group(group).num_rows
        first, last = max(part.begin - at, 0), min(part.end - at, size)
        if first < last:
            columns = table.read_row_group(group, columns=names).slice(first, last - first).to_pydict()
            keys = columns[part.key] if part.key else [None] * (last - first)
            yield from ((value, key, "") for value, key in zip(columns[part.column], keys))
        at += size


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
