"""Word and character error rate of transcriptions."""

from __future__ import annotations

from collections.abc import Sequence


def edit_distance(reference: Sequence[str], output: Sequence[str]) -> int:
    """The smallest number of insertions, deletions and substitutions (Levenshtein)."""
    before = list(range(len(output) + 1))
    for row, expected in enumerate(reference, 1):
        current = [row]
        for place, actual in enumerate(output, 1):
            substituted = before[place - 1] + (expected != actual)
            current.append(min(substituted, before[place] + 1, current[-1] + 1))
        before = current
    return before[-1]


def error_rates(references: Sequence[str], outputs: Sequence[str]) -> dict[str, float]:
    """Edits over the length of all references, in words and in characters; 0 is perfect."""
    pairs = list(zip(references, outputs, strict=True))
    words = sum(edit_distance(reference.split(), output.split()) for reference, output in pairs)
    characters = sum(edit_distance(reference, output) for reference, output in pairs)
    return {
        "word_error_rate": words / max(1, sum(len(reference.split()) for reference in references)),
        "character_error_rate": characters / max(1, sum(map(len, references))),
    }
