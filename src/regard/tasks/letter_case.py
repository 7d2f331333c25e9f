"""Texts in capitals and title case: a model reads them in sentence case, and its output gets their case."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from regard.inputs.text import split_sentences

CAPITALS = 4  # letters of a text in capitals at least
TITLE = 4  # words of a text in title case; one of 2 or 3 may be a name
WORDS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def letter_case(text: str) -> Callable[[str], str] | None:
    """What gives a text in sentence case its capitals, or those of a title; None for any other text."""
    if in_capitals(text):
        return str.upper
    words = WORDS.findall(text)
    return title_case if len(words) > 1 and all(word[0].isupper() for word in words) else None


def in_capitals(text: str) -> bool:
    return text.isupper() and sum(map(str.isalpha, text)) >= CAPITALS


def may_be_name(text: str) -> bool:
    """Whether a text in title case is so short that its capitals may have another reason."""
    return not in_capitals(text) and len(WORDS.findall(text)) < TITLE


def has_capital_sentence(text: str) -> bool:
    """Whether some sentences of a text are in capitals, and others not."""
    if text.isupper() or not any(word.isupper() for word in WORDS.findall(text) if len(word) > 1):
        return False
    return any(in_capitals(sentence) for sentence, _ in split_sentences(text))


def title_case(text: str) -> str:
    return re.sub(r"(?<!\S)\S", lambda match: match[0].title(), text)


def in_case(case: Callable[[str], str], finish: Callable[[str], str], text: str) -> str:
    return case(finish(text))


def sentence_case(encode: Callable[[Sequence[str]], Sequence[Sequence[int]]], text: str) -> str:
    """The text in small letters, with a capital at the beginning of each sentence, and as "I".

    Names, and nouns of German, get one too: a word has it if the model's vocabulary has more of it that way,
    so that it `encode`s into fewer tokens.
    """
    lower = text.lower()
    words = sorted(set(WORDS.findall(lower)))
    small, large = encode(words), encode([word.capitalize() for word in words])
    names = {word for word, one, other in zip(words, small, large) if len(other) < len(one)} | {"i"}
    cased = WORDS.sub(lambda match: match[0].capitalize() if match[0] in names else match[0], lower)
    return re.sub(r"(?:^|(?<=[.!?]\s))\w", lambda match: match[0].upper(), cased)
