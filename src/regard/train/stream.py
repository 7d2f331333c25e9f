"""The endless stream of training batches, with a place in it that three numbers name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.data import Batch, Dataset, Objective, collate
from regard.data.batches import LAYOUT, MASKS, epoch_pools, generator, plan, sizes


@dataclass
class Stream:
    """Batch `place` of pool `pool` of epoch `epoch` is a pure function of (seed, epoch, pool, place)."""

    dataset: Dataset
    objective: Objective
    tokens_per_batch: int
    seed: int
    epoch: int = 0
    pool: int = 0
    place: int = 0

    def __post_init__(self) -> None:
        self.open_epoch()
        self.open_pool()

    def open_epoch(self) -> None:
        self.pools = epoch_pools(self.dataset, self.seed, self.epoch)
        counts = [int(sizes(blocks).sum()) for blocks in self.pools]
        self.before: list[int] = [0, *np.cumsum(counts).tolist()]  # pairs before each pool, and in all

    def open_pool(self) -> None:
        rows, stream = self.dataset.load(self.pools[self.pool]), self.pool + 1
        self.rows = self.objective.arrange(rows, generator(self.seed, self.epoch, stream, LAYOUT))
        order = generator(self.seed, self.epoch, stream)
        self.batches = plan(self.rows.lengths, self.tokens_per_batch, order)

    def next(self) -> Batch:
        if self.place >= len(self.batches):
            self.pool, self.place = self.pool + 1, 0
            if self.pool >= len(self.pools):
                self.epoch, self.pool = self.epoch + 1, 0
                self.open_epoch()
            self.open_pool()
        dice = generator(self.seed, self.epoch, self.pool + 1, MASKS, self.place)
        samples = [self.rows.sample(number, dice) for number in self.batches[self.place].tolist()]
        self.place += 1
        return collate(samples)

    @property
    def epochs_done(self) -> float:
        before, after = self.before[self.pool : self.pool + 2]
        done = before + (after - before) * self.place / len(self.batches)
        return float(self.epoch + done / self.before[-1])
