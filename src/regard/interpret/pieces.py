"""The pieces of a text as a person reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regard.inputs.text import Tokenizer

_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


@dataclass(frozen=True)
class Pieces:
    """Side by side for each piece: its id, its text (a space in front kept), and the number of its word.

    A piece of no word (the end of a text, a lone space) has the word -1.
    """

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    words: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> Pieces:
        return cls(tuple(ids), tuple(tokenizer.tokens(ids)), tuple(tokenizer.words(ids)))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The texts without the space in front, and with signs for what cannot be seen."""
        return tuple(visible(text) for text in self.texts)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The places of each word's pieces, in order; a piece of no word stands for itself."""
        found: dict[tuple[str, int], list[int]] = {}
        for place, word in enumerate(self.words):
            found.setdefault(("word", word) if word >= 0 else ("piece", place), []).append(place)
        return tuple(tuple(places) for places in found.values())

    @cached_property
    def group_texts(self) -> tuple[str, ...]:
        """The text of each group: pieces of WordPiece are glued where they say so."""
        return tuple(
            visible(whole("".join(glued(self.texts[place], bool(n)) for n, place in enumerate(places))))
            for places in self.groups
        )

    def as_json(self) -> dict[str, Any]:
        return {"ids": list(self.ids), "texts": list(self.texts), "words": list(self.words)}


def glued(text: str, inside: bool) -> str:
    return text[2:] if inside and text.startswith("##") and len(text) > 2 else text


def whole(text: str) -> str:
    """Bytes that were shown one by one (`<0xD7><0xA9>`) as the characters that they make together."""

    def read(match: re.Match[str]) -> str:
        found = bytes.fromhex(match[0].replace("<0x", "").replace(">", ""))
        try:
            return found.decode()
        except UnicodeDecodeError:
            return match[0]

    return _BYTES.sub(read, text)


def visible(text: str) -> str:
    """A text to look at: control signs as their pictures, white space alone as a sign for it."""
    bare = text.strip(" ") or ("\u2423" if text else "")  # an open box for a space
    return _CONTROL.sub(lambda match: picture(match[0]), bare)


def picture(sign: str) -> str:
    code = ord(sign)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"
