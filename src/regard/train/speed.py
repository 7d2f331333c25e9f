"""How fast a run would learn on this machine: some of its own updates, timed."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Config
from regard.machine import choose_machine, most_memory
from regard.model import parameters
from regard.train.flops import measured_peak
from regard.train.prepare import prepare
from regard.train.progress import Silent
from regard.train.run import make_trainer, pinned

WARM_UP = 3  # updates that are not counted: kernels are chosen and memory is taken


@dataclass(frozen=True)
class TrainingSpeed:
    parameters: int
    precision: str
    threads: int
    updates: int
    tokens_per_second: float  # target tokens, in the middle of all updates
    slowest: float  # tokens per second of the slowest tenth
    fastest: float
    milliseconds: float  # of an update in the middle
    flops_per_second: float
    peak: float  # operations a second of a large product, measured now
    memory: int  # bytes that the process held at most

    @property
    def share_of_peak(self) -> float:
        return self.flops_per_second / self.peak

    def told(self) -> dict[str, Any]:
        return {**self.__dict__, "share_of_peak": self.share_of_peak}


def training_speed(config: Config, updates: int) -> TrainingSpeed:
    """Time updates of a run on its own data; nothing of it is kept."""
    train = config.train
    machine = choose_machine(train.device, train.precision, train.threads, config.model.width)
    machine.use()
    config = pinned(config, machine)
    with tempfile.TemporaryDirectory() as folder:
        materials = prepare(config, Path(folder), Silent().say)
        trainer = make_trainer(config, Path(folder), materials, machine)
        rates, times = [], []
        for number in range(WARM_UP + updates):
            if number == WARM_UP:
                before = trainer.progress.flops
            began = time.perf_counter()
            _, tokens, _ = trainer.update()
            taken = time.perf_counter() - began
            if number >= WARM_UP:
                rates.append(tokens / taken)
                times.append(taken)
    tenth = statistics.quantiles(rates, n=10) if len(rates) > 1 else [rates[0]]
    return TrainingSpeed(
        parameters=parameters(trainer.model),
        precision=machine.precision,
        threads=machine.threads,
        updates=updates,
        tokens_per_second=statistics.median(rates),
        slowest=tenth[0],
        fastest=tenth[-1],
        milliseconds=1000 * statistics.median(times),
        flops_per_second=(trainer.progress.flops - before) / sum(times),
        peak=measured_peak(machine),
        memory=most_memory(),
    )
