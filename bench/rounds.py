"""What benchmarks share: one set of options, interleaved rounds, ratios, the machine's limits."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from regard.device import Machine
from regard.generation.kernels import Int8Product, can_quantize
from regard.training.flops import measured_peak

Runner = Callable[[], int]  # does one round and returns how many target tokens, or what else, it was
PAUSE = 0.25  # seconds before a measurement: OpenMP's threads wait for work in a loop, up to 0.2


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
            time.sleep(PAUSE)
            start = time.perf_counter()
            tokens = runners[name]()
            speeds[name].append(tokens / (time.perf_counter() - start))
    return speeds


class Process:
    """A function that a process of its own opens and runs, until this one ends.

    In one process, programs share OpenMP's runtime: once two have started threads there are more than cores,
    idle ones sleep instead of waiting in a loop, and every parallel operation pays for waking them. Measured:
    GPT-2's shape, int8, one prompt, 104 tokens/s alone, 64 after CTranslate2 was used in the process.
    """

    def __init__(self, opener: Callable[..., Callable[..., Any]], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        context.Process(target=answer, args=(theirs, opener, arguments), daemon=True).start()
        theirs.close()
        self.pipe.recv()  # one after the other: they may write the same copy of a model

    def __call__(self, *given: object) -> Any:
        self.pipe.send(given)
        return self.pipe.recv()


def answer(pipe: Connection, opener: Callable[..., Callable[..., Any]], arguments: Sequence[object]) -> None:
    function = opener(*arguments)
    pipe.send("ready")
    while True:
        try:
            given = pipe.recv()
        except EOFError:
            return
        pipe.send(function(*given))


def report(
    title: str,
    speeds: dict[str, list[float]],
    as_json: bool,
    unit: str = "tokens/s",
    more: Mapping[str, Mapping[str, float]] | None = None,
    ours: Sequence[str] = (),
) -> None:
    """Each program's median, how many times as fast each of ours is as the median over rounds, and `more`."""
    ours = ours or [name for name in speeds if name.startswith("regard")]
    for name, found in speeds.items():
        facts = (more or {}).get(name, {})
        ratios = {} if name in ours else {own: ratio(speeds[own], found) for own in ours}
        median = statistics.median(found)
        if as_json:
            row = {"race": title, "program": name, "unit": unit, "median": median, "best": max(found)}
            show({**row, "rounds": len(found), **facts, "ratios": ratios}, True)
            continue
        parts = [f"{key} {value:.2f}" for key, value in facts.items()]
        parts += [
            f"{own} / it {each['median']:.2f} ({each['low']:.2f} to {each['high']:.2f})"
            for own, each in ratios.items()
        ]
        print(f"{title:24} {name:22} {median:9.1f} {unit}  {', '.join(parts)}", flush=True)


def ratio(ours: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    each = [a / b for a, b in zip(ours, others)]
    return {"median": statistics.median(each), "low": min(each), "high": max(each)}


def limits(threads: int, as_json: bool) -> float:
    """Print what this machine can do at most with so many threads, and return bytes read a second."""
    torch.set_num_threads(threads)
    numbers = torch.ones(1 << 26)  # 256 MiB, more than any cache
    reading = 4 * numbers.numel() / min(seconds(numbers.sum) for _ in range(10))
    peaks = {
        f"{name} GFLOP/s": measured_peak(Machine(torch.device("cpu"), name, threads)) / 1e9
        for name in ("float32", "bfloat16")
    }
    if can_quantize():
        size = 2048
        product, x = Int8Product(torch.ones(size, size), None, 1 / 127, 128), torch.ones(size, size)
        peaks["int8 GOP/s"] = 2 * size**3 / min(seconds(lambda: product(x)) for _ in range(5)) / 1e9
    show({"threads": threads, "bandwidth GB/s": reading / 1e9, **peaks}, as_json)
    return reading


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def held(what: str) -> float:
    """MiB of this process: VmRSS (now), VmHWM (the most so far), RssAnon (without pages of files)."""
    found = re.search(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())
    if found is None:
        raise ValueError(f"no {what} on this system")
    return round(int(found[1]) / 1024, 1)
