"""The endless stream of training batches, with a place in it that three numbers name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from regard.batch import Batch, collate
from regard.data import Dataset, Objective
from regard.data.batches import LAYOUT, MASKS, epoch_pools, generator, plan, sizes
from regard.data.dataset import Numbers
from regard.errors import RegardError
from regard.sample import IGNORED, Sample


@dataclass
class Stream:
    """Batch `place` of pool `pool` of epoch `epoch` is a pure function of (seed, epoch, pool, place).

    Of several processes each has every `ranks`-th of its samples, so that all have long and short ones.
    """

    dataset: Dataset
    objective: Objective
    tokens_per_batch: int
    seed: int
    epoch: int = 0
    pool: int = 0
    place: int = 0
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        self.open_epoch()
        self.open_pool()

    def open_epoch(self) -> None:
        self.pools = epoch_pools(self.dataset, self.seed, self.epoch)
        counts = [int(sizes(blocks).sum()) for blocks in self.pools]
        self.before: list[int] = [0, *np.cumsum(counts).tolist()]  # pairs before each pool, and in all

    def open_pool(self) -> None:
        see_that_files_are_whole(self.dataset, self.pools[self.pool])
        rows, stream = self.dataset.load(self.pools[self.pool]), self.pool + 1
        self.rows = self.objective.layout(rows, generator(self.seed, self.epoch, stream, LAYOUT))
        order = generator(self.seed, self.epoch, stream)
        self.batches = plan(self.rows.lengths, self.tokens_per_batch, order)

    def next(self) -> Batch:
        if self.place >= len(self.batches):
            self.pool, self.place = self.pool + 1, 0
            if self.pool >= len(self.pools):
                self.epoch, self.pool = self.epoch + 1, 0
                self.open_epoch()
            self.open_pool()
        samples = self.samples(self.batches[self.place].tolist())
        self.place += 1
        return collate(samples)

    def samples(self, numbers: Sequence[int]) -> list[Sample]:
        """The own ones of a batch's. Where dice are thrown, they are for all: each has its own throws."""
        dice = generator(self.seed, self.epoch, self.pool + 1, MASKS, self.place)
        if self.ranks == 1:
            return [self.rows.sample(number, dice) for number in numbers]
        before, share = str(dice.bit_generator.state), slice(self.rank, None, self.ranks)
        own = [self.rows.sample(number, dice) for number in numbers[share] or numbers[:1]]
        if str(dice.bit_generator.state) != before:
            dice = generator(self.seed, self.epoch, self.pool + 1, MASKS, self.place)
            every = [self.rows.sample(number, dice) for number in numbers]
            own = every[share] or every[:1]
        return own if numbers[share] else [unasked(own[0])]

    def whole(self, epoch: int, pool: int, place: int) -> Batch:
        """A batch with the samples of all processes."""
        return replace(self, epoch=epoch, pool=pool, place=place, rank=0, ranks=1).next()

    @property
    def batches_per_epoch(self) -> float:
        """As many as the pairs of this pool have, for all."""
        before, after = self.before[self.pool : self.pool + 2]
        return len(self.batches) * self.before[-1] / (after - before)

    @property
    def epochs_done(self) -> float:
        before, after = self.before[self.pool : self.pool + 2]
        done = before + (after - before) * self.place / len(self.batches)
        return float(self.epoch + done / self.before[-1])


def unasked(sample: Sample) -> Sample:
    """For a process without a share, so that it takes part with a gradient of zero."""
    return replace(sample, labels=[IGNORED] * len(sample.labels))


def see_that_files_are_whole(dataset: Dataset, blocks: Numbers) -> None:
    """Reading behind the end of a mapped file ends a process without a word.

    One that was deleted is whole as long as it is mapped, and the run goes on.
    """
    for part, number in {(part, number) for part, number, _, _ in blocks.tolist()}:
        shard = dataset.parts[part].shards[number]
        for array in (each for side in (shard.source, shard.target) for each in (side.ids, side.lengths)):
            if not isinstance(array, np.memmap) or array.filename is None:
                continue
            file = Path(array.filename)
            if file.exists() and file.stat().st_size < array.offset + array.nbytes:
                raise RegardError(
                    f"{file}: shorter than when the run began; delete its folder, and go on with --resume, "
                    "which makes it again from the corpora"
                )
