"""A built-in corpus: English-German sentence pairs from a synchronous grammar.

The grammar draws an abstract sentence and writes it in both languages. Every pair is a translation, and one
English sentence has exactly one German sentence and the reverse. The words and patterns are data files in
`regard/builtin/phrasebook`; the first draw reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import count as count_from
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from regard.data.phrasebook.lexicon import Sentence
    from regard.data.phrasebook.realisation import English, German
    from regard.data.phrasebook.sentences import Sentences

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


@cache
def _names(bits: int) -> frozenset[str]:
    return frozenset(name for position, name in enumerate(PHENOMENA) if bits >> position & 1)


@cache
def _grammar() -> tuple[type[Sentences], type[English], type[German]]:
    """The modules that read the data files, imported by the first draw."""
    from regard.data.phrasebook.realisation import English, German
    from regard.data.phrasebook.sentences import Sentences

    return Sentences, English, German


def realise(structure: Sentence, english: str | None = None) -> Phrase:
    """Both sentences of one structure; `english` saves writing it again."""
    _, english_writer, german_writer = _grammar()
    german = german_writer()
    text = german.text(structure)
    return Phrase(english or english_writer().text(structure), text, _names(german.phenomena))


def _draw(seed: int, index: int) -> tuple[Sentence, str]:
    """The structure number `index` with its English; a sentence that is too long is drawn again."""
    sampler, writer, _ = _grammar()
    for attempt in count_from():
        structure = sampler(seed, index, attempt).sentence()
        english = writer().text(structure)
        if english.count(" ") < LONGEST:
            break
    return structure, english


def phrase(seed: int, index: int) -> Phrase:
    """The pair number `index` of the endless sequence `seed`, of any split."""
    return realise(*_draw(seed, index))


def _fingerprint(english: str) -> int:
    return int.from_bytes(blake2b(english.encode(), digest_size=8).digest(), "little")


def _split(fingerprint: int) -> str:
    bucket = fingerprint % 20  # 5 % each: smaller held-out splits would be slow to draw
    return "train" if bucket >= 2 else "valid" if bucket == 0 else "test"


def split_of(english: str) -> str:
    """The split depends on the text alone: for any seed, no test sentence is in the training data."""
    return _split(_fingerprint(english))


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
        fingerprint = _fingerprint(english)
        # German is written only for the sentences of this split.
        if _split(fingerprint) == split and fingerprint not in seen:
            seen.add(fingerprint)
            yield realise(structure, english)
