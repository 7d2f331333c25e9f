"""Files of translators' tools: .po, .tmx and .xliff to learn from, these and .srt to translate.

A format is a class with `units` to fill and `content` to write, and a reader of pairs; it is named here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.config import Task
from regard.data.formats.document import Document, Pair, Unit, both
from regard.errors import UsageError

SUFFIXES = (".po", ".pot", ".tmx", ".xliff", ".xlf", ".srt")
FORMATS: tuple[str, ...] = SUFFIXES + tuple(f"{suffix}.gz" for suffix in SUFFIXES)


def kind(path: Path) -> str:
    """The suffix that says the format, without .gz."""
    return Path(path.name.casefold().removesuffix(".gz")).suffix


def read_pairs(path: Path, task: Task) -> Iterator[tuple[int, str, str]]:
    """(line, source, target) of every translated entry that nobody marked fuzzy.

    Of a .po the source is the msgid; .tmx and .xliff name their languages, "en" is also "en-US".
    """
    match kind(path):
        case ".po" | ".pot":
            from regard.data.formats.po import read_po

            return both(read_po(path, task.target))
        case ".tmx":
            from regard.data.formats.tmx import read_tmx

            return read_tmx(path, task)
        case ".xliff" | ".xlf":
            from regard.data.formats.xliff import read_xliff

            return read_xliff(path, task)
        case ".srt":
            raise UsageError(
                f"{path}: subtitles hold one language; to learn from them make a .tsv of two files"
            )
    raise UsageError(f"{path}: not one of {', '.join(SUFFIXES)}")


def open_document(path: Path, task: Task) -> Document:
    """A file to fill, for a model of these languages."""
    match kind(path):
        case ".po" | ".pot":
            from regard.data.formats.po import Catalogue

            return Catalogue(path, task.target)
        case ".tmx":
            from regard.data.formats.tmx import Memory

            return Memory(path, task)
        case ".xliff" | ".xlf":
            from regard.data.formats.xliff import Interchange

            return Interchange(path, task)
        case ".srt":
            from regard.data.formats.subtitles import Subtitles

            return Subtitles(path)
    raise UsageError(f"{path}: not one of {', '.join(SUFFIXES)}")


__all__ = ["FORMATS", "Document", "Pair", "Unit", "open_document", "read_pairs"]
