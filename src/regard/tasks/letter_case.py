"""Other forms of a text that a model may know better than the one it was given.

Texts in capitals, title case or small letters are read in sentence case, and the output gets their case;
typographic signs are read as those of a typewriter.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from regard.inputs.text import Tokenizer, split_sentences

CAPITALS = 4  # letters of a text in capitals at least
TITLE = 4  # words of a text in title case; one of 2 or 3 may be a name
UNKNOWN_COST = 100  # tokens
BEFORE_FIRST = re.compile(r"(?:\A|[.!?]\s)\W*")  # what stands before the first word of a sentence
SIGNS = {"’‘‚": "'", "“”„«»": '"', "–—": "-", "…": "..."}
PLAIN = {ord(sign): plain for signs, plain in SIGNS.items() for sign in signs}
WORDS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def letter_case(text: str) -> Callable[[str], str] | None:
    """What gives a text in sentence case that of this text: capitals, a title's, small letters; else None."""
    if in_capitals(text):
        return str.upper
    words = WORDS.findall(text)
    if len(words) < 2:
        return None
    return title_case if all(word[0].isupper() for word in words) else str.lower if text.islower() else None


def in_capitals(text: str) -> bool:
    return text.isupper() and sum(map(str.isalpha, text)) >= CAPITALS


def may_be_name(text: str) -> bool:
    """Whether a text in title case is so short that its capitals may have another reason."""
    return not text.islower() and not in_capitals(text) and len(WORDS.findall(text)) < TITLE


def has_capital_sentence(text: str) -> bool:
    """Whether some sentences of a text are in capitals, and others not."""
    if text.isupper() or not any(word.isupper() for word in WORDS.findall(text) if len(word) > 1):
        return False
    return any(in_capitals(sentence) for sentence, _ in split_sentences(text))


def title_case(text: str) -> str:
    return re.sub(r"(?<!\S)\S", lambda match: match[0].title(), text)


def in_case(case: Callable[[str], str], finish: Callable[[str], str], text: str) -> str:
    return case(finish(text))


def sentence_case(tokenizer: Tokenizer, text: str) -> str:
    """The text in small letters and plain signs, with a capital where a sentence begins, and as "I".

    Names, and nouns of German, get one too: words that have fewer tokens with a capital. A vocabulary of
    small letters alone gets no capitals.
    """
    lower = plain_signs(text).lower()
    firsts = {match.end() for match in BEFORE_FIRST.finditer(lower)}

    def cased(match: re.Match[str]) -> str:
        word, large = match[0], match[0].capitalize()
        is_large = match.start() in firsts or word == "i"
        return large if is_large or token_cost(tokenizer, large) < token_cost(tokenizer, word) else word

    return WORDS.sub(cased, lower) if tokenizer.is_cased else lower


def token_cost(tokenizer: Tokenizer, word: str) -> int:
    """The number of its tokens; many if it is unknown."""
    ids = tokenizer.encode(word)
    return len(ids) + UNKNOWN_COST * (tokenizer.unknown in ids)


def plain_signs(text: str) -> str:
    """The text with the quotation marks, apostrophes, dashes and dots of a typewriter."""
    return text if text.isascii() else text.translate(PLAIN)
