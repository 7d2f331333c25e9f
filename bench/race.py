"""What the races share: the same shape here and in transformers, interleaved rounds, ratios."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable

from regard.config import Config, resolve
from regard.models.families import build
from regard.models.transformer import EncoderDecoder

Runner = Callable[[], int]  # does one round and says how many target tokens, or what else, it was


def shape(name: str, **train: object) -> Config:
    return resolve(
        {
            "task": {"source": "en", "target": "de"},
            "data": {"train": "phrasebook"},
            "model": {"preset": f"transformer-{name}"},
            "text": {"vocabulary": 10_000},
            "train": train,
        }
    )


def ours(name: str, vocabulary: int) -> EncoderDecoder:
    return build(shape(name).model, vocabulary)


def race(
    runners: dict[str, Runner], rounds: int, seed: int = 0, warm: dict[str, Runner] | None = None
) -> dict[str, list[float]]:
    """Tokens per second of each runner in each round; the order is drawn anew, noise hits all alike.

    All get warm before, by a round of their own or by less (`warm`).
    """
    chance, speeds = random.Random(seed), {name: [] for name in runners}
    for runner in (warm or runners).values():
        runner()
    for _ in range(rounds):
        for name in chance.sample(list(runners), len(runners)):
            began = time.perf_counter()
            tokens = runners[name]()
            speeds[name].append(tokens / (time.perf_counter() - began))
    return speeds


def report(
    title: str, speeds: dict[str, list[float]], own: str, others: list[str], unit: str = "tokens"
) -> None:
    """A line for people and one for programs; ratios are medians over rounds, against the better other."""
    better = max(others, key=lambda name: statistics.median(speeds[name]))
    ratios = [a / b for a, b in zip(speeds[own], speeds[better])]
    for name, values in speeds.items():
        best, middle = max(values), statistics.median(values)
        print(f"{title:28} {name:26} best {best:9.0f}  median {middle:9.0f} {unit}/s")
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    print(f"{title:28} {own} / {better}: {middle:.2f}x (rounds {low:.2f} to {high:.2f})")
    row = {"race": title, "against": better, "ratio": middle, "low": low, "high": high, "rounds": len(ratios)}
    print(json.dumps(row), flush=True)
