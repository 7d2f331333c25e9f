"""A tap is a hook that receives the intermediate tensors of one run by name, and may replace them.

Code with hooks takes `tap: Tap | None = None`. Without a tap the fused path runs and nothing is recorded;
with one each intermediate tensor passes through `tap(name, tensor)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Tap(Protocol):
    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """Receive a tensor; the model continues with the returned one."""
        ...

    def within(self, name: str) -> Tap:
        """The same tap with the prefix `name.` before all names."""
        ...


@dataclass(frozen=True, slots=True)
class AtStep:
    """The tap at one step of a recurrence: `hidden@3` is the fourth step of `hidden`."""

    tap: Tap
    step: int

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        return self.tap(f"{name}@{self.step}", tensor)

    def within(self, name: str) -> AtStep:
        return AtStep(self.tap.within(name), self.step)


def at_step(tap: Tap | None, step: int) -> Tap | None:
    return None if tap is None else AtStep(tap, step)


def within(tap: Tap | None, name: str) -> Tap | None:
    return None if tap is None else tap.within(name)


def tapped(tap: Tap | None, name: str, tensor: Tensor) -> Tensor:
    return tensor if tap is None else tap(name, tensor)
