"""Tokens as text while they are generated: a character waits until it is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from regard.inputs.text.tokenizer import Tokenizer

REPLACEMENT_CHARACTER = "\ufffd"  # of bytes that are no complete character, perhaps not yet


class Detokenizer:
    """The text that tokens add to a prompt. `stopped` after a stop sequence, which is not emitted.

    Each time only the tokens since the last complete character are decoded, with those before them, on which
    the space between depends.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str] = ()) -> None:
        self.tokenizer, self.stops = tokenizer, stops
        self.ids = list(prompt)
        self.first, self.done = 0, len(self.ids)  # ids[first:done] are the context in which `rest` is decoded
        self.fixed, self.rest = (
            "",
            "",
        )  # text before ids[done:] that is not emitted yet, and text of ids[done:]
        self.base, self.emitted = 0, 0  # character offset of `fixed`, and of what was not emitted yet
        self.begins: list[int] = []  # character offset of each token, without those behind a stop sequence
        self.stopped = False

    def add(self, tokens: Iterable[int]) -> str:
        """Add tokens; returns the text that is final now."""
        for token in tokens:
            if self.stopped:
                break
            self.ids.append(token)
            before = self.rest
            self.rest = added_text(self.tokenizer, self.ids[self.first :], self.done - self.first)
            self.begins.append(self.base + len(self.fixed) + begin_of_new(before, self.rest))
            if self.rest and not self.rest.endswith(REPLACEMENT_CHARACTER):
                self.fixed, self.rest = self.fixed + self.rest, ""
                self.first, self.done = self.done, len(self.ids)
            self.find_stop()
        return self.emit(0 if self.stopped else self.held_back())

    def find_stop(self) -> None:
        text = self.fixed + self.rest  # the beginning of a stop sequence is never emitted
        places = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        if places:
            self.fixed, self.rest, self.stopped = text[: min(places)], "", True
            self.begins = [begin for begin in self.begins if begin < self.base + len(self.fixed)]

    def held_back(self) -> int:
        """Number of final characters that may begin a stop sequence or be incomplete UTF-8."""
        text = self.fixed + self.rest
        incomplete = len(text) - len(text.rstrip(REPLACEMENT_CHARACTER))
        sizes = (size for stop in self.stops for size in range(1, len(stop)) if text.endswith(stop[:size]))
        return max([incomplete, *sizes])

    def emit(self, held: int = 0) -> str:
        """The text that is new, without its last characters; without any held back it is the end."""
        text = self.fixed + self.rest
        until = max(self.emitted, self.base + len(text) - held)
        new = text[self.emitted - self.base : until - self.base]
        dropped = min(len(self.fixed), until - self.base)
        self.emitted, self.base, self.fixed = until, self.base + dropped, self.fixed[dropped:]
        return new


def detokenize_stream(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
    """The text that tokens add to a prompt, as they come."""
    detokenizer = Detokenizer(tokenizer, prompt)
    for token in tokens:
        if text := detokenizer.add([token]):
            yield text
    if rest := detokenizer.emit():
        yield rest


def begin_of_new(before: str, after: str) -> int:
    """Offset of a token in the text it extends; a completed character counts as part of it."""
    stands = after.startswith(before) and not after.endswith(REPLACEMENT_CHARACTER)
    return len(before if stands else before.rstrip(REPLACEMENT_CHARACTER))


def added_text(tokenizer: Tokenizer, ids: Sequence[int], before: int) -> str:
    """What ids[before:] add to the text of the ids before them."""
    start, whole = tokenizer.decode(ids[:before]), tokenizer.decode(ids)
    return whole[len(start) :] if whole.startswith(start) else tokenizer.decode(ids[before:])
