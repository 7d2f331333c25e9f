"""Results do not depend on the batch: scores bit by bit, text through server and command."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from qa.serving.client import Link, Result, Server, above
from qa.serving.driver import sentences
from qa.serving.load import ENGLISH, TRIES, Pair, body, patient
from regard.generation import Hypothesis, Request, generate, requests
from regard.generation import engine as stepping
from regard.models import layers
from regard.tasks import Translator, load

HOSTILE = ["a", "x" * 400, "\u2028 \x00 " * 50]
SIZES = (2, 3, 5, 8, 13, 16, 32, 64)  # of the batches
SLOWER = 1.1  # what equal bits may cost


@dataclass
class Comparison:
    """What differs from the answers of lone requests."""

    compared: int = 0
    texts: int = 0
    scores: int = 0
    seconds: float = 0.0  # of the processor
    alone: list[Hypothesis] = field(default_factory=list)

    def note(self, one: Hypothesis, other: Hypothesis) -> None:
        self.compared += 1
        self.texts += one.tokens != other.tokens
        self.scores += one != other  # every number of a hypothesis, bit by bit

    def summary(self) -> dict[str, int]:
        return {"compared": self.compared, "texts": self.texts, "scores": self.scores}


def requests_of(task: Translator, texts: Sequence[str], **changes: Any) -> list[Request]:
    options = task.folder.decode.model_copy(update=changes)
    return [Request(task.source_ids(task.folder.source.encode(text)), options) for text in texts]


def lone(task: Translator, requests: Sequence[Request]) -> list[Hypothesis]:
    return [
        generate(task.model_for, [request], task.special, task.device, 1 << 20)[0][0] for request in requests
    ]


def in_batch(task: Translator, requests: Sequence[Request], dice: random.Random) -> list[Hypothesis]:
    """All of them, shuffled, in batches of every size, beside strange neighbours; some enter later."""
    results: list[Hypothesis | None] = [None] * len(requests)
    order, at = dice.sample(range(len(requests)), len(requests)), 0
    while at < len(order):
        size = dice.choice(SIZES)
        numbers, at = order[at : at + size], at + size
        options = requests[numbers[0]].options.model_copy(update={"max_length": 20})
        strange = [Request(task.source_ids(task.folder.source.encode(text)), options) for text in HOSTILE]
        pool = task.scheduler(1 << 20)
        handles = {pool.add(requests[number]): number for number in numbers[: max(1, size // 2)]}
        pool.add(dice.choice(strange))
        for _ in range(dice.randint(0, 3)):
            done = pool.step()
            collect(handles, done, results)
        handles |= {pool.add(requests[number]): number for number in numbers[max(1, size // 2) :]}
        while pool.busy:
            collect(handles, pool.step(), results)
    return [each for each in results if each is not None]


def collect(handles: dict[Any, int], done: Sequence[Any], results: list[Hypothesis | None]) -> None:
    for handle in done:
        if handle in handles:
            results[handles[handle]] = handle.result()[0]


def compared(task: Translator, requests: Sequence[Request], seed: int) -> Comparison:
    comparison, start = Comparison(alone=lone(task, requests)), time.process_time()
    together = in_batch(task, requests, random.Random(seed))
    comparison.seconds = time.process_time() - start
    for one, other in zip(comparison.alone, together, strict=True):
        comparison.note(one, other)
    return comparison


@contextmanager
def unsteady() -> Iterator[None]:
    """Without what makes sums the same whatever the number of rows and of keys: the control must differ."""
    steady, block = layers.pad_rows, requests.BLOCK

    layers.pad_rows = lambda x: x
    requests.BLOCK = 1
    recorded, stepping.trace = (
        stepping.trace,
        lambda module, inputs: None,
    )  # a trace remembers the code it ran
    try:
        yield
    finally:
        layers.pad_rows = steady
        requests.BLOCK, stepping.trace = block, recorded


def engine(
    model: str, seed: int, count: int, texts: Sequence[str] | None = None
) -> tuple[int, int, dict[str, Any]]:
    """How many were compared, how many differ, and the figures of each way and of the control."""
    texts, figure, failures, n = list(texts or sentences(seed, count)), dict[str, Any](), 0, 0
    few, threads = texts[: max(20, count // 5)], torch.get_num_threads()
    ways: list[tuple[str, int, str, Sequence[str], dict[str, Any]]] = [
        ("1 thread", 1, "float32", texts, {}),
        ("2 threads", 2, "float32", few, {}),
        ("greedy", 1, "float32", few, {"beam": 1}),
        ("drawn", 1, "float32", few, {"beam": 1, "sample": True, "seed": seed}),
        ("int8", 1, "int8", few, {}),
        ("int8, 2 threads", 2, "int8", few, {"beam": 1}),
    ]
    spent, alone = {}, dict[str, list[Hypothesis]]()
    for name, count_of, precision, sources, changes in ways:
        task = load(model, "cpu", count_of, precision)
        comparison = compared(task, requests_of(task, sources, **changes), seed)
        figure[name], spent[name], alone[name] = comparison.summary(), comparison.seconds, comparison.alone
        n, failures = n + comparison.compared, failures + comparison.scores
    same = [a.tokens == b.tokens for a, b in zip(alone["1 thread"], alone["2 threads"])]
    figure["threads_agree"] = f"{sum(same)} of {len(same)}"
    with unsteady():
        task = load(model, "cpu", 1, "float32")
        control = compared(task, requests_of(task, few, beam=1), seed)
    torch.set_num_threads(threads)
    figure["control"] = control.summary()
    figure["slowdown"] = round(spent["greedy"] / control.seconds, 3)
    figure["missed"] = above(slowdown=(figure["slowdown"], SLOWER))
    return n, failures + same.count(False) + (control.scores == 0), figure


async def served(
    server: Server, seed: int, count: int, pair: Pair = ENGLISH, texts: Sequence[str] | None = None
) -> tuple[int, int, list[str]]:
    """Over HTTP: each text alone, then all together, shuffled, with strange neighbours; and what was said."""
    texts = list(texts or sentences(seed, count))
    link, dice = Link(server.port), random.Random(seed)
    alone = {text: (await patient(link, body(text, *pair))).body for text in texts}
    every = [*texts, *dice.choices([*HOSTILE, texts[0] * 5], k=len(texts) // 8)]
    dice.shuffle(every)
    gate = asyncio.Semaphore(32)

    async def one(text: str) -> bool:
        async with gate:
            link = Link(server.port)
            once = 1 if text not in alone else TRIES
            answer = await patient(link, body(text, *pair), once)
            link.close()
            return text in alone and answer.body != alone[text]

    wrong = sum(await asyncio.gather(*map(one, every)))
    many = await patient(link, {**body("", *pair), "q": texts[:32]})
    translations = [json.loads(alone[text])["translatedText"] for text in texts]
    lists = [each == other for each, other in zip(many.json()["translatedText"], translations)]
    link.close()
    return len(every) + len(lists), wrong + lists.count(False), translations


def commanded(model: str, texts: Sequence[str]) -> list[str]:
    """What `regard translate` makes of them."""
    command = [sys.executable, "-m", "regard", "translate", "-m", model]
    lines = "".join(f"{text}\n" for text in texts)
    process = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return process.stdout.decode().split("\n")[:-1]


async def invariance(
    server: Server,
    seed: int,
    count: int,
    model: str,
    pair: Pair = ENGLISH,
    texts: Sequence[str] | None = None,
) -> Result:
    """By server, command and engine."""
    n, failures, translations = await served(server, seed, count, pair, texts)
    sources = list(texts or sentences(seed, count))
    lines = await asyncio.to_thread(commanded, model, sources)
    command = sum(one != other for one, other in zip(lines, translations, strict=True))
    more, wrong, figure = await asyncio.to_thread(engine, model, seed, count, texts)
    figure = {"server_differs": failures, "command_differs": command, **figure}
    return Result("batch-invariance", n + len(lines) + more, failures + command + wrong, figure, seed)
