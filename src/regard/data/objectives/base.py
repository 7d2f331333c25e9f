"""What every objective is.

An objective makes two columns of ids from rows of text, once, when a corpus is prepared (`encode`); it lays
the rows of a pool out for batches (`arrange`); and it makes of one of them what a model sees at a moment
(`sample`), with dice for what is drawn anew each time. So one stream, one cache, one trainer serve all tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from regard.data.dataset import Encoded, Numbers, Pool
from regard.data.rows import Row
from regard.sample import Sample

Ids = Sequence[int]
Dice = np.random.Generator
# what labels are: a word or label at each position, two ends among the positions, a yes or no to each label
Loss = Literal["words", "ends", "many"]


@dataclass(frozen=True)
class Columns:
    """Some rows as ids; `left_out` are (number among these rows, why) of those that are too long."""

    source: Encoded
    target: Encoded
    left_out: Sequence[tuple[int, str]] = field(default_factory=list)


class Arranged(Protocol):
    """The rows of a pool as they stand in batches."""

    @property
    def lengths(self) -> Numbers:
        """[rows, sides]: what batches are planned by."""
        ...

    def sample(self, number: int, dice: Dice) -> Sample: ...


class Objective(Protocol):
    @property
    def loss(self) -> Loss: ...

    @property
    def longest(self) -> int:
        """The most ids in one row of a column."""
        ...

    def encode(self, rows: Sequence[Row]) -> Columns: ...

    def too_long(self, rows: Sequence[Row]) -> list[int]:
        """Numbers of the rows that a model of so many positions cannot read; others are read or cut."""
        ...

    def arrange(self, pool: Pool, dice: Dice) -> Arranged: ...


class Asking(Protocol):
    """An objective that asks of each row by itself."""

    def sample(self, source: Ids, target: Ids, dice: Dice) -> Sample: ...


@dataclass(frozen=True)
class AsTheyStand:
    """Each row of the pool is a row of a batch."""

    pool: Pool
    ask: Asking
    extra: tuple[int, int]  # ids that a sample has more than each column

    @property
    def lengths(self) -> Numbers:
        both: Numbers = np.stack([self.pool.source.lengths, self.pool.target.lengths], axis=1)
        return np.add(both, self.extra)

    def sample(self, number: int, dice: Dice) -> Sample:
        return self.ask.sample(self.pool.source[number].tolist(), self.pool.target[number].tolist(), dice)


WIDE = np.dtype(np.uint32)  # for numbers that are no pieces
