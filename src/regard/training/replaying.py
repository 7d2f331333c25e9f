"""Look again at an update that was left out: `replay("runs/first/bad/step-120.json")`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.batch import Batch
from regard.config import load_config
from regard.config.reading import LARGE
from regard.device import choose_machine
from regard.errors import UsageError
from regard.storage import checkpoint_folder, checkpoint_steps, is_complete, open_folder, read_json
from regard.training.loss import batch_loss, count
from regard.training.state import clip, mix
from regard.training.trouble import Place, as_batch, picked


def replay(file: str | Path, checkpoint: str | Path | None = None) -> dict[str, Any]:
    """Loss and gradient of the samples of a bad update, all together and each of the suspects alone.

    The weights are those of `checkpoint`, else of the newest whole one before that update, or the first that
    is left. Dropout falls as it fell then. Numbers that are not finite come as None.
    """
    path = Path(file)
    content = read_json(path, LARGE)
    run = path.resolve().parent.parent
    try:
        step, seed, kind = content["step"], content["seed"], content["loss"]
        told = [
            (Place(*(each[name] for name in ("epoch", "pool", "place"))), each) for each in content["batches"]
        ]
        batches = [as_batch(each) for _, each in told]
        rows = [(number, row) for number, (_, each) in enumerate(told) for row in each["suspects"]]
        named = [(told[number][0].row(row), picked(batches[number], [row])) for number, row in rows]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError):
        raise UsageError(f"{path}: not a file of a bad update, as a run writes them to bad/") from None
    weights = Path(checkpoint) if checkpoint is not None else before(run, step)
    config = load_config(run / "run.toml").train
    machine = choose_machine(config.device, config.precision, config.threads)
    model = open_folder(weights, machine.device).model
    model = model.double() if machine.precision == "float64" else model

    def measured(parts: list[Batch], train: bool) -> dict[str, float | None]:
        model.train(train).zero_grad(set_to_none=True)
        tokens = sum(count(batch.labels) for batch in parts if batch.labels is not None)
        total = 0.0
        for number, batch in enumerate(parts):
            torch.manual_seed(mix(seed, step, number))
            loss = batch_loss(model, batch.to(machine.device), kind, config.label_smoothing, machine)
            (loss / max(1, tokens)).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        norm = clip(model, 0.0)
        return numbers({"loss": total / max(1, tokens), "gradient_norm": norm})

    together = measured(batches, train=True)
    alone = {name: measured([batch], train=False) for name, batch in named}
    return {"step": step, "weights": str(weights), **together, "suspects": alone}


def before(run: Path, step: int) -> Path:
    """The newest whole checkpoint from before a step, or the first after it."""
    for each in sorted(checkpoint_steps(run), key=lambda each: (each >= step, abs(step - each))):
        if is_complete(checkpoint_folder(run, each)):
            return checkpoint_folder(run, each)
    raise UsageError(f"{run} has no whole checkpoint; name one")


def numbers(found: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in found.items()}
