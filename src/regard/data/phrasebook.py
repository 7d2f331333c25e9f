"""A built-in corpus: English-German sentence pairs, written by the grammar in `recipes/phrasebook`.

Every pair is a translation; one English sentence has exactly one German sentence and the reverse. The splits
share no sentence. `builtin/phrasebook.zip` has a file of lines for each split and language.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple
from zipfile import ZipFile

from regard.errors import UsageError
from regard.resources import BUILTIN

ARCHIVE: Final = BUILTIN / "phrasebook.zip"
SIZES: Final = {"train": 200_000, "valid": 5_000, "test": 5_000}
PHENOMENA: Final = (
    "gender", "case", "number", "verb-second", "verb-final", "separable-verb", "perfect", "modal",
    "question", "negation", "relative-clause", "subordinate-clause", "numeral", "clock",
)  # fmt: skip


class Phrase(NamedTuple):
    english: str
    german: str


def phrases(split: str, count: int) -> Iterator[Phrase]:
    """The first `count` pairs of a split."""
    if count > SIZES[split]:
        raise UsageError(
            f"the phrasebook has {SIZES[split]:,} pairs for {split}, not {count:,}: take phrasebook:N with a "
            f"smaller number (recipes/phrasebook in the project's folder writes files of any length)",
            code="E_DATA_CORPUS",
        )
    return map(Phrase, _lines(f"{split}.en", count), _lines(f"{split}.de", count))


def phenomena(count: int) -> Iterator[set[str]]:
    """The grammatical phenomena of the first `count` German sentences of the test split."""
    return (set(line.split()) for line in _lines("test.phenomena", count))


def _lines(member: str, count: int) -> Iterator[str]:
    with ZipFile(ARCHIVE) as archive, archive.open(member) as file:
        for line in islice(io.TextIOWrapper(file, encoding="utf-8"), count):
            yield line.rstrip("\n")
