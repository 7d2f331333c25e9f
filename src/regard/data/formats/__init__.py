"""Files of translation tools: .po, .tmx and .xliff to train on, these and .srt to translate.

A format is a class with `units` to translate and `content` to write, and a function that reads pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.config import Task
from regard.data.files import format_suffix
from regard.data.formats.document import Document, Pair, TranslationUnit, nonempty
from regard.errors import UsageError, extra

SUFFIXES = (".po", ".pot", ".tmx", ".xliff", ".xlf", ".srt")
FORMATS: tuple[str, ...] = SUFFIXES + tuple(f"{suffix}.gz" for suffix in SUFFIXES)


@extra("documents")
def read_pairs(path: Path, task: Task, suffix: str = "") -> Iterator[Pair]:
    """(line, source, target) of every translated entry that is not marked fuzzy.

    The source of a .po entry is its msgid; .tmx and .xliff name their languages, and "en" matches "en-US".
    """
    match suffix or format_suffix(path):
        case ".po" | ".pot":
            from regard.data.formats.po import read_po

            return nonempty(read_po(path, task.target))
        case ".tmx":
            from regard.data.formats.tmx import read_tmx

            return read_tmx(path, task)
        case ".xliff" | ".xlf":
            from regard.data.formats.xliff import read_xliff

            return read_xliff(path, task)
        case ".srt":
            raise UsageError(f"{path}: subtitles have one language; to train on two of them make a .tsv")
    raise UsageError(f"{path}: not one of {', '.join(SUFFIXES)}")


@extra("documents")
def open_document(path: Path, task: Task) -> Document:
    """Open a file to translate with a model of these languages."""
    match format_suffix(path):
        case ".po" | ".pot":
            from regard.data.formats.po import PoDocument

            return PoDocument(path, task.target)
        case ".tmx":
            from regard.data.formats.tmx import TmxDocument

            return TmxDocument(path, task)
        case ".xliff" | ".xlf":
            from regard.data.formats.xliff import XliffDocument

            return XliffDocument(path, task)
        case ".srt":
            from regard.data.formats.subtitles import SrtDocument

            return SrtDocument(path)
    raise UsageError(f"{path}: not one of {', '.join(SUFFIXES)}")


__all__ = ["FORMATS", "Document", "Pair", "TranslationUnit", "open_document", "read_pairs"]
