"""What benchmarks share: one set of options, interleaved rounds, ratios, and how figures are printed."""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Runner = Callable[[], int]  # does one round and returns how many target tokens, or what else, it was


def arguments(doc: str | None, rounds: int | None = None, model: bool = True) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have: -m, --rounds, --json."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    if model:
        parser.add_argument("-m", "--model", type=Path, required=True, help="a model folder")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help=f"measurements of each ({rounds})")
    parser.add_argument("--json", action="store_true", help="lines of JSON instead of text")
    return parser


def show(row: Mapping[str, Any], as_json: bool) -> None:
    """One line of JSON, or a name and a value on each line."""
    if as_json:
        print(json.dumps(row, ensure_ascii=False), flush=True)
        return
    width = max(map(len, row))
    for name, value in row.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        print(f"{name:{width}}  {shown}", flush=True)
    print(flush=True)


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
            start = time.perf_counter()
            tokens = runners[name]()
            speeds[name].append(tokens / (time.perf_counter() - start))
    return speeds


def report(
    title: str, speeds: dict[str, list[float]], ours: str, other: str, as_json: bool, unit: str = "tokens"
) -> None:
    """The medians of both, and the ratio as the median over rounds."""
    ratios = [a / b for a, b in zip(speeds[ours], speeds[other])]
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    if as_json:
        row = {"race": title, "of": ours, "against": other, "unit": f"{unit}/s"}
        row |= {name: statistics.median(speeds[name]) for name in (ours, other)}
        show({**row, "ratio": middle, "low": low, "high": high, "rounds": len(ratios)}, True)
        return
    for name in (ours, other):
        best, usual = max(speeds[name]), statistics.median(speeds[name])
        print(f"{title:28} {name:26} best {best:9.0f}  median {usual:9.0f} {unit}/s")
    print(f"{title:28} {ours} / {other}: {middle:.2f}x (rounds {low:.2f} to {high:.2f})", flush=True)


def held(what: str) -> float:
    """MiB of this process: VmRSS (now), VmHWM (the most so far), RssAnon (without pages of files)."""
    found = re.search(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())
    if found is None:
        raise ValueError(f"no {what} on this system")
    return round(int(found[1]) / 1024, 1)
