"""The interface of objectives.

When a corpus is prepared, an objective encodes its rows as two columns of ids (`encode`). In training it lays
out the rows of a pool for batches (`layout`), and the layout makes a sample of each of its rows (`sample`),
with a random generator for masks, which are new in every epoch. One trainer serves all tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from regard.data.dataset import Encoded, Numbers, RowPool
from regard.data.readers import RawRow
from regard.sample import Sample

Ids = Sequence[int]
Rng = np.random.Generator
# Labels are: a token or label at each position; a first and a last position; 0 or 1 for each label.
Loss = Literal["words", "ends", "many"]

UINT32 = np.dtype(np.uint32)  # for numbers that are not token ids


@dataclass(frozen=True)
class Encodings:
    """Some rows as ids; `left_out` has (number among these rows, reason) for rows that are too long."""

    source: Encoded
    target: Encoded
    left_out: Sequence[tuple[int, str]] = field(default_factory=list)


class BatchLayout(Protocol):
    """The rows of batches, made of a pool."""

    @property
    def lengths(self) -> Numbers:
        """[rows, sides]: tokens of each row, to plan batches."""
        ...

    def sample(self, number: int, rng: Rng) -> Sample: ...


class Objective(Protocol):
    @property
    def loss(self) -> Loss: ...

    @property
    def longest(self) -> int:
        """The maximum number of ids in a row of a column."""
        ...

    def encode(self, rows: Sequence[RawRow]) -> Encodings: ...

    def too_long(self, rows: Sequence[RawRow]) -> list[int]:
        """Numbers of the rows that exceed the model's positions; objectives that split rows return []."""
        ...

    def layout(self, pool: RowPool, rng: Rng) -> BatchLayout: ...


class RowObjective(Protocol):
    """An objective that makes a sample of each row by itself."""

    def sample(self, source: Ids, target: Ids, rng: Rng) -> Sample: ...


@dataclass(frozen=True)
class RowWise:
    """Each row of the pool is a row of a batch."""

    pool: RowPool
    objective: RowObjective
    extra: tuple[int, int]  # special tokens that a sample adds to each column

    @property
    def lengths(self) -> Numbers:
        both: Numbers = np.stack([self.pool.source.lengths, self.pool.target.lengths], axis=1)
        return np.add(both, self.extra)

    def sample(self, number: int, rng: Rng) -> Sample:
        source, target = self.pool.source[number], self.pool.target[number]
        return self.objective.sample(source.tolist(), target.tolist(), rng)
