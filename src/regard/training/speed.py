"""How fast a run would learn on this machine: some of its own updates, timed, alone or in a race."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regard.batch import Batch
from regard.config import Config
from regard.device import choose_machine, most_memory
from regard.inputs.text import Tokenizer
from regard.models import parameters
from regard.training.flops import measured_peak
from regard.training.prepare import prepare_data
from regard.training.progress import NullListener
from regard.training.run import make_trainer, with_machine
from regard.training.trainer import Trainer

WARM_UP = 3  # updates that are not counted: kernels are chosen and memory is taken
OWN = "regard"
Update = Callable[[Sequence[Batch]], None]
# what learns by turns with the run, of the same vocabularies and on the same device
Others = Callable[[Tokenizer, Tokenizer | None, torch.device], Mapping[str, Update]]


@dataclass(frozen=True)
class Rates:
    """Target tokens a second."""

    middle: float  # of all updates
    slowest: float  # of the slowest tenth
    fastest: float

    @classmethod
    def of(cls, rates: Sequence[float]) -> Rates:
        tenth = statistics.quantiles(rates, n=10, method="inclusive")
        return cls(statistics.median(rates), tenth[0], tenth[-1])

    def told(self) -> dict[str, float]:
        return {"tokens_per_second": self.middle, "slowest": self.slowest, "fastest": self.fastest}


@dataclass(frozen=True)
class Rival:
    """Another program at the same batches."""

    rates: Rates
    ratio: float  # our rate by its rate, in the middle of all updates


@dataclass(frozen=True)
class TrainingSpeed:
    parameters: int
    precision: str
    threads: int
    updates: int
    rates: Rates
    milliseconds: float  # of an update in the middle
    flops_per_second: float
    peak: float  # operations a second of a large product, measured now
    memory: int  # bytes that the process held at most
    against: Mapping[str, Rival] = field(default_factory=dict)

    @property
    def share_of_peak(self) -> float:
        return self.flops_per_second / self.peak

    def told(self) -> dict[str, Any]:
        own = {name: value for name, value in self.__dict__.items() if name not in ("rates", "against")}
        rivals = {name: {**each.rates.told(), "ratio": each.ratio} for name, each in self.against.items()}
        return {**own, **self.rates.told(), "share_of_peak": self.share_of_peak, "against": rivals}


def training_speed(
    config: Config, updates: int, others: Others = lambda source, target, device: {}
) -> TrainingSpeed:
    """Time updates of a run on its own data, by turns with others at the same batches; nothing is kept.

    Our time has also the reading of batches and the counting of operations; others get theirs ready-made.
    """
    train = config.train
    machine = choose_machine(train.device, train.precision, train.threads, config.model.width)
    machine.use()
    config = with_machine(config, machine)
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_data(config, Path(folder), NullListener().log)
        trainer = make_trainer(config, Path(folder), data, machine)
        take_turns(trainer, {}, WARM_UP)
        memory = most_memory()  # before there is anybody else
        rivals = others(data.source, data.target, machine.device)
        take_turns(trainer, rivals, WARM_UP if rivals else 0)
        before = trainer.progress.flops
        times, tokens = take_turns(trainer, rivals, updates)
    rates = {name: [n / seconds for n, seconds in zip(tokens, own)] for name, own in times.items()}
    return TrainingSpeed(
        parameters=parameters(trainer.model),
        precision=machine.precision,
        threads=machine.threads,
        updates=updates,
        rates=Rates.of(rates[OWN]),
        milliseconds=1000 * statistics.median(times[OWN]),
        flops_per_second=(trainer.progress.flops - before) / sum(times[OWN]),
        peak=measured_peak(machine),
        memory=memory,
        against={name: Rival(Rates.of(rates[name]), times_faster(times, name)) for name in rivals},
    )


def take_turns(
    trainer: Trainer, rivals: Mapping[str, Update], updates: int
) -> tuple[dict[str, list[float]], list[int]]:
    """Seconds of each one's updates, and the tokens of each update; the order is drawn anew each time."""
    twin = replace(trainer.stream) if rivals else None  # which gives the same batches
    chance = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in (OWN, *rivals)}
    tokens = []
    for _ in range(updates):
        batches = [twin.next() for _ in range(trainer.config.train.accumulate)] if twin else []
        for name in chance.sample(list(times), len(times)):
            began = time.perf_counter()
            if name == OWN:
                tokens.append(trainer.update().tokens)
            else:
                rivals[name](batches)
            times[name].append(time.perf_counter() - began)
    return times, tokens


def times_faster(times: Mapping[str, Sequence[float]], other: str) -> float:
    """In the middle of all updates."""
    return statistics.median(b / a for a, b in zip(times[OWN], times[other]))
