"""A corpus as token ids, and the interface of objectives.

Ids are flat arrays in shards, in memory or mapped from disk. For each side, a shard has all ids one after
another and the length of each row. It is read in blocks of consecutive rows, so that a corpus larger than the
memory is read at the speed of the disk.

When a corpus is prepared, an objective encodes its rows as two columns of ids (`encode`). In training it lays
out the rows of a pool for batches (`layout`), and the layout makes a sample of each of its rows (`sample`),
with a random generator for masks, which are new in every epoch. One trainer serves all tasks.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from regard.data.readers import RawRow
from regard.inputs.text import Tokenizer
from regard.sample import Sample

Ids = npt.NDArray[np.unsignedinteger]
Lengths = npt.NDArray[np.integer]
Numbers = npt.NDArray[np.int64]
Encoded = tuple[Ids, Numbers]  # ids one after another, and the length of each row
BLOCK = 1024  # rows that are read together


@dataclass(frozen=True)
class TokenColumn:
    """One side of some rows: all ids, and where each row starts."""

    ids: Ids
    offsets: Numbers  # one more than there are rows

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> Numbers:
        return np.diff(self.offsets)


class ShardColumn:
    """One side of a shard. `ids` and `lengths` may be mapped from disk: they are only copied from."""

    def __init__(self, ids: Ids, lengths: Lengths) -> None:
        self.ids, self.lengths = ids, lengths
        blocks = np.arange(0, len(lengths), BLOCK)
        sums = np.add.reduceat(lengths, blocks, dtype=np.int64) if len(lengths) else blocks
        self.starts = offsets(sums)  # of each block
        release(lengths)
        if self.starts[-1] != len(ids):
            raise ValueError("the lengths of a shard do not add up to its ids")

    def read(self, first: int, last: int) -> Encoded:
        """Copies of the ids and lengths of rows first .. last-1, all in one block."""
        block = first // BLOCK
        lengths = self.lengths[block * BLOCK : last].astype(np.int64)
        start = int(self.starts[block]) + int(lengths[: first - block * BLOCK].sum())
        lengths = lengths[first - block * BLOCK :]
        return np.array(self.ids[start : start + int(lengths.sum())]), lengths


@dataclass(frozen=True)
class Shard:
    source: ShardColumn
    target: ShardColumn

    def __len__(self) -> int:
        return len(self.source.lengths)


@dataclass(frozen=True)
class CorpusShards:
    """One corpus of a run; `weight` is how often its rows occur in an epoch."""

    shards: Sequence[Shard]
    weight: float = 1.0

    def __len__(self) -> int:
        return sum(len(shard) for shard in self.shards)

    def blocks(self, corpus: int, size: int = BLOCK) -> Numbers:
        """[blocks, 4]: corpus, shard, first and last row of each."""
        rows = [
            (corpus, number, first, min(first + size, len(shard)))
            for number, shard in enumerate(self.shards)
            for first in range(0, len(shard), size)
        ]
        return np.array(rows, dtype=np.int64).reshape(-1, 4)


@dataclass(frozen=True)
class RowPool:
    """Rows in memory."""

    source: TokenColumn
    target: TokenColumn

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Dataset:
    parts: Sequence[CorpusShards]

    def __len__(self) -> int:
        """Rows on disk, each counted once."""
        return sum(len(part) for part in self.parts)

    @property
    def ids(self) -> int:
        """The number of ids on disk, of both sides."""
        shards = [shard for part in self.parts for shard in part.shards]
        return sum(len(column.ids) for shard in shards for column in (shard.source, shard.target))

    def load(self, blocks: Numbers) -> RowPool:
        """The rows of some blocks, in their order."""
        shards = [
            (self.parts[part].shards[shard], first, last) for part, shard, first, last in blocks.tolist()
        ]
        sides = []
        for name in ("source", "target"):
            columns = [(getattr(shard, name), first, last) for shard, first, last in shards]
            read = [column.read(first, last) for column, first, last in columns]
            ids, lengths = (np.concatenate(arrays) for arrays in zip(*read))
            sides.append(TokenColumn(ids, offsets(lengths)))
            for column, _, _ in columns:
                release(column.ids)
                release(column.lengths)
        return RowPool(*sides)


def release(array: npt.NDArray[np.generic]) -> None:
    """Release the pages of a mapped file, so that they do not stay in memory."""
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def offsets(lengths: npt.NDArray[np.integer]) -> Numbers:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def encode(texts: Sequence[str], tokenizer: Tokenizer) -> Encoded:
    return column(tokenizer.encode_batch(texts), narrowest(len(tokenizer)))


def column(rows: Sequence[Sequence[int]], dtype: np.dtype[np.unsignedinteger]) -> Encoded:
    """Rows of numbers one after another, and the length of each."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return np.fromiter((number for row in rows for number in row), dtype, int(lengths.sum())), lengths


