"""Documents of plain text, and pairs of sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, zip_longest
from pathlib import Path
from typing import Literal

from regard.config import Task
from regard.data.files import checked_lines, refuse_binary, stamp
from regard.data.formats import FORMATS, read_pairs
from regard.data.readers import CONTINUED, MORE, InvalidRow, RawRow, label_name, string_field
from regard.data.readers.tables import TABLES, Record, TableFormat, read_table
from regard.data.report import DataReport
from regard.errors import UsageError
from regard.inputs.text.tokenizer import replace_surrogates

LONGEST_PART = 1 << 16  # characters of a row; a longer document is several rows
BEFORE_SPACE = re.compile(r".*\S(?=\s)", re.DOTALL)  # up to the last white space
OPENING = 256  # characters of the next row that determine its first token

PHRASEBOOK_SIZE = {"train": 50_000, "valid": 500, "test": 1000}
# Both sides in one file.
ONE_FILE = (".tsv", ".csv", ".jsonl", ".tsv.gz", ".csv.gz", ".jsonl.gz", ".xlsx", ".parquet", *FORMATS)

# A pair is dropped if one side is RATIO times longer than the other. Both lengths are in UTF-8 bytes plus
# ALLOWANCE, because a short sentence may well have a translation of thirty letters.
RATIO, ALLOWANCE = 8, 16

Documents = Literal["file", "paragraph", "line"]
Line = tuple[int, str]


# --- documents


def read_documents(
    path: Path, suffix: str, report: DataReport, documents: Documents, table: TableFormat
) -> Iterator[RawRow]:
    """The "text" of each row of a table; else the whole file, its paragraphs or its lines.

    Unusable lines are dropped from their document. Otherwise the text is unchanged, without the end of the
    last line and, for paragraphs, without blank lines.
    """
    refuse_binary(path, suffix=suffix)
    if suffix in (".json", *FORMATS):
        raise UsageError(
            f'{path}: not plain text; use a .txt, or a table (.jsonl, .csv, .parquet) with a column "text"',
            code="E_DATA_TYPE",
        )
    if suffix in (".tsv", *TABLES):
        rows = read_table(path, suffix, report, table, lambda record: (string_field(record, "text"), ""))
        texts: Iterator[Iterable[Line]] = ([(number, text)] for number, text, _ in rows)
    else:
        texts = _split(path, documents, report)
    for number, text, target in chain.from_iterable(map(document_rows, texts)):
        if target or text.strip():
            yield number, text, target
        else:
            report.add("empty", str(path), number)


def _split(path: Path, documents: Documents, report: DataReport) -> Iterator[Iterable[Line]]:
    numbered = enumerate(checked_lines(path, report), start=1)
    lines = ((number, line) for number, line in numbered if line is not None)
    match documents:
        case "file":
            yield lines
        case "paragraph":
            groups = groupby(lines, lambda line: not line[1].strip())
            yield from (group for blank, group in groups if not blank)
        case "line":
            yield from ([line] for line in lines)


def document_rows(lines: Iterable[Line]) -> Iterator[RawRow]:
    """Split a document into rows of at most LONGEST_PART characters; joined, they are the document.

    It is split before white space if there is any. The number of a row is the line of its first word. The
    target of a row that the next one continues has the beginning of the next one.
    """
    continued, row = "", None
    for number, text in _parts(lines):
        if row is not None:
            yield *row, f"{continued}{MORE}{text[:OPENING]}"
            continued = CONTINUED
        row = number, text
    if row is not None:
        yield *row, continued


def _parts(lines: Iterable[Line]) -> Iterator[Line]:
    parts: list[str] = []
    size = first = 0
    for number, line in lines:
        first = first or number
        parts.append(f"\n{line}" if parts else line)
        size += len(parts[-1])
        if size > LONGEST_PART:
            text = "".join(parts)
            while len(text) > LONGEST_PART:
                spaces = BEFORE_SPACE.match(text, 0, LONGEST_PART + 1)
                end = spaces.end() if spaces else LONGEST_PART
                yield first, text[:end]
                text, first = text[end:], number
            parts, size = [text], len(text)
    if parts:
        yield first, "".join(parts)


# --- pairs


def read_pair_file(
    path: Path, suffix: str, report: DataReport, task: Task, table: TableFormat
) -> Iterator[RawRow]:
    """One file with both sides."""
    stamp(path)
    if suffix in (".tsv", *TABLES):
        labels = len(table.layouts) > 2
        return read_table(path, suffix, report, table, lambda record: pair_record(record, labels))
    if suffix in FORMATS:
        return read_pairs(path, task, suffix)
    refuse_binary(path, suffix=suffix)
    raise UsageError(
        f"{path}: a single file must be one of {', '.join(ONE_FILE)}; "
        'for two files write ["file.source", "file.target"]',
        code="E_DATA_TYPE",
    )


def read_aligned(source: Path, target: Path, report: DataReport) -> Iterator[RawRow]:
    """Two line-aligned files. Different numbers of lines are an error, so that pairs never shift."""
    end = object()
    both = zip_longest(checked_lines(source, report), checked_lines(target, report), fillvalue=end)
    for number, (left, right) in enumerate(both, start=1):
        if left is end or right is end:
            short, long = (source, target) if left is end else (target, source)
            total = number + sum(1 for _ in both)
            raise UsageError(
                f"{short} has {number - 1} lines but {long} has {total}: "
                f"line {number} has no counterpart; the files must be aligned line by line",
                code="E_DATA_ALIGNMENT",
            )
        if isinstance(left, str) and isinstance(right, str):
            yield number, left, right


def split_pairs(lines: Iterable[str | None], name: str, report: DataReport) -> Iterator[RawRow]:
    """Source, tab, target; further columns (a score, a licence) are ignored."""
    for number, line in enumerate(lines, start=1):
        if line is None or not line.strip("\r "):
            continue
        columns = line.split("\t", 2)
        if len(columns) > 1:
            yield number, columns[0], columns[1]
        else:
            report.add("malformed", name, number, note="no tab; write source, tab, target")


def pair_record(record: Record, labels: bool) -> tuple[str, str]:
    """Source and target; with `labels` a target may be a number."""
    target = record.get("target", "")
    if labels and not isinstance(target, str):
        target = label_name(target) or ""
    if not isinstance(target, str):
        raise InvalidRow("malformed", 'needs the strings "source" and "target"')
    return string_field(record, "source"), replace_surrogates(target)


def training_pairs(
    rows: Iterator[RawRow], file: str, report: DataReport, check_ratio: bool
) -> Iterator[RawRow]:
    """Drop pairs with an empty side and, with `check_ratio`, pairs of very different lengths."""
    for number, source, target in rows:
        if not source.strip() or not target.strip():
            report.add("empty", file, number)
        elif check_ratio and is_unbalanced(source, target):
            report.add("ratio", file, number, note=f"{len(source)} and {len(target)} characters")
        else:
            yield number, source, target


def is_unbalanced(source: str, target: str) -> bool:
    one, two = len(source) + ALLOWANCE, len(target) + ALLOWANCE
    if one <= 2 * two and two <= 2 * one:
        return False  # a character has at most four bytes, so the ratio of bytes is at most 8
    one, two = len(source.encode()) + ALLOWANCE, len(target.encode()) + ALLOWANCE
    return one > RATIO * two or two > RATIO * one


def read_phrasebook(name: str, task: Task, split: str) -> Iterator[RawRow]:
    """`phrasebook` or `phrasebook:250000`; English and German, in either direction."""
    from regard.data.phrasebook import phrases  # imported only if it is used

    _, _, size = name.partition(":")
    if size and not size.isdecimal():
        raise UsageError(f'"{name}": write phrasebook:N with a number of pairs', code="E_DATA_CORPUS")
    if (task.source, task.target) not in (("en", "de"), ("de", "en")):
        raise UsageError(
            f"the phrasebook is English and German: set task.source and task.target to en and de, "
            f'not "{task.source}" and "{task.target}"',
            code="E_DATA_LANGUAGE",
        )
    for number, phrase in enumerate(phrases(split, int(size or PHRASEBOOK_SIZE[split])), start=1):
        if task.source == "en":
            yield number, phrase.english, phrase.german
        else:
            yield number, phrase.german, phrase.english
