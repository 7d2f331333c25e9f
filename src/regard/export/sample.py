"""What an export is checked with: texts that the model knows how to read, as pieces."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.config import load_config
from regard.data.corpora import corpus_specs, read_rows
from regard.data.files import lines
from regard.data.readers import RawRow
from regard.data.report import DataReport
from regard.errors import RegardError, UsageError
from regard.storage import Folder
from regard.storage.folder import run_of

ENOUGH = 200  # texts
LONGEST_TEXT = 2000  # characters of a document
LONGEST_MADE_UP = 24  # pieces
ADDED = "pieces drawn by chance"
Pieces = list[int]


@dataclass(frozen=True)
class Text:
    """A text to read, and the one that should come of it where that is known; without specials."""

    source: Pieces
    target: Pieces
    context: Pieces | None = None  # what a question is asked about


@dataclass(frozen=True)
class Texts:
    texts: list[Text]
    origin: str  # where they come from, to a person


def sample_for(folder: Folder, given: Path | None) -> Texts:
    """The file that a person gave, else what the run validates with, else the phrasebook, else chance.

    Too few texts are made up to `ENOUGH` with pieces drawn by chance.
    """
    known = known_texts(folder, given)
    if known is None:
        return Texts(made_up(folder, ENOUGH), ADDED)
    more = made_up(folder, ENOUGH - len(known.texts))
    return Texts(known.texts + more, f"{known.origin} and {ADDED}" if more else known.origin)


def known_texts(folder: Folder, given: Path | None) -> Texts | None:
    """Real texts for the model; None where there are none."""
    origins: list[tuple[str, Callable[[], Iterable[RawRow]]]] = [
        ("the run's validation texts", lambda: validation(folder)),
        ("the phrasebook", lambda: phrasebook(folder)),
    ]
    if given is not None:
        # its name alone: a model may be passed on, and a path tells of the machine
        origins = [(given.name, lambda: ((number, line, "") for number, line in enumerate(lines(given), 1)))]
    for origin, read in origins:
        try:
            rows = islice((row for row in read() if row[1].strip()), ENOUGH)
            found = [text_of(folder, row) for row in rows]
        except RegardError:
            if given is not None:
                raise
            continue
        if found:
            return Texts(found, origin)
    if given is not None:
        raise UsageError(f"{given} holds no text")
    return None


def validation(folder: Folder) -> Iterable[RawRow]:
    home = run_of(folder.path) or folder.path
    if not (home / "run.toml").is_file():
        return ()
    config = load_config(home / "run.toml")
    if config.data.valid is None:
        return ()
    corpora = corpus_specs(config.data.valid, config.task, config.data.documents)
    return (row for each in corpora for row in read_rows(each, config.task, "valid", DataReport()))


def phrasebook(folder: Folder) -> Iterable[RawRow]:
    """Of languages that it does not have, reading it is an error."""
    return (
        read_rows("phrasebook", folder.task, "valid", DataReport()) if folder.task.name == "translate" else ()
    )


def text_of(folder: Folder, row: RawRow) -> Text:
    _, source, target = row
    room = folder.config.max_length - 3  # beside the specials of a question and its context
    question, newline, context = source[:LONGEST_TEXT].partition("\n")
    if folder.task.name == "answer" and newline:
        asked = folder.source.encode(question)[: room // 2]
        return Text(asked, [], folder.source.encode(context)[: room - len(asked)])
    read = folder.source.encode(source[:LONGEST_TEXT].strip())[:room]
    return Text(read, folder.target.encode(target)[:room] if folder.task.name == "translate" else [])


def made_up(folder: Folder, count: int) -> list[Text]:
    dice, tokenizer = random.Random(0), folder.source
    never = {*tokenizer.suppressed, *tokenizer.sentinels, tokenizer.end}
    pieces = [number for number in range(len(tokenizer)) if number not in never]
    longest = min(LONGEST_MADE_UP, folder.config.max_length - 3)
    return [Text(dice.choices(pieces, k=dice.randint(1, max(1, longest))), []) for _ in range(count)]
