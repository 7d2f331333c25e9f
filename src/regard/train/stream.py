"""The endless stream of training batches, with a place in it that two numbers name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.data import Batch, Dataset, Translation, collate, plan


@dataclass
class Stream:
    """Batch `place` of epoch `epoch` is a pure function of (seed, epoch, place)."""

    dataset: Dataset
    objective: Translation
    tokens_per_batch: int
    seed: int
    epoch: int = 0
    place: int = 0

    def __post_init__(self) -> None:
        # one more piece on each side: the end, the start
        self.lengths = np.stack([self.dataset.source.lengths, self.dataset.target.lengths], axis=1) + 1
        self.batches = plan(self.lengths, self.tokens_per_batch, self.seed, self.epoch)

    def next(self) -> Batch:
        if self.place >= len(self.batches):
            self.epoch, self.place = self.epoch + 1, 0
            self.batches = plan(self.lengths, self.tokens_per_batch, self.seed, self.epoch)
        numbers = self.batches[self.place]
        self.place += 1
        source, target = self.dataset.source, self.dataset.target
        pairs = [(source[number].tolist(), target[number].tolist()) for number in numbers]
        return collate([self.objective.pair(left, right) for left, right in pairs])

    @property
    def epochs_done(self) -> float:
        return self.epoch + self.place / len(self.batches)
