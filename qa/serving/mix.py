"""Texts that differ in length as those of people do: most are short, a few are very long."""

from __future__ import annotations

import math
import random

from regard.data.phrasebook import SIZES, phrases

TEXTS = 400
MEDIAN, SPREAD, MOST_WORDS = 9, 0.7, 60  # words of a sentence, log-normal
TAIL, MOST_SENTENCES = 1.5, 30  # sentences of a text: P(more than n) = n ** -TAIL


def texts(seed: int, count: int = TEXTS) -> list[str]:
    """As many texts, the same again from their seed.

    Sentences of the phrasebook are of like length. Here a short one is the beginning of such a sentence, and
    a long one several with "and" between them, so that it is translated as one.
    """
    dice = random.Random(seed)
    pool = [each.english.rstrip(" .!?").split() for each in phrases("test", SIZES["test"])]
    return [" ".join(sentence(dice, pool) for _ in range(sentences(dice))) for _ in range(count)]


def sentences(dice: random.Random) -> int:
    return min(MOST_SENTENCES, int(dice.paretovariate(TAIL)))


def sentence(dice: random.Random, pool: list[list[str]]) -> str:
    count = max(1, min(MOST_WORDS, round(math.exp(dice.gauss(math.log(MEDIAN), SPREAD)))))
    words = list(dice.choice(pool))
    while len(words) < count:
        words += ["and", *dice.choice(pool)]
    return " ".join(words[:count]) + "."
