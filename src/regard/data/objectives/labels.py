"""What a text is (classify), and what each of its words is (tag)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.data.dataset import Pool, column, encode, narrowest, select
from regard.data.objectives.base import WIDE, Arranged, AsTheyStand, Columns, Dice, Ids, Loss
from regard.data.rows import BETWEEN_LABELS, Row
from regard.inputs.text import Tokenizer
from regard.sample import IGNORED, Sample


@dataclass(frozen=True)
class Labels:
    """One label of a text, or with `many` a yes or no for each label there is."""

    tokenizer: Tokenizer
    max_length: int
    labels: Sequence[str]
    many: bool = False

    @property
    def loss(self) -> Loss:
        return "many" if self.many else "words"

    @property
    def longest(self) -> int:
        return self.max_length - 2  # a start and an end

    @cached_property
    def number(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def encode(self, rows: Sequence[Row]) -> Columns:
        texts = encode([text for _, text, _ in rows], self.tokenizer)
        own = [[self.number[label] for label in split_labels(labels)] for _, _, labels in rows]
        keep = texts[1] <= self.longest
        long = [(number, f"{texts[1][number]} pieces") for number in np.flatnonzero(~keep).tolist()]
        return Columns(select(texts, keep), select(column(own, WIDE), keep), long)

    def too_long(self, rows: Sequence[Row]) -> list[int]:
        _, lengths = encode([text for _, text, _ in rows], self.tokenizer)
        return [int(number) for number in np.flatnonzero(lengths > self.longest)]

    def arrange(self, pool: Pool, dice: Dice) -> Arranged:
        return AsTheyStand(pool, self, (2, 0))

    def text(self, ids: Ids) -> Sample:
        """A text alone."""
        return Sample(source=[self.tokenizer.start, *ids, self.tokenizer.end])

    def sample(self, source: Ids, target: Ids, dice: Dice | None = None) -> Sample:
        labels = [int(number in target) for number in range(len(self.labels))] if self.many else target
        return Sample(self.text(source).source, labels=labels)

    def held(self, text: Ids, labels: str) -> Sample:
        """A label that training never saw is not asked for."""
        known = [self.number.get(label, IGNORED) for label in split_labels(labels)]
        return self.sample(text, known)


def split_labels(joined: str) -> list[str]:
    return joined.split(BETWEEN_LABELS) if joined else []


@dataclass(frozen=True)
class Tags:
    """A tag of each word, asked at the word's first piece."""

    tokenizer: Tokenizer
    max_length: int
    labels: Sequence[str]
    loss: Loss = "words"

    @property
    def longest(self) -> int:
        return self.max_length - 2

    @cached_property
    def number(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def encode(self, rows: Sequence[Row]) -> Columns:
        pieces, tags, long = [], [], []
        for number, (_, text, row_tags) in enumerate(rows):
            ids, first = self.cut(text.split(" "))
            if len(ids) > self.longest:
                long.append((number, f"{len(ids)} pieces"))
                continue
            own = [0] * len(ids)  # 0: nothing is asked
            for place, tag in zip(first, row_tags.split(" ")):
                if place is not None:
                    own[place] = self.number[tag] + 1
            pieces.append(ids)
            tags.append(own)
        return Columns(column(pieces, narrowest(len(self.tokenizer))), column(tags, WIDE), long)

    def cut(self, words: Sequence[str]) -> tuple[list[int], list[int | None]]:
        """The pieces of a sentence, and the first piece of each word (None where a word leaves none)."""
        ids, spans = self.tokenizer.spans(" ".join(words))
        first: list[int | None] = []
        begin = place = 0
        for word in words:
            while place < len(spans) and spans[place][1] <= begin:
                place += 1  # pieces that end before the word
            end = begin + len(word)
            first.append(place if place < len(spans) and spans[place][0] < end else None)
            begin = end + 1
        return list(ids), first

    def too_long(self, rows: Sequence[Row]) -> list[int]:
        sizes = [len(self.cut(text.split(" "))[0]) for _, text, _ in rows]
        return [number for number, size in enumerate(sizes) if size > self.longest]

    def arrange(self, pool: Pool, dice: Dice) -> Arranged:
        return AsTheyStand(pool, self, (2, 2))

    def text(self, ids: Ids) -> Sample:
        return Sample(source=[self.tokenizer.start, *ids, self.tokenizer.end])

    def sample(self, source: Ids, target: Ids, dice: Dice | None = None) -> Sample:
        labels = [IGNORED, *(tag - 1 if tag else IGNORED for tag in target), IGNORED]
        return Sample(self.text(source).source, labels=labels)
