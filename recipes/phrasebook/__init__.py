"""English-German sentence pairs from a synchronous grammar: the built-in corpus, and as many more as wanted.

The grammar draws an abstract sentence and writes it in both languages. Every pair is a translation, and one
English sentence has exactly one German sentence and the reverse. The words and patterns are data files beside
this one; the first draw reads them. `python -m recipes.phrasebook` writes the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count as count_from
from typing import TYPE_CHECKING, Final

from regard.data.phrasebook import PHENOMENA, SIZES

if TYPE_CHECKING:
    from recipes.phrasebook.lexicon import Sentence

LONGEST: Final = 22  # words of an English sentence


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence in both languages, and the grammatical phenomena of the German one."""

    english: str
    german: str
    phenomena: frozenset[str]


def realise(structure: Sentence, english: str | None = None) -> Pair:
    """Both sentences of one structure; `english` saves writing it again."""
    from recipes.phrasebook.realisation import English, German  # the first draw reads the data files

    german = German()
    text = german.text(structure)
    shown = frozenset(name for position, name in enumerate(PHENOMENA) if german.phenomena >> position & 1)
    return Pair(english or English().text(structure), text, shown)


def _draw(seed: int, index: int) -> tuple[Sentence, str]:
    """The structure number `index` with its English; a sentence that is too long is drawn again."""
    from recipes.phrasebook.realisation import English
    from recipes.phrasebook.sentences import Sentences

    for attempt in count_from():
        structure = Sentences(seed, index, attempt).sentence()
        english = English().text(structure)
        if english.count(" ") < LONGEST:
            break
    return structure, english


def phrase(seed: int, index: int) -> Pair:
    """The pair number `index` of the endless sequence `seed`, of any split."""
    return realise(*_draw(seed, index))


def _fingerprint(english: str) -> int:
    return int.from_bytes(blake2b(english.encode(), digest_size=8).digest(), "little")


def split_of(english: str) -> str:
    """The split depends on the text alone: for any seed, no test sentence is in the training data."""
    bucket = _fingerprint(english) % 20  # 5 % each: smaller held-out splits would be slow to draw
    return "train" if bucket >= 2 else "valid" if bucket == 0 else "test"


def phrases(split: str, count: int, seed: int = 0) -> Iterator[Pair]:
    """`count` distinct pairs of one split, in the order of their index."""
    if split not in SIZES:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SIZES)}")
    return _phrases(split, count, seed)


def _phrases(split: str, count: int, seed: int) -> Iterator[Pair]:
    seen: set[int] = set()  # 64 bits of each sentence
    for index in count_from():
        if len(seen) >= count:
            return
        structure, english = _draw(seed, index)
        # German is written only for the sentences of this split.
        if split_of(english) == split and (fingerprint := _fingerprint(english)) not in seen:
            seen.add(fingerprint)
            yield realise(structure, english)
