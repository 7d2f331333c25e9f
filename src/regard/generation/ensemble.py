"""Ensembles: several models behind the interface of one (`start`, `step`).

p(y) = 1/M sum_m p_m(y), the mean of the models' probabilities; or, with "log", the mean of log p_m, which is
a product of experts: what is impossible for one model is impossible for the ensemble.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.batch import Batch
from regard.generation.requests import Steppable

Mean = Literal["probability", "log"]


@dataclass(frozen=True)
class EnsembleCache:
    """The models' caches of the same rows."""

    parts: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.parts[0])

    @property
    def first(self) -> Tensor | None:
        first: Tensor | None = self.parts[0].first
        return first

    def select(self, rows: Tensor) -> EnsembleCache:
        return EnsembleCache(tuple(part.select(rows) for part in self.parts))

    @classmethod
    def join(cls, caches: Sequence[EnsembleCache]) -> EnsembleCache:
        return EnsembleCache(
            tuple(type(parts[0]).join(parts) for parts in zip(*(each.parts for each in caches)))
        )


@dataclass(frozen=True)
class Ensemble:
    """Its "logits" are log-probabilities; a search does not see the difference."""

    models: Sequence[Steppable[Any]]
    mean: Mean = "probability"

    @property
    def longest_target(self) -> int | None:
        limits = [model.longest_target for model in self.models]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def reads_prompts(self) -> bool:
        """Whether the models are language models, which read a prompt instead of a source."""
        return any(getattr(model, "reads_prompts", False) for model in self.models)

    def start(self, batch: Batch, beams: int = 1) -> EnsembleCache:
        return EnsembleCache(tuple(model.start(batch, beams) for model in self.models))

    def step(self, cache: EnsembleCache, tokens: Tensor) -> tuple[Tensor, EnsembleCache]:
        answers = [model.step(part, tokens) for model, part in zip(self.models, cache.parts)]
        return mean_of([logits for logits, _ in answers], self.mean), EnsembleCache(
            tuple(part for _, part in answers)
        )


def mean_of(logits: Sequence[Tensor], mean: Mean) -> Tensor:
    """log p of the ensemble, up to a constant a row: M tensors [...,V] -> [...,V]."""
    log_p = torch.stack([each.float().log_softmax(dim=-1) for each in logits])  # [M,...,V]
    if mean == "log":
        return log_p.mean(dim=0)
    return log_p.logsumexp(dim=0) - math.log(len(log_p))


def scorer(
    models: Sequence[Callable[[Batch], Tensor]], mean: Mean = "probability"
) -> Callable[[Batch], Tensor]:
    """The ensemble of whole runs, for `score`; one model is itself."""
    if len(models) == 1:
        return models[0]
    return lambda batch: mean_of([model(batch) for model in models], mean)
