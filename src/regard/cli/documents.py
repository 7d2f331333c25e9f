"""`regard translate messages.po`: translators' files filled, all else in them kept."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import ReaderGone, messages, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.config import Decode
    from regard.tasks import Split, Translator
    from regard.tasks.lines import TooLong

Everything = Annotated[
    bool, typer.Option("--all", help="In a .po, .tmx or .xliff: also what is translated already.")
]
Fuzzy = Annotated[
    bool, typer.Option("--fuzzy", help="In a .po or .xliff: mark what is new, for a person to review.")
]


def document_among(names: list[str] | None, options: dict[str, bool], asked: bool) -> Path | None:
    """The document that a command is about, if it is about one.

    `options` says which were given that cannot go with a document, `asked` whether one was given that must.
    """
    from regard.data.formats import FORMATS

    found = [Path(name) for name in names or [] if name.casefold().endswith(FORMATS) and Path(name).exists()]
    if not found and asked:
        raise UsageError("--all and --fuzzy are for documents: a .po, .tmx or .xliff file")
    if not found:
        return None
    if len(names or []) > 1:
        raise UsageError(f"{found[0]} is translated as a document: give one such file at a time")
    if wrong := [name for name, given in options.items() if given]:
        raise UsageError(f"{', '.join(wrong)}: for lines of text, not for a document such as {found[0]}")
    return found[0]


def fill_file(
    path: Path,
    translator: Translator,
    options: Decode,
    split: Split,
    too_long: TooLong,
    everything: bool,
    fuzzy: bool,
    output: Path | None,
) -> None:
    """Translate what a file has not translated; to `output`, or to stdout."""
    from regard.data.formats import open_document
    from regard.storage import write_atomically
    from regard.tasks.documents import fill_document

    document = open_document(path, translator.folder.task)
    if fuzzy and not document.reviewable:
        raise UsageError(f"--fuzzy: {path} has no mark for what a person shall review; a .po or .xliff has")
    if too_long == "skip":
        raise UsageError("--too-long skip: for lines of text; a document's texts are cut, or it is an error")
    cut = 0

    def translate(lines: Sequence[str]) -> list[str]:
        nonlocal cut
        found = translator.translate_lines(lines, options, split=split, too_long=too_long)
        cut += sum(each.broken for each in found)
        return [each.text for each in found]

    with messages().status("translating"):
        outcome = fill_document(document, translate, everything, fuzzy)
    content = document.content()
    if output is None:
        write_out(content)
    else:
        write_atomically(output, gzip.compress(content, mtime=0) if output.suffix == ".gz" else content)
    left = f", {outcome.left:,} left because placeholders were lost" if outcome.left else ""
    where = f"; wrote {output}" if output is not None else ""
    say(f"{path}: {outcome.filled:,} translated{left}, {outcome.kept:,} not touched{where}")
    if cut:
        say(f"{cut:,} of its texts cut between words, because they are too long for the model (--too-long)")


def write_out(content: bytes) -> None:
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGone from None