def select(encoded: Encoded, keep: npt.NDArray[np.bool_]) -> Encoded:
    """The rows where `keep` is true."""
    ids, lengths = encoded
    return (ids, lengths) if keep.all() else (ids[np.repeat(keep, lengths)], lengths[keep])


def narrowest(numbers: int) -> np.dtype[np.unsignedinteger]:
    """The smallest dtype for the ids 0 .. numbers-1."""
    return np.dtype(np.uint16 if numbers <= 1 << 16 else np.uint32)


# --- the interface of objectives

TokenIds = Sequence[int]
Rng = np.random.Generator
# Labels are: a token or label at each position; a first and a last position; 0 or 1 for each label.
Loss = Literal["words", "ends", "many"]

UINT32 = np.dtype(np.uint32)  # for numbers that are not token ids


@dataclass(frozen=True)
class Encodings:
    """Some rows as ids, and (number among these rows, reason) of rows that are left out."""

    source: Encoded
    target: Encoded
    too_long: Sequence[tuple[int, str]] = field(default_factory=list)
    unreadable: Sequence[tuple[int, str]] = field(default_factory=list)

    @property
    def left_out(self) -> list[tuple[int, str, str]]:
        """(number, kind of issue, reason)."""
        long = [(number, "too-long", note) for number, note in self.too_long]
        return long + [(number, "unreadable", note) for number, note in self.unreadable]


class BatchLayout(Protocol):
    """The rows of batches, made of a pool."""

    @property
    def lengths(self) -> Numbers:
        """[rows, sides]: tokens of each row, to plan batches."""
        ...

    def sample(self, number: int, rng: Rng) -> Sample: ...


class Objective(ABC):
    @property
    @abstractmethod
    def loss(self) -> Loss: ...

    @property
    @abstractmethod
    def longest(self) -> int:
        """The maximum number of ids in a row of a column."""

    @abstractmethod
    def encode(self, rows: Sequence[RawRow]) -> Encodings: ...

    def left_out(self, rows: Sequence[RawRow]) -> dict[int, str]:
        """The kind of issue of rows that exceed the model's positions (none if an objective splits rows) or
        cannot be read, by number."""
        starts = range(0, len(rows), self.rows_at_once)
        parts = ((start, self.encode(rows[start : start + self.rows_at_once])) for start in starts)
        return {start + number: kind for start, part in parts for number, kind, _ in part.left_out}

    @property
    def plain(self) -> Objective:
        """The objective of held-out texts, which are not modified."""
        return self

    def token_counts(self, column: ShardColumn) -> Lengths:
        """Tokens of each row; a column may hold more."""
        return column.lengths

    @abstractmethod
    def layout(self, pool: RowPool, rng: Rng) -> BatchLayout: ...

    rows_at_once: ClassVar[int] = 1 << 16  # that are encoded in memory


class RowObjective(Objective):
    """An objective that makes a sample of each row by itself."""

    @property
    @abstractmethod
    def extra(self) -> tuple[int, int]:
        """Special tokens that a sample adds to each column."""

    @abstractmethod
    def sample(self, source: TokenIds, target: TokenIds, rng: Rng) -> Sample: ...

    def layout(self, pool: RowPool, rng: Rng) -> BatchLayout:
        return RowWise(pool, self)


@dataclass(frozen=True)
class RowWise:
    """Each row of the pool is a row of a batch."""

    pool: RowPool
    objective: RowObjective

    @property
    def lengths(self) -> Numbers:
        both: Numbers = np.stack([self.pool.source.lengths, self.pool.target.lengths], axis=1)
        return np.add(both, self.objective.extra)

    def sample(self, number: int, rng: Rng) -> Sample:
        source, target = self.pool.source[number], self.pool.target[number]
        return self.objective.sample(source.tolist(), target.tolist(), rng)
