"""A tap that records the tensors of one run by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Recorder:
    """Names are the path through the model: `encoder.2.self.scores`, `decoder.3.cross.weights`, `logits`.

    The steps of a recurrence (`decoder.0.hidden@4`) are stacked into one tensor.
    """

    wanted: Callable[[str], bool] = lambda name: True
    whole: dict[str, Tensor] = field(default_factory=dict)
    steps: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    path: str = ""

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        full, _, step = f"{self.path}{name}".partition("@")
        if self.wanted(full):
            if step:
                self.steps.setdefault(full, {})[int(step)] = tensor.detach()
            else:
                self.whole[full] = tensor.detach()
        return tensor

    def within(self, name: str) -> Recorder:
        return Recorder(self.wanted, self.whole, self.steps, f"{self.path}{name}.")

    @property
    def tensors(self) -> dict[str, Tensor]:
        """[...,D] of each step become [...,T,D]."""
        stacked = {
            name: torch.stack([by_step[step] for step in sorted(by_step)], dim=-2)
            for name, by_step in self.steps.items()
        }
        return {**self.whole, **stacked}
