"""A tap sees the tensors of one run by name, and may replace them.

Code that can be watched takes `tap: Tap | None = None`. Without a tap the fused path runs and nothing is
kept; with one the plain path runs and each tensor passes through `tap(name, tensor)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Tap(Protocol):
    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """Take note of a tensor; what is returned goes on through the model."""
        ...

    def within(self, name: str) -> Tap:
        """The same tap, whose names from here on begin with `name.`"""
        ...


@dataclass(frozen=True, slots=True)
class AtStep:
    """The tap at one step of a recurrence: `hidden@3` is the fourth step of what becomes `hidden`."""

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
