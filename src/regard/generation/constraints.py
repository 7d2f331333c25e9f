"""Required and forbidden phrases: whether a text contains one as whole words, and which tokens spell it.

A tokenizer can segment the same text in many ways, so nothing here compares ids: tokens are bytes, and what
counts is the text they make. At its end a text may hold the first bytes of an incomplete character; whether
that becomes a letter is unknown, so a phrase before it is open: neither complete nor part of a longer word.
"""

from __future__ import annotations

import codecs
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, permutations

from regard.errors import UsageError
from regard.inputs.text import Tokenizer

# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Han.
_SPACELESS = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF)),
    *((0x3400, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF)),
)
MAX_CHARACTER = 4  # bytes of a character in UTF-8
ALL_ORDERS = 4  # phrases of which every order is tried


def is_spaceless(character: str) -> bool:
    return any(low <= ord(character) <= high for low, high in _SPACELESS)


@lru_cache(maxsize=4096)
def is_word_character(character: str) -> bool:
    """Whether a character forms one word with a neighbour of its kind: letters, digits, marks, `_`."""
    is_part = character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"
    return is_part and not is_spaceless(character)


def is_boundary(left: str, right: str) -> bool:
    """Whether a word can end between these characters; an empty one is the edge of the text."""
    return not (left and right and is_word_character(left) and is_word_character(right))


def decode_partial(content: bytes) -> tuple[str, bytes]:
    """The text of bytes, and the bytes of an incomplete character at their end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content)
    return text, decoder.getstate()[0]


def word_end(left: str, following: bytes) -> str:
    """Whether a word that ends in `left` is "complete" before these bytes, "glued" to them, or "open"."""
    if not is_word_character(left):
        return "complete"
    text, _ = decode_partial(following[:MAX_CHARACTER])
    if not text:
        return "open"
    return "complete" if is_boundary(left, text[0]) else "glued"


@dataclass(frozen=True)
class ConstraintPhrase:
    """A phrase, and the tokens that spell it inside a sentence."""

    text: str
    tokens: tuple[int, ...] = ()
    lone_space: bool = False  # whether the first token is only the space before the phrase

    @property
    def content(self) -> bytes:
        return self.text.encode()

    def is_in(self, text: str) -> bool:
        """Whether a text contains the phrase as whole words."""
        start = text.find(self.text)
        while start >= 0:
            end = start + len(self.text)
            before, after = text[:start][-1:], text[end : end + 1]
            if is_boundary(before, self.text[0]) and is_boundary(self.text[-1], after):
                return True
            start = text.find(self.text, start + 1)
        return False


@dataclass(eq=False)
class Lexicon:
    """The tokens of a target vocabulary as bytes, by id; None for a special token."""

    content: Sequence[bytes | None]
    encode: Callable[[str], list[int]]
    end: int
    by_content: dict[bytes, int] = field(init=False)
    ordered: list[tuple[bytes, int]] = field(init=False)
    word_starts: dict[tuple[bytes, bool], list[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.ordered = sorted((content, token) for token, content in enumerate(self.content) if content)
        self.by_content = dict(self.ordered)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Lexicon:
        return cls(tokenizer.token_bytes, tokenizer.encode, tokenizer.end)

    def bytes_of(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.content[token] or b"" for token in tokens)

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens up to the last complete character."""
        return decode_partial(self.bytes_of(tokens))[0]

    def phrase(self, text: str) -> ConstraintPhrase:
        """A phrase as a user wrote it. In scripts with spaces, its tokens begin with one."""
        text = text.strip()
        if not text:
            raise UsageError(
                "a required or forbidden phrase is empty; give at least one word", code="E_PHRASE"
            )
        tokens = self.encode(text)
        if not tokens:
            raise UsageError(
                f"{text!r}: the tokenizer drops all of this phrase; give another", code="E_PHRASE"
            )
        first = self.content[tokens[0]] or b""
        if is_spaceless(text[0]):
            bare = self.spell(first.removeprefix(b" "))
            tokens = tokens if bare is None else [*bare, *tokens[1:]]
        elif not first.startswith(b" "):
            tokens = self.encode(f" {text}")
        return ConstraintPhrase(text, tuple(tokens), lone_space=self.content[tokens[0]] == b" ")

    def constraint(self, require: Sequence[str], forbid: Sequence[str]) -> Constraint:
        """The constraint of one translation; a phrase that is both required and forbidden is an error."""
        required = [self.phrase(text) for text in dict.fromkeys(require)]
        forbidden = [self.phrase(text) for text in dict.fromkeys(forbid)]
        for phrase in required:
            if clash := next((each for each in forbidden if each.is_in(phrase.text)), None):
                raise UsageError(
                    f'"{phrase.text}" is required, but "{clash.text}" is forbidden', code="E_PHRASE_CONFLICT"
                )
        # a phrase that is part of another one needs no tokens of its own
        needed = [p for p in required if not any(p != other and p.is_in(other.text) for other in required)]
        return Constraint(self, tuple(dict.fromkeys(needed)), tuple(forbidden))

    def spell(self, content: bytes) -> list[int] | None:
        """A token with these bytes, or else one per byte; None if there are no such tokens."""
        if not content:
            return []
        if (whole := self.by_content.get(content)) is not None:
            return [whole]
        single = [self.by_content.get(bytes([byte])) for byte in content]
        return None if None in single else [each for each in single if each is not None]

    def starting_with(self, start: bytes) -> list[tuple[bytes, int]]:
        """The tokens whose bytes start with `start`, as (remaining bytes, id)."""
        matches = []
        for content, token in self.ordered[bisect_left(self.ordered, (start, -1)) :]:
            if not content.startswith(start):
                break
            matches.append((content[len(start) :], token))
        return matches

    def new_word_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The tokens that start a new word after these ones, the end token last."""
        text, partial = decode_partial(self.bytes_of(tokens))
        if not text:
            return [*(token for _, token in self.ordered), self.end]
        key = (partial, is_word_character(text[-1]))
        if key not in self.word_starts:
            self.word_starts[key] = [
                token
                for content, token in self.ordered
                if word_end(text[-1], partial + content) == "complete"
            ]
        return [*self.word_starts[key], self.end]


@dataclass(frozen=True)
class Constraint:
    """Phrases that the translation of one source must and must not contain."""

    lexicon: Lexicon
    require: tuple[ConstraintPhrase, ...] = ()
    forbid: tuple[ConstraintPhrase, ...] = ()
    whole_prefix: bool = False  # the forced prefix ends with a whole word

    @property
    def size(self) -> int:
        """Tokens of all required phrases together."""
        return sum(len(phrase.tokens) for phrase in self.require)

    def missing(self, tokens: Sequence[int]) -> list[ConstraintPhrase]:
        """The required phrases that these tokens do not contain as whole words."""
        text = self.lexicon.text_of(tokens)
        return [phrase for phrase in self.require if not phrase.is_in(text)]

    def banned_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The tokens that would complete a forbidden phrase after these ones."""
        matchers = [phrase_matcher(phrase, self.lexicon) for phrase in self.forbid]
        reach = max(len(matcher.content) for matcher in matchers) + MAX_CHARACTER  # a token has >= 1 byte
        text = self.lexicon.bytes_of(tokens[-reach:])
        return [token for matcher in matchers for token in matcher.banned(text)]


