"""Train the classifier of the package: remarks with labels, and texts with a larger model's probabilities.

`python recipes/box_text.py --only english-sentiment --teacher MODEL` does it.

With p, the probability of "positive" that the teacher gives a text (recipes/opinions.py), or 1 or 0 where the
text has a label, and q of the student (Hinton et al. 2015):

    loss = -p log q - (1 - p) log (1 - q)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from english import log, run_recipe
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from regard.batch import Batch
from regard.config import Config
from regard.data.dataset import TokenIds
from regard.data.objectives import Classify
from regard.sample import Sample
from regard.training.distributed import SingleProcess
from regard.training.prepare import TrainingData
from regard.training.run import Run, build_model
from regard.training.stream import Stream
from regard.training.trainer import Trainer

CERTAIN = 1000  # p is stored in thousandths, as a whole number


@dataclass(frozen=True)
class SoftLabels(Classify):
    """The label of a training row is p in thousandths; of the two labels the second is "positive"."""

    p: Mapping[tuple[int, ...], int] = field(default_factory=dict)  # by the tokens of a text
    smoothing: float = 0.0  # of labels

    def sample(self, source: TokenIds, target: TokenIds, rng: Any = None) -> Sample:
        known = CERTAIN * (target[0] * (1 - self.smoothing) + self.smoothing / 2)
        label = self.p.get(tuple(source), round(known))
        return Sample(self.text(source).source, labels=[label])


class Student(Trainer):
    def loss(self, batch: Batch) -> Tensor:
        assert batch.labels is not None
        with torch.autocast("cpu", torch.bfloat16, enabled=self.machine.precision == "bfloat16"):
            logits = self.model.output(self.model.hidden(batch)).float()[:, 0]  # [B,2]
        p = batch.labels.flatten() / CERTAIN
        return binary_cross_entropy_with_logits(logits[:, 1] - logits[:, 0], p, reduction="sum")


def train_classifier(config: Config, folder: Path, opinions: Path) -> bool:
    """Whether it came to its end; beside `opinions`, a file of the training data, are its p (.json)."""
    soft: dict[str, int] = json.loads(opinions.with_suffix(".json").read_text(encoding="utf-8"))

    def make(run: Run, data: TrainingData) -> Trainer:
        objective = data.objective
        assert isinstance(objective, Classify)
        ids = objective.tokenizer.encode_batch(list(soft))
        known = {tuple(map(int, each)): p for each, p in zip(ids, soft.values(), strict=True)}
        train, tokenizer = run.config.train, objective.tokenizer
        smoothing = train.label_smoothing
        labels = SoftLabels(tokenizer, objective.max_length, objective.labels, p=known, smoothing=smoothing)
        stream = Stream(data.training, labels, train.tokens_per_batch, train.seed)
        log(f"{stream.batches_per_epoch:.0f} batches an epoch, {len(known):,} texts with the teacher's p")
        model = build_model(run.config, data, run.machine, run.pretrained, log)
        return Student(run.config, folder, model, stream, data, run.machine, SingleProcess())

    return run_recipe(config, folder, make)
