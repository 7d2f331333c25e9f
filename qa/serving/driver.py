"""Requests that reach a server as they do in life, and how long they take.

Either so many clients each ask again as soon as they have their answer (a closed loop), or requests come by
chance at a mean rate, whether or not those before are answered (an open loop, Poisson). In an open loop time
counts from the moment at which a request was due: a server that keeps all waiting cannot hide it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from typing import Any

from qa.serving.link import Address, Answer, Link
from regard.cli.bench import sentences
from regard.errors import RegardError, UsageError

__all__ = ["sentences"]  # texts to send, where none are given
REFUSED = (429, 503)
LONGEST_PAUSE = 1.0  # seconds that a refused client waits; Retry-After may say more
MASK = "<mask>"


@dataclass(frozen=True)
class Question:
    """What is sent."""

    path: str
    content: Mapping[str, Any]


@dataclass
class Load:
    """What came of some seconds."""

    seconds: float
    answers: list[Answer] = field(default_factory=list)

    def of(self, *statuses: int) -> list[Answer]:
        return [answer for answer in self.answers if answer.status in statuses]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return round(len(self.of(200)) / self.seconds, 2)

    def summary(self) -> dict[str, float]:
        good = self.of(200)
        return {"rate": self.rate, "answers": len(good), **times([each.seconds for each in good])}


@dataclass(frozen=True)
class Figures:
    """A measured load. Seconds are those of answers with status 200."""

    way: str
    seconds: float
    asked: int
    answered: int
    refused: int  # 429 and 503
    failed: int  # any other status, or no answer
    requests_per_second: float
    tokens_per_second: float  # written
    tokens_read_per_second: float
    p50: float
    p95: float
    p99: float

    def summary(self) -> dict[str, Any]:
        return asdict(self)


async def closed(address: Address, questions: Sequence[Question], clients: int, seconds: float) -> Load:
    """Each client asks again as soon as it has its answer; one that is refused waits a moment."""
    load, start = Load(seconds), time.monotonic()
    rest = cycle(written(address, questions))

    async def client() -> None:
        link = Link(address)
        while time.monotonic() - start < seconds:
            answer = await link.send(next(rest))
            load.answers.append(answer)
            if answer.status in REFUSED:
                wanted = answer.headers.get("retry-after", "1")
                await asyncio.sleep(min(LONGEST_PAUSE, float(wanted) if wanted.isdecimal() else 1.0))
        link.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.monotonic() - start
    return load


async def opened(
    address: Address, questions: Sequence[Question], rate: float, seconds: float, seed: int
) -> Load:
    """Requests come at a mean rate whether or not those before are answered."""
    load, rest, dice = Load(seconds), cycle(written(address, questions)), random.Random(seed)
    idle: list[Link] = []
    running: set[asyncio.Task[None]] = set()

    async def one(raw: bytes, due: float) -> None:
        link = idle.pop() if idle else Link(address)
        load.answers.append(await link.send(raw, due=due))
        idle.append(link)

    at = start = time.monotonic()
    while at - start < seconds:
        at += dice.expovariate(rate)  # P(gap > t) = exp(-rate t)
        # also who is late lets answers in: their connections are free again, and it need not open others
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        task = asyncio.ensure_future(one(next(rest), at))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    load.seconds = time.monotonic() - start  # until the last of those who waited had an answer
    for link in idle:
        link.close()
    return load


def written(address: Address, questions: Sequence[Question]) -> list[bytes]:
    """Requests as they are sent, so that no time is lost with them later."""
    return [address.written("POST", question.path, question.content) for question in questions]


@dataclass(frozen=True)
class Drive:
    """How a server is driven: by clients in a closed loop, or in an open one at a rate."""

    clients: int = 32
    rate: float | None = None
    seconds: float = 30.0
    seed: int = 1

    @property
    def way(self) -> str:
        return (
            f"{self.clients} clients" if self.rate is None else f"{self.rate:g} requests a second by chance"
        )

    async def run(self, address: Address, questions: Sequence[Question]) -> Load:
        if self.rate is None:
            return await closed(address, questions, self.clients, self.seconds)
        return await opened(address, questions, self.rate, self.seconds, self.seed)


async def measure(
    address: Address, questions: Sequence[Question], drive: Drive, warm: float = 1.0
) -> Figures:
    """The figures of a load, after a moment in which the server gets warm."""
    await closed(address, questions, min(4, drive.clients), warm)
    before = await tokens(address)
    load = await drive.run(address, questions)
    after = await tokens(address)
    written, read = ((after[kind] - before[kind]) / load.seconds for kind in ("written", "read"))
    good, refused = load.of(200), load.of(*REFUSED)
    return Figures(
        way=drive.way,
        seconds=round(load.seconds, 2),
        asked=len(load.answers),
        answered=len(good),
        refused=len(refused),
        failed=len(load.answers) - len(good) - len(refused),
        requests_per_second=load.rate,
        tokens_per_second=round(written, 1),
        tokens_read_per_second=round(read, 1),
        **times([each.seconds for each in good]),
    )


async def numbers(address: Address) -> dict[str, float]:
    """What the server counts (/metrics)."""
    link = Link(address)
    answer = await link.ask("GET", "/metrics")
    link.close()
    if answer.status != 200:
        raise RegardError(refusal_of(address, answer))
    lines = [line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


async def tokens(address: Address) -> dict[str, float]:
    """Pieces that the server has read and written so far."""
    metrics = await numbers(address)
    totals = [(name, value) for name, value in metrics.items() if "tokens_total" in name]
    return {kind: sum(v for name, v in totals if f'kind="{kind}"' in name) for kind in ("read", "written")}


async def questions_for(
    address: Address, texts: Sequence[str], model: str = "", longest: int = 32
) -> list[Question]:
    """Each text as what the server's first model is asked for, or the named one's."""
    link = Link(address)
    answers = [await link.ask("GET", path) for path in ("/v1/models", "/api/v1/models", "/languages")]
    link.close()
    if wrong := next((each for each in answers if each.status != 200), None):
        raise RegardError(refusal_of(address, wrong))
    listed, shown, languages = (each.json() for each in answers)
    names = [each["id"] for each in listed["data"]]
    if model and model not in names:
        raise UsageError(f'the server has no model "{model}"; it has {", ".join(names)}')
    name = model or names[0]
    tasks = {each["name"]: each["task"] for each in shown["models"]}
    task = tasks.get(name, "embed")
    pairs = ((each["code"], target) for each in languages for target in each["targets"])
    pair = next(((source, target) for source, target in pairs if source != target), None)
    if task == "translate" and not model and pair is not None:  # the first that translates is the pair's own
        return [Question("/translate", {"q": text, "source": pair[0], "target": pair[1]}) for text in texts]
    return [question(name, task, text, longest) for text in texts]


def question(name: str, task: str, text: str, longest: int) -> Question:
    """One text for a model of some task."""
    match task:
        case "translate":
            return Question("/v1/completions", {"model": name, "prompt": text})
        case "generate":
            return Question("/v1/completions", {"model": name, "prompt": text, "max_tokens": longest})
        case "embed":
            return Question("/v1/embeddings", {"model": name, "input": text})
        case "fill":
            return Question(
                "/api/v1/fill", {"model": name, "text": text if MASK in text else f"{text} {MASK}"}
            )
        case "answer":
            return Question("/api/v1/answer", {"model": name, "question": text, "context": text})
    return Question(f"/api/v1/{task}", {"model": name, "text": text})


def refusal_of(address: Address, answer: Answer) -> str:
    """Why nothing can be measured."""
    where = f"{address.host}:{address.port}"
    if answer.status == 0:
        return f"{where}: nobody answers there; give the address of a running server"
    if answer.status in (401, 403):
        return f"{where}: the server refuses ({answer.status}); give a key with --key, and a name it knows"
    return f"{where}: its models are not to be had ({answer.status}); is it a regard serve?"


def share(values: Sequence[float], part: float) -> float:
    """The value that `part` of all are not above; 0 of none."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 4) if ordered else 0.0


def times(values: Sequence[float]) -> dict[str, float]:
    return {f"p{round(100 * part, 1):g}": share(values, part) for part in (0.5, 0.95, 0.99)}