class PhraseMatcher:
    """The tokens that complete one forbidden phrase, by how many of its bytes the text ends with.

    The text must not contain the phrase at any step, not even at its end, where it could still become a
    longer word: a beam that passes there continues with letters glued to the forbidden word. So "Kind" also
    excludes "Kindern" if the tokenizer segments it as `Kind|ern`, but not as `Kin|dern`.
    """

    def __init__(self, phrase: ConstraintPhrase, lexicon: Lexicon) -> None:
        self.first, self.last, self.content = phrase.text[0], phrase.text[-1], phrase.content
        self.lexicon = lexicon
        self.completing = [
            [token for rest, token in lexicon.starting_with(self.content[count:]) if self.stays(rest)]
            for count in range(len(self.content))
        ]
        self.inside: list[int] = []
        self.after_partial: list[tuple[int, int]] = []  # (id, where the phrase starts in the token)
        for content, token in lexicon.ordered:
            self.find_inside(content, token)

    def stays(self, following: bytes) -> bool:
        """Whether the phrase is a whole word before these bytes, as far as they are known."""
        return word_end(self.last, following) != "glued"

    def find_inside(self, content: bytes, token: int) -> None:
        """Record a token that contains the phrase after its first byte."""
        start = content.find(self.content, 1)
        while start > 0:
            if self.stays(content[start + len(self.content) :]):
                if all(0x80 <= byte < 0xC0 for byte in content[:start]):  # completes a character of the text
                    self.after_partial.append((token, start))
                elif self.starts_word(content, start):
                    self.inside.append(token)
            start = content.find(self.content, start + 1)

    def banned(self, text: bytes) -> list[int]:
        """The tokens that must not follow a text."""
        tokens = list(self.inside)
        for count, completing in enumerate(self.completing):
            if (
                completing
                and text.endswith(self.content[:count])
                and self.starts_word(text, len(text) - count)
            ):
                tokens += completing
        for token, start in self.after_partial:
            content = self.lexicon.content[token] or b""
            if self.starts_word(text + content, len(text) + start):
                tokens.append(token)
        return tokens

    def starts_word(self, text: bytes, start: int) -> bool:
        """Whether a word can start at this byte."""
        before = text[max(0, start - MAX_CHARACTER) : start].decode(errors="replace")
        return is_boundary(before[-1:], self.first)


