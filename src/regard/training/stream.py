"""The endless stream of training batches; three numbers (epoch, pool, batch) are a position in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from regard.batch import Batch, collate
from regard.compat import VERSION
from regard.data import Dataset, Objective
from regard.data.batches import LAYOUT, MASKS, epoch_pools, generator, plan, row_generator, sizes
from regard.data.dataset import BLOCK, Numbers
from regard.errors import RegardError
from regard.sample import IGNORED, Sample


@dataclass(frozen=True)
class Position:
    """Names one batch; with the run's seed and data its content follows."""

    epoch: int
    pool: int
    batch: int


@dataclass
class Stream:
    """Batch `batch` of pool `pool` of epoch `epoch` is a pure function of (seed, epoch, pool, batch).

    Each of several ranks takes every `world_size`-th sample of a batch, so that all have long and short ones.
    """

    dataset: Dataset
    objective: Objective
    tokens_per_batch: int
    seed: int
    epoch: int = 0
    pool: int = 0
    batch: int = 0
    rank: int = 0
    world_size: int = 1
    version: int = VERSION  # of the run, see regard.compat

    def __post_init__(self) -> None:
        self.open_epoch()
        self.open_pool()

    def open_epoch(self) -> None:
        block = min(BLOCK, self.objective.rows_at_once)
        self.pools = epoch_pools(self.dataset, self.seed, self.epoch, block)
        counts = [int(sizes(blocks).sum()) for blocks in self.pools]
        self.before: list[int] = [0, *np.cumsum(counts).tolist()]  # rows before each pool, and in all

    def open_pool(self) -> None:
        check_file_sizes(self.dataset, self.pools[self.pool])
        rows, stream = self.dataset.load(self.pools[self.pool]), self.pool + 1
        self.rows = self.objective.layout(rows, generator(self.seed, self.epoch, stream, LAYOUT))
        order = generator(self.seed, self.epoch, stream)
        self.batches = plan(self.rows.lengths, self.tokens_per_batch, order)

    def next(self) -> Batch:
        if self.batch >= len(self.batches):
            self.pool, self.batch = self.pool + 1, 0
            if self.pool >= len(self.pools):
                self.epoch, self.pool = self.epoch + 1, 0
                self.open_epoch()
            self.open_pool()
        samples = self.samples(self.batches[self.batch].tolist())
        self.batch += 1
        return collate(samples)

    def example(self) -> Batch:
        """One row of the open pool, from which nothing is learned."""
        return collate([without_labels(self.rows.sample(0, row_generator(self.seed, 0, 0, 0)))])

    @property
    def last_position(self) -> Position:
        """Of the batch that `next` returned."""
        return Position(self.epoch, self.pool, self.batch - 1)

    def samples(self, numbers: Sequence[int]) -> list[Sample]:
        """This rank's samples of a batch. Each row has random numbers of its own, so that a sample depends
        neither on its batch nor on the world size."""
        share = slice(self.rank, None, self.world_size)
        if self.version < 3:  # the rows of a batch drew one after the other, those of other ranks too
            rng = generator(self.seed, self.epoch, self.pool + 1, MASKS, self.batch)
            every = [self.rows.sample(number, rng) for number in numbers]
            return every[share] or [without_labels(every[0])]
        chosen = numbers[share] or numbers[:1]
        rngs = [row_generator(self.seed, self.epoch, self.pool, number) for number in chosen]
        samples = [self.rows.sample(number, rng) for number, rng in zip(chosen, rngs)]
        return samples if numbers[share] else [without_labels(samples[0])]

    def full_batch(self, at: Position) -> Batch:
        """A batch with the samples of all ranks."""
        return replace(self, epoch=at.epoch, pool=at.pool, batch=at.batch, rank=0, world_size=1).next()

    @property
    def batches_per_epoch(self) -> float:
        """Estimated from this pool."""
        before, after = self.before[self.pool : self.pool + 2]
        return len(self.batches) * self.before[-1] / (after - before)

    @property
    def epochs_done(self) -> float:
        before, after = self.before[self.pool : self.pool + 2]
        done = before + (after - before) * self.batch / len(self.batches)
        return float(self.epoch + done / self.before[-1])


def without_labels(sample: Sample) -> Sample:
    """For a rank without a share of a small batch: it takes part with a gradient of zero."""
    return replace(sample, labels=[IGNORED] * len(sample.labels))


def check_file_sizes(dataset: Dataset, blocks: Numbers) -> None:
    """Reading behind the end of a mapped file would end the process with SIGBUS.

    A deleted file is complete as long as it is mapped, and the run continues.
    """
    for part, number in {(part, number) for part, number, _, _ in blocks.tolist()}:
        shard = dataset.parts[part].shards[number]
        for array in (each for side in (shard.source, shard.target) for each in (side.ids, side.lengths)):
            if not isinstance(array, np.memmap) or array.filename is None:
                continue
            file = Path(array.filename)
            if file.exists() and file.stat().st_size < array.offset + array.nbytes:
                raise RegardError(
                    f"{file}: shorter than when the run began; delete its folder, and continue with "
                    "--resume, which prepares it again from the corpora",
                    code="E_DATA_CHANGED",
                )
