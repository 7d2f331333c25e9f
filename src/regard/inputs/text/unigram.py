"""Learn the pieces of a unigram model: expectation maximisation over all ways to cut each word.

The trainer of `tokenizers` sums in the order of a randomly seeded table, and so gives another
vocabulary in every run. This one sums in a fixed order, as whole arrays.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]

LONGEST_WORD = 24  # longer words are cut: the probability of a word must not vanish
LONGEST_PIECE = 16
MOST_CHARACTERS = 500_000  # of distinct words, the most frequent first; rarer ones change little
SEEDS_PER_PIECE = 10
LEAST_COUNT = 0.1  # of a living piece, so that no logarithm is infinite
SHRINK = 0.75  # share of the pieces that survives a round


class Lattice:
    """Every way to cut each word into pieces: nodes between characters, and one edge per piece."""

    def __init__(self, lengths: Sequence[int], edges: Numbers) -> None:
        """`edges` has a row (word, start, end, piece) per edge."""
        sizes = np.asarray(lengths, dtype=np.int64) + 1
        self.first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        self.last = self.first + sizes - 1
        self.nodes = int(sizes.sum())
        self.edges = edges
        word, start, end, self.piece = edges.T
        self.word = word
        self.source, self.target = self.first[word] + start, self.first[word] + end
        self._forward = _layers(end, self.target)
        self._backward = _layers(-start, self.source)

    def keep(self, alive: NDArray[np.bool_]) -> Lattice:
        """The lattice without the edges of pieces that are no longer alive."""
        return Lattice((self.last - self.first).tolist(), self.edges[alive[self.piece]])

    def expected_counts(self, probability: Values, weight: Values) -> Values:
        """How often each piece is used over all cuts, each as likely as the product of its pieces."""
        forward, backward = np.zeros(self.nodes), np.zeros(self.nodes)
        forward[self.first] = backward[self.last] = 1.0
        value = probability[self.piece]
        for order, starts in self._forward:
            flow = np.add.reduceat(forward[self.source[order]] * value[order], starts)
            forward[self.target[order[starts]]] = flow
        for order, starts in self._backward:
            flow = np.add.reduceat(backward[self.target[order]] * value[order], starts)
            backward[self.source[order[starts]]] = flow
        total = np.maximum(forward[self.last], np.finfo(np.float64).tiny)
        share = forward[self.source] * value * backward[self.target] * (weight / total)[self.word]
        counts: Values = np.bincount(self.piece, weights=share, minlength=len(probability)).astype(np.float64)
        return counts

    def best_scores(self, score: Values) -> Values:
        """The score of the best cut of each word, -inf where there is none."""
        best = np.full(self.nodes, -np.inf)
        best[self.first] = 0.0
        value = score[self.piece]
        for order, starts in self._forward:
            reached = np.maximum.reduceat(best[self.source[order]] + value[order], starts)
            best[self.target[order[starts]]] = reached
        result: Values = best[self.last]
        return result


def _layers(level: Numbers, node: Numbers) -> list[tuple[Numbers, Numbers]]:
    """Edges by level, and in each where the edges of the next node start: one array step per level."""
    order = np.lexsort((node, level))
    cuts = np.flatnonzero(np.diff(level[order])) + 1
    layers = []
    for part in np.split(order, cuts):
        if len(part):
            starts = np.concatenate([[0], np.flatnonzero(np.diff(node[part])) + 1])
            layers.append((part, starts.astype(np.int64)))
    return layers


def learn_pieces(counts: Mapping[str, int], room: int) -> dict[str, float]:
    """Scores of the ASCII characters of the words, and of the `room` most useful other pieces."""
    words = _most_frequent(counts)
    weight = np.array(list(words.values()), dtype=np.float64)
    pieces = _seeds(words, room * SEEDS_PER_PIECE)
    lattice = _all_cuts(list(words), pieces, itself=True)
    inner = _all_cuts(pieces, pieces, itself=False)
    alive = np.ones(len(pieces), dtype=np.bool_)
    expected = np.ones(len(pieces))
    while True:
        for _ in range(2):
            probability = np.where(alive, np.maximum(expected, LEAST_COUNT), 0.0)
            expected = lattice.expected_counts(probability / probability.sum(), weight)
        usage = np.where(alive, np.maximum(expected, LEAST_COUNT), 0.0)
        score = np.log(np.maximum(usage, LEAST_COUNT) / usage.sum())
        ranked = _ranked_by_loss(pieces, alive, score, expected, inner.best_scores(score))
        size = max(room, int(len(ranked) * SHRINK))
        # Single characters stay until the end, so that each word can still be cut.
        dropped = [number for number in ranked[size:] if len(pieces[number]) > 1]
        if size == room or not dropped:
            unused = [number for number in ranked if expected[number] < 0.5]
            alive[ranked[room:] + unused] = False
            return {pieces[number]: round(float(score[number]), 6) for number in np.flatnonzero(alive)}
        alive[dropped] = False
        lattice, inner = lattice.keep(alive), inner.keep(alive)


def _most_frequent(counts: Mapping[str, int]) -> dict[str, int]:
    """The words to learn from, cut to `LONGEST_WORD`, up to `MOST_CHARACTERS`."""
    parts: Counter[str] = Counter()
    for word, count in counts.items():
        for start in range(0, len(word), LONGEST_WORD):
            parts[word[start : start + LONGEST_WORD]] += count
    chosen: dict[str, int] = {}
    characters = 0
    for part, count in sorted(parts.items(), key=lambda item: (-item[1], item[0])):
        characters += len(part)
        if chosen and characters > MOST_CHARACTERS:
            break
        chosen[part] = count
    return chosen


def _seeds(words: Mapping[str, int], most: int) -> list[str]:
    """All single characters, and the repeated substrings that cover the most text."""
    singles = sorted(set("".join(words)))
    found: list[tuple[int, str]] = []
    shorter = set(singles)
    for size in range(2, LONGEST_PIECE + 1):
        counts: Counter[str] = Counter()
        for word, count in words.items():
            for start in range(len(word) - size + 1):
                part = word[start : start + size]
                # What is rare stays rare when it grows.
                if part[:-1] in shorter:
                    counts[part] += count
        shorter = {part for part, count in counts.items() if count > 1}
        found = heapq.nsmallest(most, chain(found, ((-counts[part] * size, part) for part in shorter)))
        if not shorter:
            break
    return singles + [part for _, part in found]


def _all_cuts(words: Sequence[str], pieces: Sequence[str], *, itself: bool) -> Lattice:
    """The lattice of words over pieces; without `itself` no word may be one whole piece."""
    number_of = {piece: number for number, piece in enumerate(pieces)}
    flat = array("q")
    for position, word in enumerate(words):
        length = len(word)
        for start in range(length):
            for end in range(start + 1, min(length, start + LONGEST_PIECE) + 1):
                number = number_of.get(word[start:end])
                if number is not None and (itself or end - start < length):
                    flat.extend((position, start, end, number))
    edges = np.array(flat, dtype=np.int64).reshape(-1, 4)
    return Lattice([len(word) for word in words], edges)


def _ranked_by_loss(
    pieces: Sequence[str], alive: NDArray[np.bool_], score: Values, expected: Values, otherwise: Values
) -> list[int]:
    """The living pieces that may go, those first whose absence would cost the texts most.

    A character can be written as bytes, at the price of the last resort; the ASCII ones are bytes.
    """
    byte = float(score.min()) - 1.0
    losses = {
        number: expected[number]
        * (
            score[number]
            - (otherwise[number] if len(pieces[number]) > 1 else byte * len(pieces[number].encode()))
        )
        for number in np.flatnonzero(alive).tolist()
        if not (len(pieces[number]) == 1 and pieces[number].isascii())
    }
    # Rounded, so that the last bit of a sum cannot decide between equals: the text does.
    return sorted(losses, key=lambda number: (-round(float(losses[number]), 6), pieces[number]))
