"""A corpus without a file: English-German sentence pairs from a synchronous grammar.

One abstract structure is thrown with dice and then realised in both languages, so that every pair is a
translation, and one English sentence has exactly one German sentence and the reverse.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count as count_from
from typing import Final

from regard.data.phrasebook import english as _english
from regard.data.phrasebook.choices import Dice
from regard.data.phrasebook.german import German
from regard.data.phrasebook.linked import sentence as _sentence
from regard.data.phrasebook.phenomena import PHENOMENA, names
from regard.data.phrasebook.structure import Sentence

__all__ = ["LONGEST", "PHENOMENA", "SPLITS", "Phrase", "phrase", "phrases", "realise", "split_of"]

LONGEST: Final = 22  # words of an English sentence
SPLITS: Final = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sentence in both languages, and what is to be learnt from it."""

    english: str
    german: str
    phenomena: frozenset[str]


def realise(structure: Sentence) -> Phrase:
    """Both sentences of one structure."""
    return _complete(structure, _english.text(structure))


def _complete(structure: Sentence, english: str) -> Phrase:
    writer = German()
    german = writer.text(structure)
    return Phrase(english, german, names(writer.phenomena))


def _draw(seed: int, index: int) -> tuple[Sentence, str]:
    """The structure number `index` with its English; one that has grown too long is thrown again."""
    attempt = 0
    while True:
        structure = _sentence(Dice(seed, index, attempt))
        english = _english.text(structure)
        if english.count(" ") < LONGEST:
            return structure, english
        attempt += 1


def phrase(seed: int, index: int) -> Phrase:
    """The pair number `index` of the endless sequence `seed`, of whatever split."""
    return _complete(*_draw(seed, index))


def _fingerprint(english: str) -> int:
    return int.from_bytes(blake2b(english.encode(), digest_size=8).digest(), "little")


def _split(fingerprint: int) -> str:
    bucket = fingerprint % 20  # a twentieth each: fewer would make drawing a held-out set slow
    return "train" if bucket >= 2 else "valid" if bucket == 0 else "test"


def split_of(english: str) -> str:
    """The split depends on the text alone: whatever the seed, no test sentence is ever trained on."""
    return _split(_fingerprint(english))


class Seen:
    """A set of 64-bit numbers in some 16 bytes each; Python's own takes 100, too many for 20 million."""

    def __init__(self) -> None:
        self._table, self._count = array("Q", bytes(8 << 10)), 0

    def __len__(self) -> int:
        return self._count

    def add(self, number: int) -> bool:
        """Whether it is new."""
        if 5 * self._count >= 3 * len(self._table):
            self._grow()
        if new := _put(self._table, number or 1):  # 0 is an empty slot
            self._count += 1
        return new

    def _grow(self) -> None:
        wider = array("Q", bytes(16 * len(self._table)))
        for number in self._table:
            if number:
                _put(wider, number)
        self._table = wider


def _put(table: array[int], number: int) -> bool:
    """Open addressing: the first free slot from the number's own on, unless it stands there already."""
    mask = len(table) - 1  # a power of two
    slot = number >> 8 & mask  # the lowest bits say the split
    while table[slot]:
        if table[slot] == number:
            return False
        slot = (slot + 1) & mask
    table[slot] = number
    return True


def phrases(split: str, count: int, seed: int = 0) -> Iterator[Phrase]:
    """`count` distinct pairs of one split, in the order of their index."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
    return _phrases(split, count, seed)


def _phrases(split: str, count: int, seed: int) -> Iterator[Phrase]:
    given = Seen()
    for index in count_from():
        if len(given) >= count:
            return
        structure, english = _draw(seed, index)
        fingerprint = _fingerprint(english)
        # The German is left for those that are wanted: most are not when the split is small.
        if _split(fingerprint) == split and given.add(fingerprint):
            yield _complete(structure, english)
