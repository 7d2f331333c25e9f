"""Sentences with names in which each name is replaced by another of its kind (Dai and Adel 2020).

The other names are those of the training sentences and those of WordNet 3.1, which has people and places
of the world. So a small tagger meets more names, and sees that their surroundings tell the kind.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from regard.data.files import lines
from regard.storage import write_text

FILES = {"15": "LOC", "18": "PER"}  # numbers of WordNet's files of nouns
FROM_TEXTS = 0.5  # share of names that are of the training sentences
SEED = 1

Word = tuple[str, str]  # and its tag
Names = dict[str, list[list[str]]]  # words of the names of each kind


def make_swapped(place: Path, wordnet: Path) -> None:
    """names.swapped.conll, of names.train.conll."""
    sentences: list[list[Word]] = [[]]
    for line in lines(place / "names.train.conll"):
        if line:
            word, _, tag = line.partition("\t")
            sentences[-1].append((word, tag))
        elif sentences[-1]:
            sentences.append([])
    text = ("".join(f"{word}\t{tag}\n" for word, tag in each) for each in swapped(sentences[:-1], wordnet))
    write_text(place / "names.swapped.conll", "\n".join(text))


def swapped(sentences: Sequence[list[Word]], wordnet: Path) -> Iterator[list[Word]]:
    """Each sentence that has names, with others."""
    dice, pools = random.Random(SEED), (names_of(sentences), wordnet_names(wordnet))
    for sentence in sentences:
        if any(tag != "O" for _, tag in sentence):
            yield [word for part in parts(sentence) for word in other(part, pools, dice)]


def other(
    part: list[Word], pools: Sequence[Mapping[str, list[list[str]]]], dice: random.Random
) -> list[Word]:
    tag = part[0][1]
    if tag == "O":
        return part
    kind = tag[2:]
    words = dice.choice(pools[kind in FILES.values() and dice.random() > FROM_TEXTS][kind])
    return [(word, f"{'I' if number else 'B'}-{kind}") for number, word in enumerate(words)]


def parts(sentence: list[Word]) -> Iterator[list[Word]]:
    """Names, and single words that are none."""
    part: list[Word] = []
    for word, tag in sentence:
        if part and not tag.startswith("I"):
            yield part
            part = []
        part.append((word, tag))
    yield part


def names_of(sentences: Sequence[list[Word]]) -> Names:
    found: Names = defaultdict(list)
    for sentence in sentences:
        for part in parts(sentence):
            if part[0][1] != "O":
                found[part[0][1][2:]].append([word for word, _ in part])
    return found


def wordnet_names(wordnet: Path) -> Names:
    """Of the instances (`@i`) among the nouns; a person also by the last word of the name."""
    found: Names = defaultdict(list)
    for line in (wordnet / "data.noun").read_text(encoding="latin-1").splitlines():
        fields = line.split(" ")
        if line.startswith(" ") or fields[1] not in FILES or "@i" not in fields:
            continue
        for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]:
            if word[0].isupper() and "(" not in word:
                kind, words = FILES[fields[1]], word.split("_")
                found[kind].append(words)
                if kind == "PER":
                    found[kind] += [words[:1], words[-1:]]
    return found
