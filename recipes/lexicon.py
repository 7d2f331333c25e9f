"""A lexicon of single words from sentence pairs: IBM Model 1 (Brown et al. 1993) in both directions.

A translator that was trained on sentences answers a single word with a sentence. `word_pairs` gives the words
that the pairs agree on, as training rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

Pair = tuple[str, str]
WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
ROUNDS = 6  # of expectation and maximisation
RARE = 4  # occurrences below which a word is left out
SURE = 0.3  # least geometric mean of both probabilities


def word_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """For each source word its most probable target word, if both directions agree."""
    sides = [[WORD.findall(text) for text in side] for side in zip(*pairs)]
    forms = [usual_forms(side) for side in sides]
    numbers = [{word: number for number, word in enumerate(sorted(set(each.values())))} for each in forms]
    sources, targets, rows = [], [], []
    for row, (left, right) in enumerate(zip(*sides)):
        first = {numbers[0][forms[0][word.lower()]] for word in left}
        second = [numbers[1][forms[1][word.lower()]] for word in right]
        for target in second:
            sources += first
            targets += [target] * len(first)
            rows += [row] * len(first)
    e, f, n = np.array(sources), np.array(targets), np.array(rows)
    links, link = np.unique(e.astype(np.int64) * len(numbers[1]) + f, return_inverse=True)
    source, target = links // len(numbers[1]), links % len(numbers[1])
    agreement = np.sqrt(model_1(link, n, f, source) * model_1(link, n, e, target))
    return best_pairs(source, target, agreement, np.bincount(e), [list(each) for each in numbers])


def usual_forms(sentences: Iterable[list[str]]) -> dict[str, str]:
    """How each word is spelt inside sentences: German nouns have capitals, first words do not count."""
    inside: dict[str, Counter[str]] = {}
    for words in sentences:
        for number, word in enumerate(words):
            inside.setdefault(word.lower(), Counter())[word if number else word.lower()] += 1 if number else 0
    return {word: forms.most_common(1)[0][0] for word, forms in inside.items()}


def model_1(link: np.ndarray, row: np.ndarray, word: np.ndarray, given: np.ndarray) -> np.ndarray:
    """p(word | given) of each kind of link by EM: a word of a row is a translation of one word of that row.

    `link` [L] is the kind of each link in the corpus, `row` its sentence pair, `word` its translated word,
    `given` [K] the other word of each kind.
    """
    _, place = np.unique(row.astype(np.int64) * (int(word.max()) + 1) + word, return_inverse=True)
    probability = np.ones(len(given))
    for _ in range(ROUNDS):
        share = probability[link]
        share = share / np.bincount(place, share)[place]  # the links of a word in a row sum to one
        counts = np.bincount(link, share, minlength=len(given))
        probability = counts / np.bincount(given, counts)[given]
    return probability


def best_pairs(
    source: np.ndarray, target: np.ndarray, agreement: np.ndarray, counts: np.ndarray, words: list[list[str]]
) -> list[Pair]:
    best: dict[int, tuple[float, int]] = {}
    for left, right, value in zip(source.tolist(), target.tolist(), agreement.tolist()):
        if value >= max(SURE, best.get(left, (0.0, 0))[0]) and counts[left] >= RARE:
            best[left] = (value, right)
    return [(words[0][left], words[1][right]) for left, (_, right) in sorted(best.items())]
