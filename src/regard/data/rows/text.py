"""Documents for the tasks that read running text: plain text files, and tables with a "text"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Literal

from regard.data.files import checked_lines
from regard.data.findings import Findings
from regard.data.formats import FORMATS, kind
from regard.data.rows import CONTINUES, Row, Unfit
from regard.data.rows.tables import TABLES, objects, text_of
from regard.errors import UsageError

LONGEST_PART = 1 << 16  # characters of a row; a longer document is several

Documents = Literal["file", "paragraph", "line"]
Line = tuple[int, str]


def read_text(path: Path, documents: Documents, findings: Findings) -> Iterator[Row]:
    """The documents of a file: of a table its objects, else all of it, its paragraphs or its lines.

    A line that cannot be used is left out of its document. The text is otherwise what stands there, without
    the end of the last line and, around paragraphs, without the blank lines.
    """
    if kind(path) in (".json", *FORMATS):
        raise UsageError(f'{path}: not plain text; take a .txt, or a .jsonl or .parquet with "text"')
    for document in _texts(path, findings) if kind(path) in TABLES else _cut(path, documents, findings):
        yield from _said(parts_of(document), str(path), findings)


def _texts(path: Path, findings: Findings) -> Iterator[Iterable[Line]]:
    for number, found in objects(path, findings):
        try:
            yield [(number, text_of(found, "text"))]
        except Unfit as wrong:
            findings.add(wrong.kind, str(path), number, note=wrong.note)


def _cut(path: Path, documents: Documents, findings: Findings) -> Iterator[Iterable[Line]]:
    numbered = enumerate(checked_lines(path, findings), start=1)
    lines = ((number, line) for number, line in numbered if line is not None)
    match documents:
        case "file":
            yield lines
        case "paragraph":
            groups = groupby(lines, lambda line: not line[1].strip())
            yield from (group for blank, group in groups if not blank)
        case "line":
            yield from ([line] for line in lines)


def parts_of(lines: Iterable[Line]) -> Iterator[Row]:
    """A document as rows of some length; joined they are the document.

    It is cut before white space where there is any. The number of a part is the line of its first word.
    """
    pieces: list[str] = []
    size = first = 0
    for number, line in lines:
        first = first or number
        pieces.append(f"\n{line}" if pieces else line)
        size += len(pieces[-1])
        if size > LONGEST_PART:
            text = "".join(pieces)
            while len(text) > LONGEST_PART:
                cut = where_to_cut(text)
                yield first, text[:cut], CONTINUES
                text, first = text[cut:], number
            pieces, size = [text], len(text)
    if pieces:
        yield first, "".join(pieces), ""


def where_to_cut(text: str) -> int:
    """Where the last white space within the longest part begins; what is written without any is cut hard."""
    end = LONGEST_PART
    if not text[end].isspace():
        while end and not text[end - 1].isspace():
            end -= 1
    while end and text[end - 1].isspace():
        end -= 1
    return end or LONGEST_PART


def _said(rows: Iterator[Row], file: str, findings: Findings) -> Iterator[Row]:
    """Without a document of nothing but white space."""
    goes_on = False
    for number, text, target in rows:
        if goes_on or target == CONTINUES or text.strip():
            yield number, text, target
        else:
            findings.add("empty", file, number)
        goes_on = target == CONTINUES
