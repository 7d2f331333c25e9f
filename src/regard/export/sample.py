"""Texts for checks and calibration, as token ids."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.data.corpora import corpus_specs, read_rows
from regard.data.files import lines
from regard.data.readers import RawRow
from regard.data.report import DataReport
from regard.errors import RegardError, UsageError
from regard.evaluation import run_config
from regard.storage import Folder

ENOUGH = 200  # texts
MAX_CHARACTERS = 2000  # of a document
MAX_RANDOM = 24  # tokens
RANDOM = "random tokens"
Ids = list[int]


@dataclass(frozen=True)
class EncodedText:
    """A text, and its reference output if there is one; without special tokens."""

    source: Ids
    target: Ids
    context: Ids | None = None  # of a question


@dataclass(frozen=True)
class SampleTexts:
    texts: list[EncodedText]
    origin: str  # for people


def sample_for(folder: Folder, path: Path | None) -> SampleTexts:
    """The texts of a file, else the run's validation texts, else the phrasebook, else random tokens.

    Random texts fill the sample up to `ENOUGH`.
    """
    sample = real_texts(folder, path)
    if sample is None:
        return SampleTexts(random_texts(folder, ENOUGH), RANDOM)
    more = random_texts(folder, ENOUGH - len(sample.texts))
    return SampleTexts(sample.texts + more, f"{sample.origin} and {RANDOM}" if more else sample.origin)


def real_texts(folder: Folder, path: Path | None) -> SampleTexts | None:
    """As `sample_for`, without random texts; None if there are no others."""
    origins: list[tuple[str, Callable[[], Iterable[RawRow]]]] = [
        ("the run's validation texts", lambda: validation(folder)),
        ("the phrasebook", lambda: phrasebook(folder)),
    ]
    if path is not None:
        # its name only: a model may be passed on, and a path reveals the machine
        origins = [(path.name, lambda: ((number, line, "") for number, line in enumerate(lines(path), 1)))]
    for origin, read in origins:
        try:
            rows = islice((row for row in read() if row[1].strip()), ENOUGH)
            texts = [encode(folder, row) for row in rows]
        except RegardError:
            if path is not None:
                raise
            continue
        if texts:
            return SampleTexts(texts, origin)
    if path is not None:
        raise UsageError(f"{path} holds no text", code="E_EXPORT_TEXTS")
    return None


def validation(folder: Folder) -> Iterable[RawRow]:
    config = run_config(folder.path)
    if config is None or config.data.valid is None:
        return ()
    corpora = corpus_specs(config.data.valid, config.task, config.data)
    return (row for each in corpora for row in read_rows(each, config.task, "valid", DataReport()))


def phrasebook(folder: Folder) -> Iterable[RawRow]:
    """A RegardError if it lacks the languages."""
    if folder.task.name != "translate":
        return ()
    return read_rows("phrasebook", folder.task, "valid", DataReport())


def encode(folder: Folder, row: RawRow) -> EncodedText:
    _, source, target = row
    limit = folder.config.max_length - 3  # special tokens of a question and its context
    question, newline, context = source[:MAX_CHARACTERS].partition("\n")
    if folder.task.name == "answer" and newline:
        ids = folder.source.encode(question)[: limit // 2]
        return EncodedText(ids, [], folder.source.encode(context)[: limit - len(ids)])
    ids = folder.source.encode(source[:MAX_CHARACTERS].strip())[:limit]
    return EncodedText(ids, folder.target.encode(target)[:limit] if folder.task.name == "translate" else [])


def random_texts(folder: Folder, count: int) -> list[EncodedText]:
    rng, tokenizer = random.Random(0), folder.source
    special = {*tokenizer.suppressed, *tokenizer.sentinels, tokenizer.end}
    ids = [number for number in range(len(tokenizer)) if number not in special]
    longest = min(MAX_RANDOM, folder.config.max_length - 3)
    return [EncodedText(rng.choices(ids, k=rng.randint(1, max(1, longest))), []) for _ in range(count)]