@lru_cache(maxsize=4096)
def phrase_matcher(phrase: ConstraintPhrase, lexicon: Lexicon) -> PhraseMatcher:
    return PhraseMatcher(phrase, lexicon)


class PhraseProgress:
    """The required phrases that a hypothesis lacks, and which tokens continue them.

    A phrase is complete if the text contains it as whole words. One at the very end is open: if the next
    token is glued to it, it is incomplete again, as "das klein" in "das kleine Haus". Both are considered.
    """

    def __init__(self, constraint: Constraint, tokens: Sequence[int]) -> None:
        self.lexicon, self.tokens = constraint.lexicon, tokens
        text = self.lexicon.text_of(tokens)
        self.last = text[-1:]
        self.missing = constraint.missing(tokens)
        glued = f"{text}x"
        self.open = [p for p in constraint.require if p not in self.missing and not p.is_in(glued)]

    def next_tokens(self) -> list[int]:
        """The tokens that continue a missing phrase, or extend an open one to a longer one."""
        tokens = [phrase.tokens[self.started(phrase, glue=not self.open)] for phrase in self.missing]
        if self.open:
            tokens += [phrase.tokens[self.started(phrase, glue=True)] for phrase in self.missing]
        return list(dict.fromkeys(tokens))

    def needed(self) -> int:
        """A number of tokens that suffices to complete every phrase; overlapping phrases share tokens."""
        if not self.missing:
            return 0
        keeping = self.needed_for(self.missing, glue=not self.open)
        if not self.open:
            return keeping
        return min(keeping, self.needed_for([*self.missing, *self.open], glue=True))

    def needed_for(self, phrases: Sequence[ConstraintPhrase], glue: bool) -> int:
        size = sum(len(phrase.tokens) for phrase in phrases)
        return min(
            size - self.started(order[0], glue) - sum(self.overlap(one, two) for one, two in pairwise(order))
            for order in phrase_orders(phrases)
        )

    def started(self, phrase: ConstraintPhrase, glue: bool) -> int:
        """How many tokens of a phrase, not all, end the hypothesis; `glue` allows gluing to an open one."""
        tokens = self.tokens
        if phrase.lone_space and len(tokens) < len(phrase.tokens):
            tokens = [phrase.tokens[0], *tokens]  # the start of a text separates words as a space does
        return shared_tokens(tokens, phrase, lambda token: glue or self.completes(self.last, token))

    def overlap(self, one: ConstraintPhrase, two: ConstraintPhrase) -> int:
        """Tokens at the end of one phrase that may start the other."""
        return shared_tokens(one.tokens, two, lambda token: self.completes(one.text[-1], token))

    def completes(self, last: str, token: int) -> bool:
        return word_end(last, self.lexicon.content[token] or b"") == "complete"


def shared_tokens(tokens: Sequence[int], phrase: ConstraintPhrase, may_follow: Callable[[int], bool]) -> int:
    """The most tokens at the end of `tokens` that start the phrase, if its next token may follow."""
    for count in range(min(len(phrase.tokens) - 1, len(tokens)), 0, -1):
        if tuple(tokens[-count:]) == phrase.tokens[:count] and may_follow(phrase.tokens[count]):
            return count
    return 0


def phrase_orders(phrases: Sequence[ConstraintPhrase]) -> Iterable[Sequence[ConstraintPhrase]]:
    """Every order of a few phrases; of many, each of them first."""
    if len(phrases) <= ALL_ORDERS:
        return permutations(phrases)
    return [[first, *(phrase for phrase in phrases if phrase is not first)] for first in phrases]
