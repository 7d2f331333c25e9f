"""A built-in corpus: English-German sentence pairs from a synchronous grammar.

The grammar draws an abstract sentence and writes it in both languages. Every pair is a translation, and one
English sentence has exactly one German sentence and the reverse. The words and patterns are data files in
`regard/builtin/phrasebook`; the first draw reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count as count_from
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from regard.data.phrasebook.lexicon import Sentence

__all__ = ["LONGEST", "PHENOMENA", "SPLITS", "Phrase", "phrase", "phrases", "realise", "split_of"]

LONGEST: Final = 22  # words of an English sentence
SPLITS: Final = ("train", "valid", "test")
PHENOMENA: Final[tuple[str, ...]] = (
    "gender", "case", "number", "verb-second", "verb-final", "separable-verb", "perfect", "modal",
    "question", "negation", "relative-clause", "subordinate-clause", "numeral", "clock",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sentence in both languages, and the grammatical phenomena of the German one."""

    english: str
    german: str
    phenomena: frozenset[str]


def realise(structure: Sentence, english: str | None = None) -> Phrase:
    """Both sentences of one structure; `english` saves writing it again."""
    from regard.data.phrasebook.realisation import English, German  # the first draw reads the data files

    german = German()
    text = german.text(structure)
    shown = frozenset(name for position, name in enumerate(PHENOMENA) if german.phenomena >> position & 1)
    return Phrase(english or English().text(structure), text, shown)


def _draw(seed: int, index: int) -> tuple[Sentence, str]:
    """The structure number `index` with its English; a sentence that is too long is drawn again."""
    from regard.data.phrasebook.realisation import English
    from regard.data.phrasebook.sentences import Sentences

    for attempt in count_from():
        structure = Sentences(seed, index, attempt).sentence()
        english = English().text(structure)
        if english.count(" ") < LONGEST:
            break
    return structure, english


def phrase(seed: int, index: int) -> Phrase:
    """The pair number `index` of the endless sequence `seed`, of any split."""
    return realise(*_draw(seed, index))


def _fingerprint(english: str) -> int:
    return int.from_bytes(blake2b(english.encode(), digest_size=8).digest(), "little")


def split_of(english: str) -> str:
    """The split depends on the text alone: for any seed, no test sentence is in the training data."""
    bucket = _fingerprint(english) % 20  # 5 % each: smaller held-out splits would be slow to draw
    return "train" if bucket >= 2 else "valid" if bucket == 0 else "test"


def phrases(split: str, count: int, seed: int = 0) -> Iterator[Phrase]:
    """`count` distinct pairs of one split, in the order of their index."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
    return _phrases(split, count, seed)


def _phrases(split: str, count: int, seed: int) -> Iterator[Phrase]:
    seen: set[int] = set()  # 64 bits of each sentence
    for index in count_from():
        if len(seen) >= count:
            return
        structure, english = _draw(seed, index)
        # German is written only for the sentences of this split.
        if split_of(english) == split and (fingerprint := _fingerprint(english)) not in seen:
            seen.add(fingerprint)
            yield realise(structure, english)
