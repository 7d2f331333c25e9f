"""A tap that records: one run of a model, every wanted tensor by its stable name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Recorder:
    """Names are the path through the model: `encoder.2.self.scores`, `decoder.3.cross.weights`, `logits`."""

    wanted: Callable[[str], bool] = lambda name: True
    tensors: dict[str, Tensor] = field(default_factory=dict)
    path: str = ""

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        full = f"{self.path}{name}"
        if self.wanted(full):
            self.tensors[full] = tensor.detach()
        return tensor

    def within(self, name: str) -> Recorder:
        return Recorder(self.wanted, self.tensors, f"{self.path}{name}.")
