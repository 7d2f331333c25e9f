"""Pairs of sentences: two line-aligned files, TSV, JSONL, translators' formats, the built-in phrasebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from regard.config import Task
from regard.data.files import checked_lines, stamp
from regard.data.findings import Findings
from regard.data.formats import FORMATS, kind, read_pairs
from regard.data.rows import Row, Unfit
from regard.data.rows.labels import has_header, labelled, read_columns
from regard.data.rows.tables import Object, clean, read_objects
from regard.errors import UsageError

PHRASEBOOK_SIZE = {"train": 50_000, "valid": 500, "test": 1000}
WHOLE = (".tsv", ".jsonl", ".tsv.gz", ".jsonl.gz", ".parquet", *FORMATS)  # one file with both sides

# A pair is absurd if one side is this many times longer, in UTF-8 bytes, after a mercy for short ones:
# "Yes." may well be a sentence of thirty letters elsewhere.
RATIO, MERCY = 8, 16


def read_one(path: Path, task: Task, findings: Findings, labels: bool = False) -> Iterator[Row]:
    """One file with both sides; with `labels`, these may also be a text and its label."""
    match kind(path):
        case ".tsv":
            stamp(path)
            if labels and has_header(path):
                return read_columns(path, False, findings)
            return split_columns(checked_lines(path, findings), str(path), findings)
        case ".jsonl" | ".parquet":
            return read_objects(path, findings, lambda found: sides(found, task, labels))
        case suffix if suffix in FORMATS:
            return read_pairs(path, task)
    stamp(path)
    raise UsageError(
        f"{path}: one file must be one of {', '.join(WHOLE)}; "
        'for two files write ["file.source", "file.target"]'
    )


def read_two(source: Path, target: Path, findings: Findings) -> Iterator[Row]:
    """Two line-aligned files; never a shifted pair, so unequal counts are an error."""
    end = object()
    both = zip_longest(checked_lines(source, findings), checked_lines(target, findings), fillvalue=end)
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


def split_columns(lines: Iterable[str | None], name: str, findings: Findings) -> Iterator[Row]:
    """Source, tab, target; further columns (a score, a licence) are not looked at."""
    for number, line in enumerate(lines, start=1):
        if line is None or not line.strip("\r "):
            continue  # of a line with a tab both sides are empty, which is told like others
        columns = line.split("\t", 2)
        if len(columns) > 1:
            yield number, columns[0], columns[1]
        else:
            findings.add("malformed", name, number, note="no tab; write source, tab, target")


def sides(found: Object, task: Task, labels: bool) -> tuple[str, str]:
    """ "source" and "target", or the two language codes, or these inside "translation"."""
    inner = found.get("translation", found)
    for names in (("source", "target"), (task.source, task.target)):
        left, right = (inner.get(name) if isinstance(inner, dict) else None for name in names)
        if isinstance(left, str) and isinstance(right, str):
            return clean(left), clean(right)
    if labels:
        return labelled(found, many=False)
    wanted = f'"source" and "target" (or "{task.source}" and "{task.target}")'
    raise Unfit("malformed", f"needs the strings {wanted}")


def learnable(rows: Iterator[Row], file: str, findings: Findings, alike: bool) -> Iterator[Row]:
    """Without what nothing is learned from; `alike`: two languages say the same at about the same length."""
    for number, source, target in rows:
        if not source.strip() or not target.strip():
            findings.add("empty", file, number)
        elif alike and is_absurd(source, target):
            findings.add("ratio", file, number, note=f"{len(source)} and {len(target)} characters")
        else:
            yield number, source, target


def is_absurd(source: str, target: str) -> bool:
    one, two = len(source), len(target)
    if one + MERCY <= 2 * (two + MERCY) and two + MERCY <= 2 * (one + MERCY):
        return False  # a character has four bytes at most, so this is no pair to count the bytes of
    one, two = len(source.encode()) + MERCY, len(target.encode()) + MERCY
    return one > RATIO * two or two > RATIO * one


def read_phrasebook(name: str, task: Task, split: str) -> Iterator[Row]:
    """`phrasebook` or `phrasebook:250000`; English and German, in either direction."""
    from regard.data.phrasebook import phrases  # its words are for those who ask for them

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
