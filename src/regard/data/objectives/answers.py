"""Where the answer stands: the first and the last piece of it in a context (Devlin et al. 2019, 4.2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.dataset import Pool, column, narrowest
from regard.data.objectives.base import WIDE, Arranged, AsTheyStand, Columns, Dice, Ids, Loss
from regard.data.rows import Row
from regard.inputs.text import Tokenizer
from regard.sample import Sample

LEAST_ROOM = 8  # pieces of a context beside a question
NOWHERE = (0, 0)  # the start's place: no answer here


@dataclass(frozen=True)
class Window:
    """A question with a piece of its context: `<s> question </s> context </s>`."""

    ids: Sequence[int]
    begins: int  # the place of the first piece of the context
    spans: Sequence[tuple[int, int]]  # characters of each context piece, in the whole context

    def places(self, start: int, end: int) -> tuple[int, int]:
        """First and last piece of characters start .. end-1, `NOWHERE` if they are not all in this window."""
        inside = [number for number, span in enumerate(self.spans) if span[1] > start and span[0] < end]
        whole = inside and self.spans[0][0] <= start and self.spans[-1][1] >= end
        return (self.begins + inside[0], self.begins + inside[-1]) if whole else NOWHERE


@dataclass(frozen=True)
class Answers:
    """A context that is too long is read in windows that overlap; most of them do not hold the answer."""

    tokenizer: Tokenizer
    max_length: int
    stride: int  # pieces that two windows share, half a window at most
    loss: Loss = "ends"

    @property
    def longest(self) -> int:
        return self.max_length

    def windows(self, question: str, context: str) -> list[Window]:
        """Empty where a question leaves no room for a context."""
        start, end = self.tokenizer.start, self.tokenizer.end
        asked = self.tokenizer.encode(question)
        ids, spans = self.tokenizer.spans(context)
        room = self.max_length - len(asked) - 3
        if room < min(len(ids), LEAST_ROOM):
            return []
        stride = min(self.stride, room // 2)
        firsts = range(0, len(ids) - stride, room - stride) if room < len(ids) else [0]
        own = [slice(first, first + room) for first in firsts]
        return [Window([start, *asked, end, *ids[each], end], len(asked) + 2, spans[each]) for each in own]

    def encode(self, rows: Sequence[Row]) -> Columns:
        windows, places, long = [], [], []
        for number, (_, text, answers) in enumerate(rows):
            question, _, context = text.partition("\n")
            found = self.windows(question, context)
            if not found:
                long.append((number, "its question leaves no room for a context"))
            own = [self.first_answer(window, answers) for window in found]
            if found and answers != "[]" and all(each == NOWHERE for each in own):
                # to learn it would be to learn that there is none
                long.append((number, "no window holds its whole answer; raise task.stride or max_length"))
                continue
            windows += [window.ids for window in found]
            places += [[window.begins, *each] for window, each in zip(found, own)]
        return Columns(column(windows, narrowest(len(self.tokenizer))), column(places, WIDE), long)

    def too_long(self, rows: Sequence[Row]) -> list[int]:
        parts = [text.partition("\n") for _, text, _ in rows]
        return [number for number, (q, _, context) in enumerate(parts) if not self.windows(q, context)]

    @staticmethod
    def first_answer(window: Window, answers: str) -> tuple[int, int]:
        known = json.loads(answers)
        if not known:
            return NOWHERE
        text, start = known[0]  # several are opinions about the same; we learn one
        begin = start + len(text) - len(text.lstrip())
        return window.places(begin, start + len(text.rstrip()))

    def arrange(self, pool: Pool, dice: Dice) -> Arranged:
        return AsTheyStand(pool, self, (0, 0))

    def sample(self, source: Ids, target: Ids, dice: Dice | None = None) -> Sample:
        begins, *places = target
        return Sample(source, labels=places, segments=segments(len(source), begins))

    def text(self, window: Window) -> Sample:
        """A window alone."""
        return Sample(window.ids, segments=segments(len(window.ids), window.begins))


def segments(length: int, begins: int) -> list[int]:
    return [0] * begins + [1] * (length - begins)
