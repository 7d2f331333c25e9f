"""`Progress`: where a run is, stored in checkpoints. `Metrics`: what it reports (docs/metrics.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from regard.config.reading import finite
from regard.errors import RegardError
from regard.storage import append, write_text
from regard.training.listeners import Listeners
from regard.training.listeners import Record as Record
from regard.training.stream import Position

FILE = "metrics.jsonl"
Reason = Literal["loss", "gradient", "empty"]
SPIKE = 10.0  # a loss of so many times its running mean (and of 10 nats) is a spike
MOMENTUM = 0.02  # of the running mean
STEPWISE = ("train", "valid", "bad", "spike", "back")  # kinds of records; all others are written at the end


@dataclass
class Progress:
    """Position, counters and clocks of a run: with weights and optimizer state all that a resume needs."""

    step: int = 0
    epoch: int = 0
    pool: int = 0  # in the epoch
    batch: int = 0  # in the pool
    tokens: int = 0  # labels trained on
    flops: int = 0  # of all forward and backward passes
    seconds: float = 0.0  # wall clock; of these in updates, validations and checkpoints:
    update_seconds: float = 0.0
    data_seconds: float = 0.0  # waiting for batches, part of update_seconds
    validation_seconds: float = 0.0
    save_seconds: float = 0.0
    best_step: int | None = None
    best_score: float | None = None  # higher is better; minus the loss if that is the metric
    best_loss: float | None = None  # of that validation; breaks ties
    validations_since_best: int = 0
    non_finite: int = 0  # updates skipped because loss or gradient was not finite, or had no labels
    non_finite_in_a_row: int = 0
    spikes: int = 0  # updates whose loss was far above the running mean
    mean_loss: float | None = None  # per token, a running mean
    rollbacks: int = 0
    rollbacks_in_a_row: int = 0  # without passing `last_non_finite`
    last_non_finite: int = 0  # the step of the last roll-back's cause

    def to_state(self) -> dict[str, Any]:
        """As state.json stores it: its field names have not changed since the first version."""
        return {STATE_NAMES.get(name, name): value for name, value in asdict(self).items()}


# field -> name in state.json
STATE_NAMES = {
    "batch": "place",
    "update_seconds": "updating",
    "data_seconds": "waiting",
    "validation_seconds": "validating",
    "save_seconds": "saving",
    "validations_since_best": "worse",
    "non_finite": "bad",
    "non_finite_in_a_row": "bad_in_a_row",
    "mean_loss": "usual",
    "rollbacks": "backs",
    "rollbacks_in_a_row": "backs_in_a_row",
    "last_non_finite": "trouble",
}


def progress_from_state(state: Mapping[str, Any], folder: Path) -> Progress:
    stored = {STATE_NAMES.get(each.name, each.name): each.name for each in fields(Progress)}
    if not state.keys() <= stored.keys() or not all(
        each is None or type(each) in (int, float) for each in state.values()
    ):
        raise RegardError(
            f"{folder}: the newest checkpoint's state.json is of another program; begin a new run",
            code="E_CHECKPOINT_STATE",
        )
    return Progress(**{stored[name]: value for name, value in state.items()})


class Metrics:
    """Appends records to the run's file and passes them to the listener."""

    def __init__(self, folder: Path, listener: Listeners) -> None:
        self.path = folder / FILE
        self.listener = listener

    def rewind(self, step: int) -> list[Record]:
        """Remove the records after `step`: a resumed run does those steps again. Returns the others."""
        kept = [record for record in read_metrics(self.path) if record.get("step", 0) <= step]
        kept = [record for record in kept if record.get("kind") in STEPWISE]
        write_text(self.path, "".join(to_line(record) for record in kept))
        return kept

    def last_steps(self) -> dict[str, int]:
        """The last step of each kind of record."""
        steps: dict[str, int] = {}
        for record in read_metrics(self.path):
            kind, step = str(record.get("kind")), int(record.get("step", 0))
            steps[kind] = max(step, steps.get(kind, 0))
        return steps

    def add(self, record: Record) -> None:
        append(self.path, to_line(record).encode())
        self.listener.record(record)

    def sync(self) -> None:
        """Make all records durable."""
        append(self.path, b"", durable=True)


class NullMetrics(Metrics):
    """Of ranks other than 0."""

    def rewind(self, step: int) -> list[Record]:
        return []

    def last_steps(self) -> dict[str, int]:
        return {}

    def add(self, record: Record) -> None: ...
    def sync(self) -> None: ...


def to_line(record: Record) -> str:
    return json.dumps(finite(record), ensure_ascii=False, allow_nan=False) + "\n"


def read_metrics(path: Path) -> list[Record]:
    """All complete records; a last line that a kill truncated is skipped."""
    if not path.is_file():
        return []
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


# --- loss and gradient of an update


@dataclass(frozen=True)
class Step:
    """One update."""

    number: int
    loss: float  # sum over the labels
    tokens: int
    gradient_norm: float
    learning_rate: float
    positions: Sequence[Position]  # of its batches
    reason: Reason | None = None  # why it was skipped


def non_finite_reason(loss: float, tokens: int, gradient_norm: float) -> Reason | None:
    if tokens == 0:
        return "empty"
    if not math.isfinite(loss):
        return "loss"
    return None if math.isfinite(gradient_norm) else "gradient"


def is_spike(loss: float, mean: float | None) -> bool:
    """Of a loss per token. Below 1 nat a hard batch may well have ten times the mean."""
    return mean is not None and loss > SPIKE * max(mean, 1.0)


def running_mean(mean: float | None, loss: float) -> float:
    return loss if mean is None else mean + MOMENTUM * (loss - mean)


def record_spike(progress: Progress, loss: float, gradient_norm: float, metrics: Metrics) -> None:
    """Count a loss per token far above its running mean; its gradient was clipped like any other."""
    if is_spike(loss, progress.mean_loss):
        progress.spikes += 1
        spike = {"loss": loss, "usual": progress.mean_loss, "gradient_norm": gradient_norm}
        metrics.add({"kind": "spike", "step": progress.step, **spike})
    else:
        progress.mean_loss = running_mean(progress.mean_loss, loss)
    if progress.step > progress.last_non_finite:
        progress.rollbacks_in_a_row = 0
