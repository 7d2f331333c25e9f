"""Incremental detokenization: whole characters only, up to a stop sequence."""

from __future__ import annotations

from collections.abc import Sequence

from regard.inputs.text import Tokenizer
from regard.tasks.generator import REPLACEMENT_CHARACTER, added_text


class Detokenizer:
    """The text that tokens add to a prompt. `stopped` after a stop sequence, which is not emitted."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str] = ()) -> None:
        self.tokenizer, self.stops = tokenizer, stops
        self.ids = list(prompt)
        self.begin = self.done = len(self.ids)
        self.first = 0  # ids[first:done] are the context in which `rest` is decoded
        self.fixed, self.rest = "", ""  # text of ids[begin:done], and of ids[done:]
        self.emitted = 0  # characters returned so far
        self.begins: list[int] = []  # character offset of each token
        self.stopped = False

    @property
    def text(self) -> str:
        return self.fixed + self.rest

    def add(self, pieces: Sequence[int]) -> str:
        """Add tokens; returns the text that is final now."""
        for piece in pieces:
            if self.stopped:
                break
            self.ids.append(piece)
            before, fixed = self.rest, len(self.fixed)
            self.rest = added_text(self.tokenizer, self.ids[self.first :], self.done - self.first)
            self.begins.append(fixed + begin_of_new(before, self.rest))
            if not self.rest.endswith(REPLACEMENT_CHARACTER):
                self.fixed, self.rest = self.fixed + self.rest, ""
                self.first, self.done = self.done, len(self.ids)
            self.find_stop()
        return self.emit(0 if self.stopped else self.held_back())

    def end(self) -> str:
        """The remaining text, after the last token."""
        self.find_stop()
        return self.emit(0)

    def find_stop(self) -> None:
        places = [place for stop in self.stops if (place := self.text.find(stop)) >= 0]
        if places:
            self.fixed, self.rest, self.stopped = self.text[: min(places)], "", True

    def held_back(self) -> int:
        """Number of final characters that may begin a stop sequence or be incomplete UTF-8."""
        half = len(self.text) - len(self.text.rstrip(REPLACEMENT_CHARACTER))
        partial_stops = [
            size
            for stop in self.stops
            for size in range(1, len(stop))
            if self.text.endswith(stop[:size])
        ]  # fmt: skip
        return max([half, *partial_stops])

    def emit(self, held: int) -> str:
        until = max(self.emitted, len(self.text) - held)
        new, self.emitted = self.text[self.emitted : until], until
        return new


def begin_of_new(before: str, after: str) -> int:
    """Offset of a token in the text it extends; a completed character counts as part of it."""
    stands = after.startswith(before) and not after.endswith(REPLACEMENT_CHARACTER)
    return len(before if stands else before.rstrip(REPLACEMENT_CHARACTER))
