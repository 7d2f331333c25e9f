"""Short remarks made of words with and without praise or blame, for a teacher to judge (recipes/opinions.py).

The words are those of WordNet 3.1 and of the VADER lexicon (Hutto and Gilbert 2014), which says how positive
or negative people find 7,500 words. Half of the remarks have words of one sign only. Most make little sense:
they are there for their words.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from regard.data.files import lines

TOPICS = {
    5: "film movie story plot script acting cast ending comedy drama thriller director actor actress "
    "performance dialogue character scene romance documentary picture screenplay humor direction "
    "sequel action premise tale",
    2: "phone camera printer player product device battery screen sound quality price case keyboard "
    "headset charger software design button size weight lens cable interface manual service "
    "support",
    1: "food service restaurant place meal burger pizza salad steak staff waiter menu dessert coffee "
    "atmosphere bar hotel room breakfast sauce chicken taste book song album game day idea week "
    "job trip car show town",
}
# t: a topic; a, d, n, v, w: adjective, adverb, noun, verb in the third person, verb; x: any signed word
FORMS = """
a {a} {t}|the {t} is {a}|{a} {t}|{a}|{a}, {a} {t}|a {a} and {a} {t}|a {a} but {a} {t}|{d} {a}
a {d} {a} {t}|it is {a} and {a}|it's {a}|{a} and {a}|not {a}|not {a} at all|it is never {a}
this {t} is not {a}|{d} {a} and {d} {a}|the {t} was {d} {a}|what a {a} {t}|isn't {a}
a {t} that is never {a}|lacks {n}|full of {n}|a {t} of {n} and {n}|{n}|a {a} {n}|{n} and {n}
an exercise in {n}|the {t} has {n}|no {n}|without {n}|more {n} than {n}|the {t} {v} its {n}
{v} you with {n}|fails to {w}|manages to {w}|it never {v}|the {t} {v}|i {w} this {t}|{t} that {v}
will {w} the {n}|it {v} and {v}|did not {w}|{v} {d}|the most {a} {t} i know
one of the most {a} {t}s of the year|too {a}|too {a} to be {a}|so {a} that it is {a}
{a}, but {a} {n}|as {a} as it is {a}|more {a} than {a}|less {a} than {a}|neither {a} nor {a}
{a} {t} with {a} {n}|the {t} is {a}, the {n} {a}|{d} {a} {t} about {n}|i found the {t} {a}
i thought it was {a}|there is nothing {a} about it|everything about the {t} is {a}|hardly {a}
could be more {a}|far from {a}|an {a} {n} of a {t}|{a} enough to {w}|the {n} of the {t} {v} the {n}
{w} this {t}|would not {w} it|with {a} {n} and {a} {n}, the {t} is {a}|{x}|{x} and {x}|{x} {t}
{t} {x}|the {t} is {x}|it {x}|{x}, {x} and {x}|not {x}|a {a} {t}, {x} and {a}
despite the {a} {n}, the {t} is {a}
""".strip().replace("\n", "|").split("|")  # fmt: skip
PARTS = {"a": "adj", "d": "adv", "n": "noun", "v": "verb", "w": "verb"}
WORD = re.compile(r"[a-z][a-z-]+")
EXAMPLE = re.compile(r'"([^"]{12,100})"')
STRONG = 0.8  # from -4 to 4 in the lexicon
KNOWN = 0.6  # share of words of the lexicon
REPLACED, LEFT_OUT = 0.4, 0.1  # shares of words in a variant of a text
ONE_SIGN = 0.5  # share of remarks with words of one sign


@dataclass(frozen=True)
class Words:
    """Of a part of speech: words, the sums of their weights, and the negative and positive ones."""

    all: Sequence[str]
    weights: Sequence[float]
    signed: tuple[Sequence[str], Sequence[str]]

    @cached_property
    def known(self) -> frozenset[str]:
        return frozenset(self.all)

    def draw(self, sign: int | None, dice: random.Random) -> str:
        if sign is None and dice.random() > KNOWN:
            return dice.choices(self.all, cum_weights=self.weights)[0]
        return dice.choice(self.signed[dice.randrange(2) if sign is None else sign])


def read_lexicon(file: Path) -> dict[str, float]:
    """The words of vader_lexicon.txt with how positive they are."""
    rows = (line.split("\t")[:2] for line in lines(file))
    return {word: float(value) for word, value in rows if WORD.fullmatch(word)}


def make_words(wordnet: Path, lexicon: Mapping[str, float], texts: Sequence[str]) -> dict[str, Words]:
    """By the letters of FORMS; a word that `texts` have often is drawn more often."""
    seen = Counter(word for text in texts for word in WORD.findall(text.lower()))
    strong = {word: int(value > 0) for word, value in lexicon.items() if abs(value) >= STRONG}
    words = {"x": Words([], [], signed(strong, strong))}
    for letter, part in PARTS.items():
        entries = (line.split(" ", 1)[0] for line in lines(wordnet / f"index.{part}"))
        found = [word for word in entries if WORD.fullmatch(word) and (seen[word] or part in ("adj", "adv"))]
        weights = [min(1.0, 0.03 + seen[word] ** 0.5 / 4) for word in found]
        words[letter] = Words(found, list(accumulate(weights)), signed(found, strong))
    return words


def signed(
    words: Sequence[str] | Mapping[str, int], strong: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    negative, positive = ([word for word in words if strong.get(word) == sign] for sign in (0, 1))
    return negative, positive


def make_phrases(words: Mapping[str, Words], count: int, dice: random.Random) -> Iterator[str]:
    topics = {weight: names.split() for weight, names in TOPICS.items()}
    for _ in range(count):
        topic = topics[dice.choices(list(topics), list(topics))[0]]
        sign = dice.randrange(2) if dice.random() < ONE_SIGN else None

        def fill(slot: re.Match[str], topic: list[str] = topic, sign: int | None = sign) -> str:
            if slot[1] == "t":
                return dice.choice(topic)
            own = dice.randrange(2) if slot[1] == "x" and sign is None else sign
            word = words[slot[1]].draw(own, dice)
            return third_person(word) if slot[1] == "v" else word

        text = re.sub(r"\{(\w)\}", fill, dice.choice(FORMS))
        text = re.sub(r"\ban? (?=([a-z]))", lambda found: "an " if found[1] in "aeiou" else "a ", text)
        yield with_end(text, dice)


def third_person(verb: str) -> str:
    if re.search(r"(s|x|z|ch|sh|o)$", verb):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y$", verb) else f"{verb}s"


def with_end(text: str, dice: random.Random) -> str:
    """As people write remarks; some corpora have lower case and spaces before punctuation."""
    forms = {f"{text} .": 4, f"{text[0].upper()}{text[1:]}.": 3, f"{text[0].upper()}{text[1:]}!": 1, text: 4}
    text = dice.choices(list(forms), list(forms.values()))[0]
    return text.replace(",", " ,") if text.endswith(" .") else text


def wordnet_texts(wordnet: Path) -> Iterator[str]:
    """Examples, and short definitions of all but nouns."""
    for part in dict.fromkeys(PARTS.values()):
        for line in (wordnet / f"data.{part}").read_text(encoding="latin-1").splitlines():
            gloss = line.partition(" | ")[2]
            yield from EXAMPLE.findall(gloss)
            if part != "noun" and 12 <= len(first := gloss.partition(";")[0].strip()) <= 100:
                yield first


def make_variant(text: str, words: Mapping[str, Words], dice: random.Random) -> str:
    """The text with some words left out and some replaced by others of their part of speech (TinyBERT)."""

    def replaced(found: re.Match[str]) -> str:
        word = found[0]
        letter = next((each for each in "adnw" if word.lower() in words[each].known), None)
        if letter is None or len(word) < 4 or dice.random() > REPLACED:
            return "" if dice.random() < LEFT_OUT else word
        return words[letter].draw(None, dice)

    return " ".join(re.sub(r"[A-Za-z][A-Za-z'-]*", replaced, text).split())
