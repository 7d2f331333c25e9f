"""The endless stream of training batches, with a place in it that three numbers name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.data import Batch, Dataset, Translation, collate
from regard.data.batches import epoch_pools, generator, plan, sizes


@dataclass
class Stream:
    """Batch `place` of pool `pool` of epoch `epoch` is a pure function of (seed, epoch, pool, place)."""

    dataset: Dataset
    objective: Translation
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
        self.pairs = self.dataset.load(self.pools[self.pool])
        # one more piece on each side: the end, the start
        lengths = np.stack([self.pairs.source.lengths, self.pairs.target.lengths], axis=1) + 1
        self.batches = plan(lengths, self.tokens_per_batch, generator(self.seed, self.epoch, self.pool + 1))

    def next(self) -> Batch:
        if self.place >= len(self.batches):
            self.pool, self.place = self.pool + 1, 0
            if self.pool >= len(self.pools):
                self.epoch, self.pool = self.epoch + 1, 0
                self.open_epoch()
            self.open_pool()
        numbers = self.batches[self.place]
        self.place += 1
        source, target = self.pairs.source, self.pairs.target
        pairs = [(source[number].tolist(), target[number].tolist()) for number in numbers]
        return collate([self.objective.pair(left, right) for left, right in pairs])

    @property
    def epochs_done(self) -> float:
        before, after = self.before[self.pool : self.pool + 2]
        done = before + (after - before) * self.place / len(self.batches)
        return float(self.epoch + done / self.before[-1])
