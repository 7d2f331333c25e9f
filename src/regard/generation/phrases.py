"""Phrases as text: whether a text holds one as whole words, and which pieces would spell it.

A tokenizer can cut the same text in many ways, so nothing here compares ids: pieces are bytes, and what
counts is the text that they make. At its end a text may hold bytes of a character that is not whole yet;
whether that will be a letter is not known, so a phrase before it is open, neither closed nor lost.
"""

from __future__ import annotations

import codecs
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from regard.errors import UsageError
from regard.inputs.text import Tokenizer

# Scripts whose words stand side by side without a space: Thai, Lao, Burmese, Khmer, kana, Han.
_SPACELESS = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF)),
    *((0x3400, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF)),
)


def is_spaceless(sign: str) -> bool:
    return any(low <= ord(sign) <= high for low, high in _SPACELESS)


@lru_cache(maxsize=4096)
def joins(sign: str) -> bool:
    """Whether a character makes one word with a neighbour of its kind: letters, digits, marks, `_`."""
    return (sign.isalnum() or sign == "_" or unicodedata.category(sign)[0] == "M") and not is_spaceless(sign)


def parted(left: str, right: str) -> bool:
    """Whether a word can end between these characters; an empty one is the edge of the text."""
    return not (left and right and joins(left) and joins(right))


def split_open(content: bytes) -> tuple[str, bytes]:
    """The text of bytes, and the bytes at its end of a character that is not whole yet."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content)
    return text, decoder.getstate()[0]


@dataclass(frozen=True)
class Phrase:
    """A phrase, and the pieces with which the tokenizer writes it inside a sentence."""

    text: str
    cut: tuple[int, ...] = ()
    lone_space: bool = False  # whether the first piece is nothing but the space before the phrase

    @property
    def content(self) -> bytes:
        return self.text.encode()

    def is_in(self, text: str) -> bool:
        """Whether a text holds the phrase as whole words."""
        start = text.find(self.text)
        while start >= 0:
            end = start + len(self.text)
            if parted(text[:start][-1:], self.text[0]) and parted(self.text[-1], text[end : end + 1]):
                return True
            start = text.find(self.text, start + 1)
        return False


@dataclass(eq=False)
class Lexicon:
    """The pieces of a target vocabulary as bytes, by id; None for a special."""

    content: Sequence[bytes | None]
    encode: Callable[[str], list[int]]
    end: int
    by_content: dict[bytes, int] = field(init=False)
    ordered: list[tuple[bytes, int]] = field(init=False)
    openers: dict[tuple[bytes, bool], list[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.ordered = sorted((piece, number) for number, piece in enumerate(self.content) if piece)
        self.by_content = dict(self.ordered)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Lexicon:
        return cls(tokenizer.content, tokenizer.encode, tokenizer.end)

    def bytes_of(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.content[token] or b"" for token in tokens)

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens as far as its characters are whole."""
        return split_open(self.bytes_of(tokens))[0]

    def phrase(self, text: str) -> Phrase:
        """A phrase as a user wrote it. Where words are parted by spaces, its pieces begin with one."""
        text = text.strip()
        if not text:
            raise UsageError("a required or forbidden phrase is empty; give at least one word")
        cut = self.encode(text)
        if not cut:
            raise UsageError(f"{text!r}: nothing of this phrase is left as the model reads it; give another")
        first = self.content[cut[0]] or b""
        if is_spaceless(text[0]):
            bare = self.spell(first.removeprefix(b" "))
            cut = cut if bare is None else [*bare, *cut[1:]]
        elif not first.startswith(b" "):
            cut = self.encode(f" {text}")
        return Phrase(text, tuple(cut), lone_space=self.content[cut[0]] == b" ")

    def constraint(self, require: Sequence[str], forbid: Sequence[str]) -> Constraint:
        """What a user wants of one translation, checked: no phrase may be both required and forbidden."""
        wanted = [self.phrase(text) for text in dict.fromkeys(require)]
        banned = [self.phrase(text) for text in dict.fromkeys(forbid)]
        for phrase in wanted:
            if clash := next((each for each in banned if each.is_in(phrase.text)), None):
                raise UsageError(f'"{phrase.text}" is required, but "{clash.text}" is forbidden')
        # a phrase that another one holds is said with it
        own = [p for p in wanted if not any(p != other and p.is_in(other.text) for other in wanted)]
        return Constraint(self, tuple(dict.fromkeys(own)), tuple(banned))

    def spell(self, content: bytes) -> list[int] | None:
        """A piece with these bytes, or else one for each byte; None where there are no such pieces."""
        if not content:
            return []
        whole = self.by_content.get(content)
        if whole is not None:
            return [whole]
        single = [self.by_content.get(bytes([byte])) for byte in content]
        return None if None in single else [each for each in single if each is not None]

    def beginning_with(self, start: bytes) -> list[tuple[bytes, int]]:
        """The pieces whose bytes begin so, and what follows in them: (rest, id)."""
        first = bisect_left(self.ordered, (start, -1))
        found = []
        for piece, number in self.ordered[first:]:
            if not piece.startswith(start):
                break
            found.append((piece[len(start) :], number))
        return found

    def opening(self, left: str, rest: bytes = b"") -> list[int]:
        """The pieces after which a word that ended in `left` is surely over; `rest` is an open character."""
        key = (rest, joins(left))
        if key not in self.openers:
            self.openers[key] = [
                number for piece, number in self.ordered if closes(left, rest + piece) == "closed"
            ]
        return self.openers[key]


def closes(left: str, following: bytes) -> str:
    """Whether a word that ends in `left` is "closed" by what follows, "lost" in a longer one, or "open"."""
    if not joins(left):
        return "closed"
    text, _ = split_open(following[:4])
    if not text:
        return "open"
    return "closed" if parted(left, text[0]) else "lost"


@dataclass(frozen=True)
class Constraint:
    """What the translation of one source must hold and may not hold."""

    lexicon: Lexicon
    require: tuple[Phrase, ...] = ()
    forbid: tuple[Phrase, ...] = ()
    whole_prefix: bool = False  # whether its prefix ends with a whole word

    @property
    def size(self) -> int:
        """Pieces that the required phrases take together."""
        return sum(len(phrase.cut) for phrase in self.require)
