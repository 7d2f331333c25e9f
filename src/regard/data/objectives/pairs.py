"""Text to text: translation, and every task that T5 is given in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.dataset import Pool, encode, select
from regard.data.objectives.base import Arranged, AsTheyStand, Columns, Dice, Ids, Loss
from regard.data.rows import Row
from regard.inputs.text import Tokenizer
from regard.sample import Sample


@dataclass(frozen=True)
class Translation:
    """The encoder reads `x_1 .. x_m </s>`; the decoder reads `<s> y_1 .. y_n`, must say `y_1 .. y_n </s>`."""

    start: int
    source_end: int
    target_end: int

    def source(self, ids: Sequence[int]) -> Sample:
        """A source alone, for decoding."""
        return Sample(source=[*ids, self.source_end])

    def pair(self, source: Sequence[int], target: Sequence[int]) -> Sample:
        return Sample(
            source=[*source, self.source_end],
            target=[self.start, *target],
            labels=[*target, self.target_end],
        )


@dataclass(frozen=True)
class Pairs:
    """Rows of a source and a target."""

    source: Tokenizer
    target: Tokenizer
    max_length: int
    loss: Loss = "words"

    @property
    def longest(self) -> int:
        return self.max_length - 1  # one place is for the end

    @property
    def ask(self) -> Translation:
        return Translation(self.target.start, self.source.end, self.target.end)

    def encode(self, rows: Sequence[Row]) -> Columns:
        left = encode([text for _, text, _ in rows], self.source)
        right = encode([text for _, _, text in rows], self.target)
        keep = (left[1] <= self.longest) & (right[1] <= self.longest)
        long = [
            (number, f"{left[1][number]} and {right[1][number]} pieces")
            for number in np.flatnonzero(~keep).tolist()
        ]
        return Columns(select(left, keep), select(right, keep), long)

    def too_long(self, rows: Sequence[Row]) -> list[int]:
        return [number for number, _ in self.encode(rows).left_out]

    def arrange(self, pool: Pool, dice: Dice) -> Arranged:
        return AsTheyStand(pool, self, (1, 1))  # one piece more on each side: the end, the start

    def sample(self, source: Ids, target: Ids, dice: Dice) -> Sample:
        return self.ask.pair(source, target)
