"""Other forms of a text that a model may know better than the one it was given.

Texts in capitals and title case are read in sentence case, and the output gets their case; typographic signs
are read as those of a typewriter.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from regard.inputs.text import split_sentences

CAPITALS = 4  # letters of a text in capitals at least
TITLE = 4  # words of a text in title case; one of 2 or 3 may be a name
SIGNS = {"’‘‚": "'", "“”„«»": '"', "–—": "-", "…": "..."}
PLAIN = {ord(sign): plain for signs, plain in SIGNS.items() for sign in signs}
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


def sentence_case(text: str) -> str:
    """The text in small letters and plain signs, with a capital at the beginning of sentences, and as "I"."""
    lower = re.sub(r"(?:^|(?<=[.!?]\s))\w", lambda match: match[0].upper(), plain_signs(text).lower())
    return re.sub(r"\bi\b", "I", lower)


def plain_signs(text: str) -> str:
    """The text with the quotation marks, apostrophes, dashes and dots of a typewriter."""
    return text if text.isascii() else text.translate(PLAIN)
