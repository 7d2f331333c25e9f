"""Training lines that reappear in valid or test: equal, equal but for case and signs, one word apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import numpy.typing as npt

from regard.data.fingerprints import (
    Fingerprints,
    Hashes,
    Places,
    fingerprints,
    without_each_word,
    words,
)

Kind = Literal["exact", "normalised", "near"]
SideName = Literal["both", "source", "target"]
Pairs = Sequence[tuple[str, str]]
Amounts = npt.NDArray[np.float64]
Yes = npt.NDArray[np.bool_]

KINDS: tuple[Kind, ...] = ("exact", "normalised", "near")
EXACT, NORMALISED, NEAR, APART = range(4)
SIDES: tuple[SideName, ...] = ("both", "source", "target")
BOTH, SOURCE, TARGET = range(3)

# Short lines are one word apart by chance, long ones are not. What counts is how many words two lines share;
# with these numbers chance is about one line in a thousand among short everyday sentences, less elsewhere.
SHARED_ALONE = 7  # by one side, whatever the other side says
SHARED_TOGETHER = 11  # by both sides, where both are near the same held-out pair
SHARED_LEAST = 3  # with fewer no line is called near
COMMON = 16  # held-out lines with the same words around a gap: a pattern, and what fits it is no copy
CHARACTERS_AT_ONCE = 1 << 20  # memory stays small however many pairs a portion has


@dataclass(frozen=True, slots=True)
class Leak:
    """A pair of the training data that matches a held-out pair.

    Where both sides match the same pair, `kind` is that of the side further away.
    """

    pair: int  # number in the portion
    kind: Kind
    side: SideName
    split: str
    line: int  # number of the held-out pair in its split, from 0


@dataclass(frozen=True)
class HeldOut:
    """The pairs of valid and test, to be searched with portions of the training data.

    A line is *exact* when the strings are equal; *normalised* when they are after NFKC and case folding,
    spaces and punctuation taken away; *near* when one word is substituted, added or removed and enough are
    shared.
    """

    splits: Sequence[str]
    pairs: Pairs  # of all splits; what a split repeats stands here once
    split: Places  # of each pair
    number: Places  # of each pair in its split
    source: HeldOutSide
    target: HeldOutSide

    @classmethod
    def of(cls, sets: Mapping[str, Pairs]) -> HeldOut:
        first: dict[tuple[str, str, int], int] = {}
        for split, held in enumerate(sets.values()):
            for number, (source, target) in enumerate(held):
                first.setdefault((source, target, split), number)
        splits = np.array([split for _, _, split in first], dtype=np.int64)
        return cls(
            splits=list(sets),
            pairs=[(source, target) for source, target, _ in first],
            split=splits,
            number=np.array(list(first.values()), dtype=np.int64),
            source=HeldOutSide.of([source for source, _, _ in first], splits, len(sets)),
            target=HeldOutSide.of([target for _, target, _ in first], splits, len(sets)),
        )

    def find(self, pairs: Pairs) -> list[Leak]:
        """Of each training pair the closest match in each split: both sides before one, exact before near."""
        return [leak for start, end in _cut(pairs) for leak in self._find(pairs[start:end], start)]

    def _find(self, pairs: Pairs, start: int) -> Iterator[Leak]:
        source = self.source.matches([source for source, _ in pairs])
        target = self.target.matches([target for _, target in pairs])
        one = [self.source.alone(source, SOURCE), self.target.alone(target, TARGET)]
        found = np.concatenate([self._both(source, target), *one], axis=1)
        row, held, side, kind = found
        order = np.lexsort([held, side, kind, side != BOTH, self.split[held], row])
        for _, group in groupby(found[:, order].T.tolist(), lambda each: (each[0], self.split[each[1]])):
            for own, other, side, kind in group:
                if _confirmed(pairs[own], self.pairs[other], side, kind):
                    split, line = self.splits[self.split[other]], int(self.number[other])
                    yield Leak(start + own, KINDS[kind], SIDES[side], split, line)
                    break

    def _both(self, source: Matches, target: Matches) -> Places:
        """Candidates (row, held-out pair, side, kind) of which both sides match."""
        if self.source.reach(source) <= self.target.reach(target):
            held, hit, other = _join(source, target, self.source, self.target)
        else:
            held, other, hit = _join(target, source, self.target, self.source)
        enough = source.enough[hit] | target.enough[other]
        enough |= source.shared[hit] + target.shared[other] >= SHARED_TOGETHER
        kind = np.maximum(source.kind[hit], target.kind[other])
        return np.stack([source.row[hit], held, np.full(len(hit), BOTH), kind])[:, enough]


def _join(some: Matches, more: Matches, index: HeldOutSide, other: HeldOutSide) -> tuple[Places, ...]:
    """Held-out pairs that a match of each side leads to, and the places of the two matches."""
    hit = np.flatnonzero(np.isin(some.row, more.row))
    first, last = index.bounds[some.line[hit]], index.bounds[some.line[hit] + 1]
    hit, held = np.repeat(hit, last - first), index.by_line[expand(first, last)]
    there = more.row * len(other.texts) + more.line  # ascending
    wanted = some.row[hit] * len(other.texts) + other.line_of[held]
    place = np.searchsorted(there, wanted)
    found = np.flatnonzero(np.append(there, -1)[place] == wanted)
    return held[found], hit[found], place[found]


def _confirmed(pair: tuple[str, str], held: tuple[str, str], side: int, kind: int) -> bool:
    """Whether the words themselves say what the hashes say: not for a moved word, nor for a collision."""
    kinds = [compare(line, other) for line, other in zip(pair, held)]
    return kind == (max(kinds) if side == BOTH else kinds[side - SOURCE])


def compare(line: str, other: str) -> int:
    """EXACT, NORMALISED, NEAR (however few the words) or APART."""
    if line == other:
        return EXACT
    one, two = words(line), words(other)
    if "".join(one) == "".join(two):
        return NORMALISED if one else APART
    short, long = sorted([one, two], key=len)
    same = next((place for place, (a, b) in enumerate(zip(short, long)) if a != b), len(short))
    return NEAR if long[same + 1 :] in (short[same:], short[same + 1 :]) else APART


@dataclass(frozen=True)
class Matches:
    """Of the lines of a portion with the distinct held-out lines of one side; sorted by row, then line."""

    row: Places  # in the portion
    line: Places
    kind: Places
    shared: Amounts  # words

    @property
    def enough(self) -> Yes:
        """Whatever the other side says."""
        return np.asarray((self.kind != NEAR) | (self.shared >= SHARED_ALONE))


@dataclass(frozen=True)
class HeldOutSide:
    """The distinct lines of one side of all held-out pairs, by their hashes."""

    texts: Sequence[str]
    line_of: Places  # of each pair
    by_line: Places  # the pairs in the order of their lines
    bounds: Places  # where in it those of each line begin
    first: Places  # [lines, splits]: the first pair that has the line; beyond the last for none
    equal: Table
    whole: Table
    shorter: Table

    @classmethod
    def of(cls, texts: Sequence[str], split: Places, splits: int) -> HeldOutSide:
        numbers: dict[str, int] = {}
        line_of = np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)
        by_line = np.argsort(line_of, kind="stable")
        every = np.arange(len(numbers))
        first = np.full((len(numbers), splits), len(texts))
        np.minimum.at(first, (line_of, split), np.arange(len(texts)))
        found = fingerprints(list(numbers))
        near = Neighbours.of(found)
        said = np.array([not text.isspace() and text != "" for text in numbers], dtype=np.bool_)
        return cls(
            texts=list(numbers),
            line_of=line_of,
            by_line=by_line,
            bounds=np.searchsorted(line_of[by_line], np.arange(len(numbers) + 1)),
            first=first,
            equal=Table.of(found.letters, every, said, most=len(numbers)),
            whole=Table.of(near.whole, every, near.weight >= SHARED_LEAST, COMMON),
            shorter=Table.of(near.shorter, near.owner, near.rest >= SHARED_LEAST, COMMON),
        )

    def matches(self, texts: Sequence[str]) -> Matches:
        found = fingerprints(texts)
        near = Neighbours.of(found)
        same, equal = self.equal.find(found.letters)
        substituted, changed = self.shorter.find(near.shorter)  # or moved: to be confirmed
        added, fewer = self.whole.find(near.shorter)  # the training line has a word more
        removed, more = self.shorter.find(near.whole)
        row = np.concatenate([same, near.owner[substituted], near.owner[added], removed])
        line = np.concatenate([equal, changed, fewer, more])
        shared = np.concatenate(
            [near.weight[same], near.rest[substituted], near.rest[added], near.weight[removed]]
        )
        kind = np.full(len(row), NEAR)
        kind[: len(same)] = [
            EXACT if texts[own] == self.texts[other] else NORMALISED for own, other in zip(same, equal)
        ]
        # A line may be found in several ways: the first, equality, says most.
        _, first = np.unique(row * len(self.texts) + line, return_index=True)
        return Matches(row[first], line[first], kind[first], shared[first])

    def reach(self, found: Matches) -> int:
        """How many held-out pairs the matches lead to."""
        return int((self.bounds[found.line + 1] - self.bounds[found.line]).sum())

    def alone(self, found: Matches, side: int) -> Places:
        """Candidates that match well enough on this side: the first pair of each split with the line."""
        hit, split = np.nonzero(found.enough[:, None] & (self.first[found.line] < len(self.line_of)))
        held = self.first[found.line[hit], split]
        return np.stack([found.row[hit], held, np.full(len(hit), side), found.kind[hit]])


@dataclass(frozen=True)
class Neighbours:
    """What a line has in common with lines one word away.

    Without one word each, two lines are equal: a word was substituted, or moved. The whole of one is the
    other without a word: it was added or removed.
    """

    whole: Hashes
    weight: Amounts  # of the whole, in words
    shorter: Hashes  # without each word
    rest: Amounts  # the weight without each word
    owner: Places  # the line of each word

    @classmethod
    def of(cls, found: Fingerprints) -> Neighbours:
        whole, shorter = without_each_word(found)
        owner = np.repeat(np.arange(len(found.counts)), found.counts)
        weight = np.bincount(owner, found.weights, len(found.counts)).astype(np.float64)
        return cls(whole, weight, shorter, weight[owner] - found.weights, owner)


@dataclass(frozen=True)
class Table:
    """Line numbers by hash. `maybe` says no to nearly all hashes that are not there, without a search."""

    hashes: Hashes  # sorted
    lines: Places
    maybe: Yes  # by the highest bits of a hash
    shift: np.uint64

    @classmethod
    def of(cls, hashes: Hashes, lines: Places, keep: Yes, most: int) -> Table:
        """Of what is to be kept, but for hashes that more than `most` lines share."""
        hashes, lines = hashes[keep], lines[keep]
        order = np.lexsort([lines, hashes])
        hashes, lines = hashes[order], lines[order]
        # "b b b b" without each of its words is four times the same: a line counts once
        new = np.append(True, (np.diff(hashes) != 0) | (np.diff(lines) != 0))[: len(hashes)]
        hashes, lines = hashes[new], lines[new]
        _, group, sizes = np.unique(hashes, return_inverse=True, return_counts=True)
        rare = sizes[group] <= most
        hashes, lines = hashes[rare], lines[rare]
        bits = max(10, len(hashes).bit_length() + 4)
        shift = np.uint64(64 - bits)
        maybe = np.zeros(1 << bits, dtype=np.bool_)
        maybe[hashes >> shift] = True
        return cls(hashes, lines, maybe, shift)

    def find(self, hashes: Hashes) -> tuple[Places, Places]:
        """The places in `hashes` whose hash is here, once for each line it belongs to; and these lines."""
        places = np.flatnonzero(self.maybe[hashes >> self.shift])
        first = np.searchsorted(self.hashes, hashes[places], side="left")
        last = np.searchsorted(self.hashes, hashes[places], side="right")
        return np.repeat(places, last - first), self.lines[expand(first, last)]


def expand(first: Places, last: Places) -> Places:
    """The numbers first[0] to last[0] - 1, then first[1] to last[1] - 1, and so on."""
    counts = last - first
    before = np.cumsum(counts) - counts
    return np.asarray(np.arange(int(counts.sum())) + np.repeat(first - before, counts))


def _cut(pairs: Pairs) -> Iterator[tuple[int, int]]:
    """Bounds of parts with some number of characters."""
    start, size = 0, 0
    for end, (source, target) in enumerate(pairs):
        if size > CHARACTERS_AT_ONCE:
            yield start, end
            start, size = end, 0
        size += len(source) + len(target)
    yield start, len(pairs)
