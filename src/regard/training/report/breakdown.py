"""Where a model is good and where it is not: by length, and sentence by sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.metrics.bleu import UNSPACED, TextScores, text_scores
from regard.training.progress import Record

LENGTHS = (5, 10, 15, 20, 30, 40, 60)  # the last of each bucket; one more holds all that is longer
FEW, MANY = 6, 16  # words of a sentence whose alignment can be looked at


@dataclass(frozen=True)
class Bucket:
    name: str
    sentences: int
    scores: TextScores


def measure(language: str) -> tuple[str, Callable[[str], int]]:
    """How long a text is: its words, or its characters where a script has no spaces between words."""
    if language.lower().replace("_", "-").split("-")[0] in UNSPACED:
        return "characters", len
    return "words", lambda text: len(text.split())


def by_length(rows: Sequence[Record], length: Callable[[str], int], tokenize: str) -> list[Bucket]:
    """Corpus scores of the sentences of each length of source; lengths that no sentence has are left out."""
    found = []
    low = 0
    for high in (*LENGTHS, None):
        own = [
            row
            for row in rows
            if low <= length(row["source"]) and (high is None or length(row["source"]) <= high)
        ]
        if own:
            name = f"{low} and more" if high is None else f"{max(low, 1)} to {high}"
            outputs, references = [row["output"] for row in own], [row["reference"] for row in own]
            found.append(Bucket(name, len(own), text_scores(outputs, references, tokenize)))
        low = (high or 0) + 1
    return found


def worst_and_best(rows: Sequence[Record], count: int) -> tuple[list[Record], list[Record]]:
    """By chrF of the sentence; of those alike the longer ones, which say more. None stands in both."""
    ranked = sorted(rows, key=lambda row: (row["chrf"], -len(row["source"])))
    half = min(count, len(ranked) // 2)
    best = sorted(ranked[half:], key=lambda row: (-row["chrf"], -len(row["source"])))
    return ranked[:half] or ranked[:1], best[:half]


def typical(rows: Sequence[Record], count: int) -> list[Record]:
    """Sentences of middling score whose alignment makes a picture: neither long nor, if possible, short."""
    small = [row for row in rows if row["alignment"] and max(word_counts(row)) <= MANY]
    ranked = sorted(
        [row for row in small if min(word_counts(row)) >= FEW] or small, key=lambda row: row["chrf"]
    )
    start = max(0, (len(ranked) - count) // 2)
    return ranked[start : start + count]


def word_counts(row: Record) -> list[int]:
    return [len(row[side].split()) for side in ("source", "output")]
