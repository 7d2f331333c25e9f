"""Forbidden phrases: a ban on the pieces that would make the text hold one of them as whole words.

The text may hold the phrase at no moment, not even at its end, where it could still become a longer word:
a beam that is let through there comes back with letters glued to the word that it meant. So with "Kind" also
"Kindern" is out of reach if the tokenizer cuts it `Kind|ern`, but not if its pieces are `Kin|dern`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from regard.generation.options import NEVER
from regard.generation.phrases import Constraint, Lexicon, Phrase, closes, parted, split_open

LONGEST_SIGN = 4  # bytes of a character in UTF-8


class Matcher:
    """For one phrase: which pieces complete it, by how many of its bytes stand at the end of the text."""

    def __init__(self, phrase: Phrase, lexicon: Lexicon) -> None:
        self.first, self.last, self.content = phrase.text[0], phrase.text[-1], phrase.content
        self.lexicon = lexicon
        self.completing = [
            [number for rest, number in lexicon.beginning_with(self.content[known:]) if self.stays(rest)]
            for known in range(len(self.content))
        ]
        self.inside: list[int] = []
        self.behind_half: list[tuple[int, int]] = []  # (id, where the phrase begins in the piece)
        for piece, number in lexicon.ordered:
            self.look_inside(piece, number)

    def stays(self, following: bytes) -> bool:
        """Whether the phrase is a whole word before these bytes, as far as they are known."""
        return closes(self.last, following) != "lost"

    def look_inside(self, piece: bytes, number: int) -> None:
        """Note a piece that holds the phrase behind its first byte."""
        start = piece.find(self.content, 1)
        while start > 0:
            if self.stays(piece[start + len(self.content) :]):
                if is_half(piece[:start]):  # which character it ends, the text decides
                    self.behind_half.append((number, start))
                elif self.begins_at(piece, start):
                    self.inside.append(number)
            start = piece.find(self.content, start + 1)

    def banned(self, text: bytes) -> list[int]:
        """The pieces that may not follow a text."""
        found = list(self.inside)
        for known, pieces in enumerate(self.completing):
            if pieces and text.endswith(self.content[:known]) and self.begins_at(text, len(text) - known):
                found += pieces
        for number, start in self.behind_half:
            piece = self.lexicon.content[number] or b""
            if self.begins_at(text + piece, len(text) + start):
                found.append(number)
        return found

    def begins_at(self, text: bytes, start: int) -> bool:
        """Whether a word can begin at this byte."""
        before = text[max(0, start - LONGEST_SIGN) : start].decode(errors="replace")
        return parted(before[-1:], self.first)


def is_half(content: bytes) -> bool:
    """Whether bytes are only the end of a character that began before them."""
    return all(0x80 <= byte < 0xC0 for byte in content)


@lru_cache(maxsize=4096)
def matcher(phrase: Phrase, lexicon: Lexicon) -> Matcher:
    return Matcher(phrase, lexicon)


class ForbiddenPhrases:
    """The ban of one source's phrases."""

    def __init__(self, constraint: Constraint) -> None:
        self.lexicon = constraint.lexicon
        self.matchers = [matcher(phrase, self.lexicon) for phrase in constraint.forbid]
        longest = max(len(each.content) for each in self.matchers)
        self.reach = longest + LONGEST_SIGN  # a piece has at least one byte

    def __call__(self, logits: Tensor, said: Sequence[int]) -> None:
        text = self.lexicon.bytes_of(said[-self.reach :])
        banned = [number for each in self.matchers for number in each.banned(text)]
        logits[torch.tensor(banned, dtype=torch.int64, device=logits.device)] = NEVER


class WordBegins:
    """A ban: right behind a prefix that ends with a whole word comes something new, not more of the word."""

    def __init__(self, constraint: Constraint, prefix: Sequence[int]) -> None:
        self.place, self.allowed = len(prefix), opening(constraint.lexicon, prefix)

    def __call__(self, logits: Tensor, said: Sequence[int]) -> None:
        if len(said) == self.place:
            keep(logits, self.allowed)


def opening(lexicon: Lexicon, tokens: Sequence[int]) -> list[int]:
    """The pieces that begin something new after these tokens, the end among them."""
    text, rest = split_open(lexicon.bytes_of(tokens))
    if not text:
        return [*(number for _, number in lexicon.ordered), lexicon.end]
    return [*lexicon.opening(text[-1], rest), lexicon.end]


def keep(logits: Tensor, allowed: Sequence[int]) -> None:
    """Of a row [V] only these, in place."""
    index = torch.tensor(allowed, dtype=torch.int64, device=logits.device)
    own = logits[index]
    logits.fill_(NEVER)
    logits[index] = own
