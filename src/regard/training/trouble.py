"""Numbers that go wrong: which update is left out, which samples are to blame, and how to look at them again.

An update whose loss or gradient is not finite, or that has nothing to learn from, never reaches the weights.
The check costs nothing: it looks at the loss and the norm of the gradient, which are computed anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from regard.batch import Batch, Tokens
from regard.sample import IGNORED
from regard.storage import friendly_os_errors, make_folders, write_json

Reason = Literal["loss", "gradient", "empty"]
MEANINGS: dict[Reason, str] = {
    "loss": "the loss is not finite",
    "gradient": "the gradient is not finite",
    "empty": "there is nothing to learn from",
}
FOLDER = "bad"
FILES_AT_MOST = 100  # in it; further bad updates are counted and recorded, without their samples
TRIALS = 64  # forward and backward passes spent on finding the samples to blame
SPIKE = 10.0  # times the usual loss (and times 1 nat) is a spike
SLOWLY = 0.02  # how fast the usual loss follows


def what_is_wrong(loss: float, tokens: int, norm: float) -> Reason | None:
    if tokens == 0:
        return "empty"
    if not math.isfinite(loss):
        return "loss"
    return None if math.isfinite(norm) else "gradient"


def is_spike(loss: float, usual: float | None) -> bool:
    """Of a loss per token. Below 1 nat a hard batch may well be ten times the usual."""
    return usual is not None and loss > SPIKE * max(usual, 1.0)


def follow(usual: float | None, loss: float) -> float:
    """The running mean of the loss per token."""
    return loss if usual is None else usual + SLOWLY * (loss - usual)


@dataclass(frozen=True)
class Place:
    """Which batch of the stream: with the run's seed and data, that is all of it."""

    epoch: int
    pool: int
    place: int

    def row(self, number: int) -> str:
        """The name of one of its samples."""
        return f"{self.epoch}-{self.pool}-{self.place}-{number}"


@dataclass(frozen=True)
class Bad:
    """An update that was left out."""

    step: int
    reason: Reason
    loss: float
    norm: float
    rate: float
    places: Sequence[Place]
    batches: Sequence[Batch]

    def record(self, suspects: Sequence[str], file: str | None, in_a_row: int) -> dict[str, Any]:
        """The line of metrics.jsonl; JSON has no number that is not finite."""
        return {
            "kind": "bad",
            "step": self.step,
            "reason": self.reason,
            "loss": finite(self.loss),
            "gradient_norm": finite(self.norm),
            "lr": self.rate,
            "samples": list(suspects),
            "file": file,
            "in_a_row": in_a_row,
        }


def finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


# --- which samples


Measure = Callable[[Batch], tuple[float, float]]  # loss and norm of the gradient


def suspects(bad: Bad, measure: Measure) -> list[tuple[int, int]]:
    """(batch, row) of the samples that are bad alone, or together where none is alone."""
    trials = iter(range(TRIALS))

    def is_bad(batch: Batch) -> bool:
        loss, norm = measure(batch)
        return what_is_wrong(loss, labelled(batch), norm) is not None

    return [
        (number, row)
        for number, batch in enumerate(bad.batches)
        for row in halved(batch, list(range(rows_of(batch))), is_bad, trials)
    ]


def halved(
    batch: Batch, rows: list[int], is_bad: Callable[[Batch], bool], trials: Iterator[int]
) -> list[int]:
    """The bad ones of some rows, found by halving; with no trials left, all that may be bad."""
    if next(trials, None) is None:
        return rows
    if not is_bad(picked(batch, rows)):
        return []
    if len(rows) == 1:
        return rows
    middle = len(rows) // 2
    found = [row for half in (rows[:middle], rows[middle:]) for row in halved(batch, half, is_bad, trials)]
    return found or rows  # each half alone is good: together they are not


def labelled(batch: Batch) -> int:
    return 0 if batch.labels is None else int((batch.labels != IGNORED).sum())


def rows_of(batch: Batch) -> int:
    return 0 if batch.labels is None else len(batch.labels)


def picked(batch: Batch, rows: Sequence[int]) -> Batch:
    """Some rows of a batch."""

    def side(tokens: Tokens | None) -> Tokens | None:
        return None if tokens is None else Tokens(**{name: take(each) for name, each in parts(tokens)})

    def take(tensor: Tensor | None) -> Any:
        return None if tensor is None else tensor[list(rows)]

    return replace(batch, source=side(batch.source), target=side(batch.target), labels=take(batch.labels))


def parts(tokens: Tokens) -> list[tuple[str, Any]]:
    return [(each.name, getattr(tokens, each.name)) for each in fields(tokens)]


# --- to look at again


def keep_samples(
    folder: Path, bad: Bad, blamed: Sequence[tuple[int, int]], attempt: int, more: Mapping[str, Any]
) -> str | None:
    """Write the batches of a bad update to `bad/step-N.json`: its name, None if there are enough of them."""
    place = folder / FOLDER
    with friendly_os_errors(place):
        make_folders(place)
        if sum(1 for _ in place.iterdir()) >= FILES_AT_MOST:
            return None
    name = f"{FOLDER}/step-{bad.step}{f'-again-{attempt}' if attempt else ''}.json"
    content = {
        "step": bad.step,
        "reason": bad.reason,
        "meaning": MEANINGS[bad.reason],
        "learning_rate": bad.rate,
        **more,
        "batches": [
            {**asdict(place), "suspects": [row for at, row in blamed if at == number], **as_lists(batch)}
            for number, (place, batch) in enumerate(zip(bad.places, bad.batches))
        ],
    }
    write_json(folder / name, content)
    return name


def as_lists(batch: Batch) -> dict[str, Any]:
    def side(tokens: Tokens | None) -> dict[str, Any] | None:
        return None if tokens is None else {name: lists(each) for name, each in parts(tokens)}

    def lists(tensor: Tensor | None) -> list[Any] | None:
        return None if tensor is None else tensor.tolist()

    return {"source": side(batch.source), "target": side(batch.target), "labels": lists(batch.labels)}


def as_batch(content: Mapping[str, Any]) -> Batch:
    """What `as_lists` wrote."""

    def side(told: Mapping[str, Any] | None) -> Tokens | None:
        return None if told is None else Tokens(**{name: tensor(each) for name, each in told.items()})

    def tensor(rows: list[Any] | None) -> Any:
        return None if rows is None else torch.tensor(rows, dtype=torch.int64)

    return Batch(side(content["source"]), side(content["target"]), tensor(content["labels"]))
