"""Tables as records: .jsonl, .parquet, .csv, .tsv and .xlsx.

A task needs some columns, such as "text" and "label". The config names them (`columns = {text = "Review"}`),
or they have one of the usual names. A record maps the task's words to the values of one row.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from regard.config import Task
from regard.data.files import LONGEST_INPUT, checked_lines, open_binary, stamp
from regard.data.readers import InvalidRow, RawRow, label_name
from regard.data.report import DataReport
from regard.errors import UsageError, extra, located

Record = dict[str, Any]
Cells = tuple[int, list[str]]  # the line (or row) and its cells
Columns = Mapping[str, str | int]  # the task's word -> a column's name, or its number from 1
Names = Mapping[str, tuple[str, ...]]  # the task's word -> names that a column may have

TABLES = (".jsonl", ".csv", ".xlsx", ".parquet")  # also .tsv, except for tags
ROWS_AT_ONCE = 256  # a row may be a book
SNIFFED = 1 << 16  # bytes at the beginning of a .tsv or .csv that show its dialect
LABEL = ("label", "labels")
LAYOUTS: Mapping[str, Names] = {
    "generate": {"text": ("text",)},
    "fill": {"text": ("text",)},
    "classify": {"text": ("text", "sentence"), "label": LABEL},
    "tag": {"tokens": ("tokens", "words"), "tags": ("tags", "ner_tags")},
    "answer": {"question": ("question",), "context": ("context",), "answers": ("answers", "answer")},
}
FILE = ("file", "path", "image", "audio", "file_name")
MEDIA_LAYOUTS: Mapping[str, Names] = {  # of pictures and sounds
    "classify": {"file": FILE, "label": LABEL},
    "transcribe": {"file": FILE, "text": ("text", "sentence", "transcription")},
    "caption": {"file": FILE, "text": ("text", "caption", "answer"), "question": ("question",)},
}
OPTIONAL: Names = {"id": ("id",), "is_impossible": ("is_impossible",)}  # of a question
TARGETS = ("target", "label", "tags", "answers")


@dataclass(frozen=True)
class TableFormat:
    """Which columns a task reads. Of several `layouts` the first that a table has is taken."""

    layouts: Sequence[Names]
    columns: Columns
    inputs_only: bool = False  # the target column may be missing
    multi_label: bool = False  # labels in a cell are separated by commas

    @classmethod
    def of(
        cls, task: Task, columns: Columns | None = None, labels: bool = False, inputs_only: bool = False
    ) -> TableFormat:
        """With `labels`, a text with its label is also a pair."""
        if task.name == "translate":
            layouts: list[Names] = [
                {"source": (source,), "target": (target,)}
                for source, target in (("source", "target"), (task.source, task.target))
            ]
        else:
            layouts = [(LAYOUTS if task.input == "text" else MEDIA_LAYOUTS)[task.name]]
        if labels:
            layouts.append({"source": LAYOUTS["classify"]["text"], "target": LAYOUTS["classify"]["label"]})
        columns = columns or {}
        if unknown := set(columns) - {*layouts[0], *OPTIONAL}:
            raise UsageError(
                f'columns: "{min(unknown)}" is not a column of the task "{task.name}"; '
                f"its columns are {', '.join(layouts[0])}",
                code="E_DATA_COLUMNS",
            )
        return cls(layouts, columns, inputs_only, task.multi_label)

    def required(self, layout: Names) -> list[str]:
        """Of a picture the text is a target, and a question is optional."""
        is_media = "file" in layout
        targets, optional = (*TARGETS, "text") if is_media else TARGETS, ("question",) if is_media else ()
        return [
            word for word in layout if word not in optional and not (self.inputs_only and word in targets)
        ]

    def names(self, layout: Names, word: str) -> tuple[str | int, ...]:
        return (self.columns[word],) if word in self.columns else layout[word]

    @property
    def description(self) -> str:
        layouts = [
            [f'"{self.names(each, word)[0]}"' for word in self.required(each)] for each in self.layouts
        ]
        names = dict.fromkeys(" and ".join(words) for words in layouts)
        return " (or ".join(names) + ")" * (len(names) - 1)

    def record(self, value: Mapping[str, Any]) -> Record:
        """The record of an object; {} if it has no layout."""
        inner = value.get("translation")
        value = inner if isinstance(inner, dict) else value
        for layout in self.layouts:
            words = {**layout, **OPTIONAL}
            fields = {word: _first(value, self.names(words, word)) for word in words}
            record = {word: field for word, field in fields.items() if field is not None}
            if all(word in record for word in self.required(layout)):
                return record
        return {}

    def places(self, header: Sequence[str]) -> dict[str, int] | None:
        """The column of each word, by the names in a header; None if they are not there."""
        names = [name.strip().casefold() for name in header]
        for layout in self.layouts:
            words = {**layout, **OPTIONAL}
            places = {
                word: names.index(str(name).casefold())
                for word in words
                for name in reversed(self.names(words, word))
                if str(name).casefold() in names
            }
            if "label" in places and "text" not in {*places, *self.columns} and len(names) > 1:
                other = int(places["label"] == 0)  # the first of the others
                if names[other] not in FILE:  # names of pictures are no texts
                    places["text"] = other
            if all(word in places for word in self.required(layout)):
                return places
        return None

    def cell(self, word: str, text: str) -> str | list[str]:
        if word == "label" and self.multi_label:
            return text.split(",") if text.strip() else []
        return text.split() if word in ("tokens", "tags") else text


def _first(value: Mapping[str, Any], names: Sequence[str | int]) -> Any:
    """The first field of these names; "a.b" is the field b of a."""
    for name in names:
        field: Any = value.get(str(name))
        if field is None and "." in str(name):
            field = value
            for part in str(name).split("."):
                field = field.get(part) if isinstance(field, dict) else None
        if field is not None:
            return field
    return None


def read_table(
    path: Path,
    suffix: str,
    report: DataReport,
    table: TableFormat,
    convert: Callable[[Record], tuple[str, str]],
) -> Iterator[RawRow]:
    """The rows that `convert` makes of the records; it raises `InvalidRow` for those to drop."""
    for number, record in records(path, suffix, report, table):
        try:
            sides = convert(record)
        except InvalidRow as error:
            report.add(error.kind, str(path), number, note=error.note)
        else:
            yield number, *sides


def records(path: Path, suffix: str, report: DataReport, table: TableFormat) -> Iterator[tuple[int, Record]]:
    """The numbered records of a table. A row without the required columns is reported as malformed."""
    if suffix in (".jsonl", ".parquet"):
        values = _parquet(path) if suffix == ".parquet" else _jsonl(path, report)
        for number, value in values:
            if record := table.record(value if isinstance(value, dict) else {}):
                yield number, record
            else:
                report.add("malformed", str(path), number, note=f"needs {table.description}")
        return
    rows = _excel(path) if suffix == ".xlsx" else _delimited(path, suffix, report)
    first = next(rows, None)
    if first is None:
        return
    places = table.places(first[1])
    exact = width = len(first[1])
    if places is not None:
        report.add("header", str(path), first[0])
    else:
        places = _positions(path, suffix, first, table)
        width = max(places.values()) + 1
        exact = 0 if table.columns or "target" in places else width  # a text may not contain a tab
        rows = chain([first], rows)
    for number, cells in rows:
        if len(cells) < width or (exact and len(cells) != exact):
            problem = "no tab" if suffix == ".tsv" and len(cells) == 1 else f"{len(cells)} of {width} columns"
            report.add("malformed", str(path), number, note=f"{problem}; write {', tab, '.join(places)}")
            continue
        yield number, {word: table.cell(word, cells[place]) for word, place in places.items()}


def _positions(path: Path, suffix: str, first: Cells, table: TableFormat) -> dict[str, int]:
    """The columns of a table without a header: by their numbers in the config; of a .tsv in order."""
    words, required = list(table.layouts[0]), table.required(table.layouts[0])
    numbers = {word: number - 1 for word, number in table.columns.items() if isinstance(number, int)}
    if numbers and all(word in numbers for word in required):
        return numbers
    header = {name.strip().casefold() for name in first[1]}
    of_files = "file" not in words and not header.isdisjoint(FILE) and not header.isdisjoint(LABEL)
    if suffix == ".tsv" and not table.columns and not of_files:
        count = max(len(required), min(len(words), len(first[1])))
        return {word: place for place, word in enumerate(words[:count])}
    names = ", ".join(f'"{name}"' for name in first[1][:8])
    raise UsageError(
        f"{path}, line {first[0]}: no columns {table.description}; the columns are {names}: name them, as in "
        f'columns = {{{", ".join(f"""{word} = "..." """.strip() for word in required)}}}, '
        f"or number them (from 1) if the first line is no header"
        + ("; files are read by a config with [input]" if of_files else ""),
        code="E_DATA_COLUMNS",
    )


# --- files


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
    with located(path), extra("hub"):
        library = import_module("pyarrow.parquet")
    number = 0
    try:
        batches = library.ParquetFile(path).iter_batches(ROWS_AT_ONCE)
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield number, row
    except (OSError, ValueError) as error:  # pyarrow's errors derive from these
        reason = str(error).split("\n")[0]
        raise UsageError(
            f"{path}, after row {number}: not a readable .parquet file ({reason})", code="E_DATA_DAMAGED"
        ) from None


def _excel(path: Path) -> Iterator[Cells]:
    """The rows of the first sheet that are not empty."""
    stamp(path)
    with located(path), extra("documents"):
        library = import_module("openpyxl")
    try:
        with ZipFile(path) as archive:  # a small .xlsx may unpack to any size
            size = sum(entry.file_size for entry in archive.infolist())
        if size > LONGEST_INPUT:
            raise UsageError(
                f"{path}: larger than {LONGEST_INPUT >> 20} MiB; save it as .csv", code="E_DATA_SIZE"
            )
        with closing(library.load_workbook(path, read_only=True, data_only=True)) as book:
            width = 0
            for number, row in enumerate(book.worksheets[0].iter_rows(values_only=True), start=1):
                cells = ["" if value is None else label_name(value) or str(value) for value in row]
                while cells and not cells[-1]:
                    cells.pop()
                width = width or len(cells)
                if cells:
                    yield number, cells + [""] * (width - len(cells))
    except UsageError:
        raise
    except (OSError, BadZipFile, ValueError, KeyError, IndexError, SyntaxError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise UsageError(f"{path}: not a readable .xlsx file ({reason})", code="E_DATA_DAMAGED") from None


def _delimited(path: Path, suffix: str, report: DataReport) -> Iterator[Cells]:
    stamp(path)
    delimiter, is_quoted = dialect(path, suffix)
    if not is_quoted:
        for number, line in enumerate(checked_lines(path, report), start=1):
            if line is not None and line.strip("\r "):
                yield number, line.split(delimiter)
        return
    if suffix == ".tsv":
        report.add("quoted", str(path), 1)
    lines = _CsvLines(checked_lines(path, report))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        number = lines.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except InvalidRow:  # already in the report
            continue
        except csv.Error as error:
            report.add("malformed", str(path), number, note=f"quotes are wrong ({error})")
            continue
        if cells:
            yield number, cells


@dataclass
class _CsvLines:
    """Lines for `csv.reader`, which starts again after an unusable one; a generator could not go on."""

    lines: Iterator[str | None]
    number: int = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.number += 1
        if line is None:
            raise InvalidRow("malformed")
        return f"{line}\n"


def dialect(path: Path, suffix: str) -> tuple[str, bool]:
    """The delimiter, and whether fields may be quoted.

    A .csv is quoted; its delimiter is the one of , ; and tab that is most frequent in its first line. A .tsv
    is quoted if quotes that begin a field always are those of a .csv: of all fields, or of those alone that
    contain a tab, a newline or a quote. A text may well begin with a quotation.
    """
    beginning = ""
    with suppress(UsageError), open_binary(path) as file:  # a damaged file: the reader names the place
        beginning = file.read(SNIFFED).decode("utf-8", "replace").removeprefix("\ufeff")
    if suffix == ".csv":
        first = beginning.split("\n")[0]
        return max(",;\t", key=first.count), True
    if not beginning.startswith('"') and not any(mark in beginning for mark in ('\t"', '\n"')):
        return "\t", False
    whole = beginning.rpartition("\n")[0] if len(beginning) >= SNIFFED else beginning
    if whole.count('"') % 2:  # the end of the sample is within a field
        whole = whole.rpartition('\n"')[0]
    try:
        rows = list(csv.reader(io.StringIO(whole, newline="\n"), delimiter="\t", strict=True))
    except csv.Error:
        return "\t", False
    fields = sum(len(row) for row in rows)
    special = sum(any(mark in cell for mark in '\t\n"') for row in rows for cell in row)
    inner = sum(cell.count('"') for row in rows for cell in row)
    outer = whole.count('"') - 2 * inner  # quotes around fields
    return "\t", outer > 0 and outer in (2 * fields, 2 * special)
