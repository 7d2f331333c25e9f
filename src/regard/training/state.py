"""Where a run is, and the small functions of its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.training.parallel import crew


@dataclass
class Progress:
    """Where a run is: with weights and optimiser, all that resuming needs."""

    step: int = 0
    epoch: int = 0
    pool: int = 0  # in the epoch
    place: int = 0  # in the pool
    tokens: int = 0  # target tokens learned from
    flops: int = 0  # of all forward and backward passes
    seconds: float = 0.0  # on the clock; of these in updates, in validations and in saving:
    updating: float = 0.0
    waiting: float = 0.0  # for the batches of the updates, and part of their time
    validating: float = 0.0
    saving: float = 0.0
    best_step: int | None = None
    best_score: float | None = None  # higher is better; minus the loss if that is the metric
    best_loss: float | None = None  # of that validation: it decides between equal scores
    worse: int = 0  # validations since the best
    bad: int = 0  # updates left out, because their numbers were wrong; of these, without a good one since:
    bad_in_a_row: int = 0
    spikes: int = 0  # updates whose loss was far above the usual
    usual: float | None = None  # loss per token, a running mean
    backs: int = 0  # times that the run went back to a checkpoint; of these, without passing the step
    backs_in_a_row: int = 0
    trouble: int = 0  # where the numbers last went wrong


def as_progress(state: Mapping[str, Any], folder: Path) -> Progress:
    known = {each.name for each in fields(Progress)}
    if not state.keys() <= known or not all(
        each is None or type(each) in (int, float) for each in state.values()
    ):
        raise RegardError(
            f"{folder}: the newest checkpoint's state.json is of another program; begin a new run"
        )
    return Progress(**state)


def refuse_broken(weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], step: int) -> None:
    """A rate that is far too high can overflow the weights though every gradient was finite."""
    for name, tensor in [*weights.items(), *optimizer.items()]:
        if not bool(torch.isfinite(tensor).all()):
            raise RegardError(
                f'"{name}" is not finite after step {step}, so that it was not saved; lower train.lr, or set '
                "train.clip, in a new run: the last checkpoint of this one is whole"
            )


def clip(model: nn.Module, longest: float) -> float:
    """Scale the gradient down to norm `longest`; 0 only measures."""
    limit = longest or float("inf")
    return crew().one(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))


def mix(seed: int, step: int, number: int, rank: int = 0) -> int:
    """One 63-bit seed from four numbers; near ones give far ones (splitmix64)."""
    value = (seed << 42) ^ (step << 8) ^ number ^ (rank * 0xD1342543DE82EF95 & (2**64 - 1))
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        value = (value + 0x9E3779B97F4A7C15) & (2**64 - 1)
        value = ((value ^ (value >> 30)) * factor) & (2**64 - 1)
    return (value ^ (value >> 31)) & (2**63 - 1)
