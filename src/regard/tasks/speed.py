"""How fast a model writes on this machine: the same texts in several ways, by turns."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.device import most_memory
from regard.errors import UsageError
from regard.tasks.generator import Generator
from regard.tasks.load import load
from regard.tasks.translator import Translator

Run = Callable[[], int]  # writes all texts and says how many pieces that were
PIECES = 64  # that a language model writes of each beginning


@dataclass(frozen=True)
class Way:
    """One way of writing."""

    precision: str
    beam: int
    program: str = "regard"  # or another that has the same model

    def __str__(self) -> str:
        told = self.precision if self.program == "regard" else f"{self.program} {self.precision}"
        return f"{told}, {'greedy' if self.beam == 1 else f'{self.beam} beams'}"


@dataclass(frozen=True)
class DecodingSpeed:
    way: Way
    texts: int
    rounds: int
    texts_per_second: float  # in the middle of the rounds
    tokens_per_second: float  # pieces written
    slowest: float
    fastest: float
    memory: int  # bytes that the process held at most, up to the end of this way

    def told(self) -> dict[str, Any]:
        numbers = {name: value for name, value in self.__dict__.items() if name != "way"}
        return {**self.way.__dict__, **numbers}


def decoding_speed(runs: Mapping[Way, Run], texts: int, rounds: int) -> list[DecodingSpeed]:
    """Every way writes all texts once to warm up; then they take turns, in an order drawn anew each round."""
    ways = list(runs)
    counts, memory = {}, {}
    for way, run in runs.items():
        counts[way], memory[way] = run(), most_memory()
    times: dict[Way, list[float]] = {way: [] for way in ways}
    chance = random.Random(0)
    for _ in range(rounds):
        for way in chance.sample(ways, len(ways)):
            began = time.perf_counter()
            runs[way]()
            times[way].append(time.perf_counter() - began)
    return [
        DecodingSpeed(
            way=way,
            texts=texts,
            rounds=rounds,
            texts_per_second=texts / statistics.median(taken),
            tokens_per_second=counts[way] / statistics.median(taken),
            slowest=counts[way] / max(taken),
            fastest=counts[way] / min(taken),
            memory=memory[way],
        )
        for way, taken in times.items()
    ]


def runner(model: Path, texts: Sequence[str], way: Way, device: str, threads: int) -> Run:
    """What writes all texts and says how many pieces that were."""
    opened = load(model, device=device, threads=threads, precision=way.precision)
    if isinstance(opened, Translator):
        translate, end = opened.translate_lines, opened.folder.target.end
        options = opened.folder.decode.model_copy(update={"beam": way.beam, "sample": False})
        return lambda: sum(
            id != end for each in translate(texts, options) for id in each.candidates[0].tokens
        )
    if isinstance(opened, Generator):
        write = opened.write
        wanted = opened.options({"beam": way.beam, "sample": False, "max_length": PIECES})
        return lambda: sum(len(found[0].tokens) for found in write(texts, wanted))
    raise UsageError(f"{model} reads texts and writes none; measured are models that translate or generate")
