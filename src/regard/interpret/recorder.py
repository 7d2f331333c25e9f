"""A tap that records: one run of a model, every wanted tensor by its stable name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Recorder:
    """Names are the path through the model: `encoder.2.self.scores`, `decoder.3.cross.weights`, `logits`.

    What a recurrence tells step by step (`decoder.0.hidden@4`) is kept as one tensor over all steps.
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
        joined = {
            name: torch.stack([own[step] for step in sorted(own)], dim=-2) for name, own in self.steps.items()
        }
        return {**self.whole, **joined}
