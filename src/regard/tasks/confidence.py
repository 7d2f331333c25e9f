"""The probability that a translation is usable, from what is known without a reference.

A logistic regression on the features below; `regard.evaluation.fit_confidence` fits its weights on pairs that
the model has not seen, and writes them into the folder (confidence.json).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from operator import mul

from regard.generation import Hypothesis
from regard.inputs.language import COMMON, WORDS, Detector, by_words, default_detector
from regard.tasks.results import Candidate, Translation
from regard.tasks.task_model import OtherLanguage

FEATURES = (
    "log_p",  # mean log p of the tokens
    "lowest",  # the lowest log p of a token
    "low",  # that of the token at the fifth part of them, from below
    "unlikely",  # share of tokens with p < 0.1
    "p",  # mean p of the tokens
    "agreement",  # of the best with the other hypotheses of the beam: mean share of tokens in common
    "likeness",  # the same of groups of letters
    "least likeness",
    "expected likeness",  # weighted by the probabilities of the others
    "margin",  # score of the best over that of the second
    "length",  # log of the number of source tokens
    "log_p * length",
    "p * length",
    "ratio",  # |log| of output length over source length, in characters
    "copied",  # share of the output's longer words that stand in the source
    "rare",  # source tokens per character: rare words and unknown scripts take many
    "language",  # whether the source is in the model's language: 1, or a probability where that is unclear
    "second",  # 1 if the first translation failed the checks
)
GROUPS = (2, 3, 4)  # letters: chrF counts 1 to 6, which says no more here and takes longer
UNLIKELY = math.log(0.1)
WORD = re.compile(r"[^\W\d_]{4,}")


def features(
    source: str,
    source_ids: Sequence[int],
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    language: float,
    second: bool,
) -> list[float]:
    """The values of FEATURES for a segment, its hypotheses, best first, and their texts."""
    best, output, others = hypotheses[0], texts[0], hypotheses[1:]
    log_p = sorted(max(-12.0, each) for each in best.token_log_probabilities) or [-12.0]
    mean = sum(log_p) / len(log_p)
    p = sum(map(math.exp, log_p)) / len(log_p)
    length = math.log(len(source_ids) + 1)
    groups = [letter_groups(text) for text in texts]
    likeness = [sum(map(overlap, groups[0], each)) / len(GROUPS) for each in groups[1:]] or [1.0]
    weights = [math.exp(each.log_probability - others[0].log_probability) for each in others] or [1.0]
    words = WORD.findall(output.lower())
    read = set(WORD.findall(source.lower()))
    return [
        mean,
        log_p[0],
        log_p[len(log_p) // 5],
        sum(each < UNLIKELY for each in log_p) / len(log_p),
        p,
        sum(overlap(set(best.tokens), set(each.tokens)) for each in others) / len(others) if others else 1.0,
        sum(likeness) / len(likeness),
        min(likeness),
        sum(map(mul, likeness, weights)) / sum(weights),
        min(1.0, best.score - others[0].score) if others else 0.0,
        length,
        mean * length,
        p * length,
        abs(math.log((len(output) + 5) / (len(source) + 5))),
        sum(word in read for word in words) / len(words) if words else 0.0,
        len(source_ids) / max(1, len(source)),
        language,
        float(second),
    ]


def letter_groups(text: str) -> list[set[str]]:
    """The groups of letters of a text, without spaces."""
    text = text.replace(" ", "")
    return [{text[at : at + size] for at in range(len(text) - size + 1)} for size in GROUPS]


def overlap(one: AbstractSet[object], other: AbstractSet[object]) -> float:
    """2 |A and B| / (|A| + |B|)  (Dice)"""
    return 2 * len(one & other) / max(1, len(one) + len(other))


def language_of(text: str, source: str, detector: Detector | None = None) -> tuple[str | None, float]:
    """The language of a text if it is clearly not `source`, and the probability that it is `source`."""
    if source in WORDS and by_words(text, list(WORDS), COMMON) == source:
        return None, 1.0
    return (detector or default_detector()).other_language(text, source)


@dataclass(frozen=True)
class Checks:
    """What is done about translations that may be wrong."""

    check: bool = True  # second tries
    other_language: OtherLanguage = "keep"  # a text in a language that the model does not read
    min_confidence: float | None = None

    def judged(self, result: Translation) -> Translation:
        """The result, without its text if that is refused."""
        is_other = result.language is not None and self.other_language == "refuse"
        is_unsure = self.min_confidence is not None and (result.confidence or 0.0) < self.min_confidence
        if result.skipped or not (is_other or is_unsure):
            return result
        return replace(result, text="", candidates=[Candidate("")], kept=False, refused=True)
