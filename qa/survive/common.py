"""What the trials of runs share: small checkpoints and a small model folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from regard.config import resolve
from regard.inputs.text import train_tokenizer
from regard.models.families import build
from regard.storage import (
    Checkpoint,
    Folder,
    load_latest,
    open_folder,
    unique_weights,
    write_checksums,
    write_identity,
    write_weights,
)

TEXTS = ["a small house stands here", "the cat sees a dog", "no dog sleeps in the house"] * 20
TINY = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16, "dropout": 0.0}


@contextmanager
def patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def checkpoint(step: int) -> Checkpoint:
    """One whose every number tells its step."""
    dice = torch.Generator().manual_seed(step)
    weights = {"w": torch.randn(40, generator=dice), "b": torch.randn(3, generator=dice)}
    return Checkpoint(weights, {"w/exp_avg": torch.randn(40, generator=dice)}, {"step": step})


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return one.state == other.state and all(
        left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
        for left, right in ((one.model, other.model), (one.optimizer, other.optimizer))
    )


def newest_step(run: Path, said: list[str]) -> int | None:
    """The step that a loader gives, after a look at every number of it; -1 if it is of no step at all."""
    found = load_latest(run, said.append)
    if found is None:
        return None
    step = int(found.state.get("step", -1))
    return step if same(found, checkpoint(step)) else -1


def write_model(path: Path, seed: int) -> Folder:
    """A small model folder with its sums."""
    path.mkdir(parents=True, exist_ok=True)
    config = resolve({"data": {"train": "phrasebook"}, "model": TINY})
    tokenizer = train_tokenizer(TEXTS, "bpe", 300)
    torch.manual_seed(seed)
    model = build(config.model, len(tokenizer))
    write_identity(path, config, tokenizer, None, split_above=30)
    write_weights(path, config.model, unique_weights(model))
    write_checksums(path)
    return open_folder(path)
