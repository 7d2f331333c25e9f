"""Documents of plain text, and pairs of sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Literal

from regard.config import Task
from regard.data.files import checked_lines, stamp
from regard.data.formats import FORMATS, read_pairs
from regard.data.readers import (
    CONTINUED,
    MORE,
    TABLES,
    InvalidRow,
    Object,
    RawRow,
    objects,
    read_objects,
    string_field,
)
from regard.data.readers.annotated import has_header, label_object, read_label_columns
from regard.data.report import DataReport
from regard.errors import UsageError
from regard.inputs.text.tokenizer import replace_surrogates

LONGEST_PART = 1 << 16  # characters of a row; a longer document is several rows

PHRASEBOOK_SIZE = {"train": 50_000, "valid": 500, "test": 1000}
ONE_FILE = (".tsv", ".jsonl", ".tsv.gz", ".jsonl.gz", ".parquet", *FORMATS)  # both sides in one file

# A pair is dropped if one side is RATIO times longer than the other. Both lengths are in UTF-8 bytes plus
# ALLOWANCE, because a short sentence may well have a translation of thirty letters.
RATIO, ALLOWANCE = 8, 16

Documents = Literal["file", "paragraph", "line"]
Line = tuple[int, str]


# --- documents


def read_documents(path: Path, suffix: str, documents: Documents, report: DataReport) -> Iterator[RawRow]:
    """The "text" of each object of a table; else the whole file, its paragraphs or its lines.

    Unusable lines are dropped from their document. Otherwise the text is unchanged, without the end of the
    last line and, for paragraphs, without blank lines.
    """
    if suffix in (".json", *FORMATS):
        raise UsageError(f'{path}: not plain text; use a .txt, or a .jsonl or .parquet with "text"')
    is_table = suffix in TABLES
    for document in _objects(path, suffix, report) if is_table else _split(path, documents, report):
        yield from _without_empty(document_rows(document), str(path), report)


def _objects(path: Path, suffix: str, report: DataReport) -> Iterator[Iterable[Line]]:
    for number, value in objects(path, suffix, report):
        try:
            yield [(number, string_field(value, "text"))]
        except InvalidRow as error:
            report.add(error.kind, str(path), number, note=error.note)


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

    It is split before white space if there is any. The number of a row is the line of its first word.
    """
    parts: list[str] = []
    size = first = 0
    continued = ""
    for number, line in lines:
        first = first or number
        parts.append(f"\n{line}" if parts else line)
        size += len(parts[-1])
        if size > LONGEST_PART:
            text = "".join(parts)
            while len(text) > LONGEST_PART:
                end = _split_point(text)
                yield first, text[:end], continued + MORE
                text, first, continued = text[end:], number, CONTINUED
            parts, size = [text], len(text)
    if parts:
        yield first, "".join(parts), continued


def _split_point(text: str) -> int:
    """The start of the last white space within LONGEST_PART characters; LONGEST_PART if there is none."""
    end = LONGEST_PART
    if not text[end].isspace():
        while end and not text[end - 1].isspace():
            end -= 1
    while end and text[end - 1].isspace():
        end -= 1
    return end or LONGEST_PART


def _without_empty(rows: Iterator[RawRow], file: str, report: DataReport) -> Iterator[RawRow]:
    """Drop documents that are only white space."""
    for number, text, target in rows:
        if target or text.strip():
            yield number, text, target
        else:
            report.add("empty", file, number)


# --- pairs


def read_pair_file(
    path: Path, suffix: str, task: Task, report: DataReport, labels: bool = False
) -> Iterator[RawRow]:
    """One file with both sides; with `labels` also a text and its label."""
    match suffix:
        case ".tsv":
            stamp(path)
            if labels and has_header(path):
                return read_label_columns(path, False, report)
            return split_pairs(checked_lines(path, report), str(path), report)
        case ".jsonl" | ".parquet":
            return read_objects(path, suffix, report, lambda value: pair_object(value, task, labels))
        case _ if suffix in FORMATS:
            return read_pairs(path, task, suffix)
    stamp(path)
    raise UsageError(
        f"{path}: a single file must be one of {', '.join(ONE_FILE)}; "
        'for two files write ["file.source", "file.target"]'
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
                f"line {number} has no counterpart; the files must be aligned line by line"
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


def pair_object(value: Object, task: Task, labels: bool) -> tuple[str, str]:
    """ "source" and "target", or the two language codes, or these inside "translation"."""
    inner = value.get("translation", value)
    for names in (("source", "target"), (task.source, task.target)):
        left, right = (inner.get(name) if isinstance(inner, dict) else None for name in names)
        if isinstance(left, str) and isinstance(right, str):
            return replace_surrogates(left), replace_surrogates(right)
    if labels:
        return label_object(value, many=False)
    names_needed = f'"source" and "target" (or "{task.source}" and "{task.target}")'
    raise InvalidRow("malformed", f"needs the strings {names_needed}")


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
        raise UsageError(f'"{name}": write phrasebook:N with a number of pairs')
    if (task.source, task.target) not in (("en", "de"), ("de", "en")):
        raise UsageError(
            f"the phrasebook is English and German: set task.source and task.target to en and de, "
            f'not "{task.source}" and "{task.target}"'
        )
    for number, phrase in enumerate(phrases(split, int(size or PHRASEBOOK_SIZE[split])), start=1):
        if task.source == "en":
            yield number, phrase.english, phrase.german
        else:
            yield number, phrase.german, phrase.english
