"""Exact match and F1 of answers as SQuAD 2 counts them."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence


def squad_scores(
    references: Sequence[Sequence[str]], outputs: Sequence[str]
) -> tuple[dict[str, float], list[tuple[int, float]]]:
    """(means over all questions, (exact match, F1) of each question, the best over its references).

    A question without a reference has no answer; the empty output is right for it.
    """
    if len(references) != len(outputs):
        raise ValueError(f"{len(references)} questions and {len(outputs)} answers")
    scores = []
    for texts, output in zip(references, outputs):
        words = answer_words(output)
        gold = [bare for text in texts if (bare := answer_words(text))] or [[]]
        scores.append((int(words in gold), max(overlap_f1(words, reference) for reference in gold)))
    count = max(1, len(scores))
    means = {
        "exact": sum(exact for exact, _ in scores) / count,
        "f1": math.fsum(f1 for _, f1 in scores) / count,
    }
    return means, scores


def answer_words(text: str) -> list[str]:
    """Words in lower case without punctuation and articles, normalised in the order of SQuAD's script."""
    bare = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def overlap_f1(output: Sequence[str], reference: Sequence[str]) -> float:
    """F1 = 2 P R / (P + R) = 2 common / (words + words); 1 for two empty answers."""
    if not output or not reference:
        return float(output == reference)
    common = (Counter(output) & Counter(reference)).total()
    return 2 * common / (len(output) + len(reference))
