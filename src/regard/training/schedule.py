"""The learning rate of each update, counted from 1."""

from __future__ import annotations

import math

from regard.config import Train, usual_warmup

DEFAULT_PEAK = 1e-3


def learning_rate(step: int, config: Train, width: int) -> float:
    """The paper: D^-0.5 * min(step^-0.5, step * warmup^-1.5); the others rise linearly to `lr`, then fall."""
    if config.schedule == "paper":
        return float(width**-0.5 * min(step**-0.5, step * config.warmup**-1.5))
    peak = config.lr or DEFAULT_PEAK
    if step < config.warmup:
        return peak * step / config.warmup
    if config.schedule == "inverse-sqrt":
        return float(peak * (max(config.warmup, 1) / step) ** 0.5)
    left = max(
        0.0, (config.steps - step) / max(1, config.steps - config.warmup)
    )  # 1 at the peak, 0 at the end
    if config.schedule == "linear":
        return peak * left
    if config.schedule == "cosine":
        return peak * 0.5 * (1 - math.cos(math.pi * left))
    return peak


def counted(train: Train, batches_per_epoch: float) -> Train:
    """Of a run that is given its epochs alone the updates: with what they are the rate rises and falls."""
    if train.epochs is None or "steps" in train.model_fields_set:
        return train
    steps = max(1, math.ceil(train.epochs * batches_per_epoch / train.accumulate))
    found = {"steps": steps}
    if "warmup" not in train.model_fields_set:
        found["warmup"] = usual_warmup(steps)
    return train.model_copy(update=found)
