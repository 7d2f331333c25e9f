"""Texts that differ in length as those of people do: most are short, a few are very long."""

from __future__ import annotations

import math
import random

from regard.data.phrasebook import phrase

SENTENCES = 400  # sentences of the phrasebook that texts are made of
MEDIAN, SPREAD, MOST_WORDS = 9, 0.7, 60  # words of a sentence, log-normal
TAIL, MOST_SENTENCES = 1.5, 30  # sentences of a text: P(more than n) = n ** -TAIL


def texts(seed: int, count: int = SENTENCES) -> list[str]:
    """As many texts, the same again from their seed.

    Sentences of the phrasebook are of like length. Here a short one is the beginning of such a sentence, and
    a long one several with "and" between them, so that it is translated as one.
    """
    dice = random.Random(seed)
    phrases = [phrase(seed, number).english.rstrip(" .!?").split() for number in range(SENTENCES)]
    return [" ".join(sentence(dice, phrases) for _ in range(sentences(dice))) for _ in range(count)]


def sentences(dice: random.Random) -> int:
    return min(MOST_SENTENCES, int(dice.paretovariate(TAIL)))


def sentence(dice: random.Random, phrases: list[list[str]]) -> str:
    count = max(1, min(MOST_WORDS, round(math.exp(dice.gauss(math.log(MEDIAN), SPREAD)))))
    words = list(dice.choice(phrases))
    while len(words) < count:
        words += ["and", *dice.choice(phrases)]
    return " ".join(words[:count]) + "."
