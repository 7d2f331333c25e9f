"""Requests that arrive as they do: all at once, one after another, or by chance at a given rate (Poisson)."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from regard.data.phrasebook import phrase
from serving.client import Answer, Link, Result, Server, share, times

REFUSED = (429, 503)
TRIES = 200
Pair = tuple[str, str]
ENGLISH: Pair = ("en", "de")


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

    def told(self) -> dict[str, object]:
        good = self.of(200)
        return {"rate": self.rate, "answers": len(good), **times([each.seconds for each in good])}


def sentences(seed: int, count: int = 400) -> list[str]:
    """Sources of the phrasebook, one to three of them in a text."""
    dice, known = random.Random(seed), [phrase(seed, number).english for number in range(count)]
    return [" ".join(dice.choices(known, k=dice.randint(1, 3))) for _ in range(count)]


def body(text: str, source: str = "en", target: str = "de") -> dict[str, str]:
    return {"q": text, "source": source, "target": target}


async def closed(server: Server, texts: Sequence[str], clients: int, seconds: float, pair: Pair) -> Load:
    """Each client asks again as soon as it has its answer."""
    load, begun = Load(seconds), time.monotonic()
    rest = iter(range(10**9))

    async def client() -> None:
        link = Link(server.port)
        while time.monotonic() - begun < seconds:
            text = texts[next(rest) % len(texts)]
            load.answers.append(await link.ask("POST", "/translate", body(text, *pair)))
        link.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.monotonic() - begun
    return load


async def opened(
    server: Server, texts: Sequence[str], rate: float, seconds: float, seed: int, pair: Pair
) -> Load:
    """Requests come at a mean rate whether or not those before are answered."""
    load, begun, dice = Load(seconds), time.monotonic(), random.Random(seed)
    idle: list[Link] = []
    running: set[asyncio.Task[None]] = set()

    async def one(text: str) -> None:
        link = idle.pop() if idle else Link(server.port)
        load.answers.append(await link.ask("POST", "/translate", body(text, *pair)))
        idle.append(link)

    at, number = begun, 0
    while at - begun < seconds:
        at += dice.expovariate(rate)
        if (rest := at - time.monotonic()) > 0:
            await asyncio.sleep(rest)
        task = asyncio.ensure_future(one(texts[number % len(texts)]))
        running.add(task)
        task.add_done_callback(running.discard)
        number += 1
    await asyncio.gather(*running)
    load.seconds = time.monotonic() - begun  # until the last of those who waited had an answer
    for link in idle:
        link.close()
    return load


async def alive(server: Server, stop: asyncio.Event) -> list[float]:
    """How long liveness takes meanwhile."""
    link, found = Link(server.port), []
    while not stop.is_set():
        answer = await link.ask("GET", "/health/live")
        found.append(answer.seconds if answer.status == 200 else 60.0)
        await asyncio.sleep(0.1)
    return found


async def overload(
    server: Server, seed: int, seconds: float, pair: Pair = ENGLISH, texts: Sequence[str] | None = None
) -> Result:
    """B13: twice as much as can be done, then ten times, then half."""
    texts = texts or sentences(seed)
    await closed(server, texts, 8, seconds / 12, pair)
    capacity = (await closed(server, texts, 32, seconds / 3, pair)).rate
    quiet = await opened(server, texts, capacity / 2, seconds / 6, seed, pair)
    before, stop = server.rss(), asyncio.Event()
    watching = asyncio.ensure_future(alive(server, stop))
    twice = await opened(server, texts, 2 * capacity, seconds, seed + 1, pair)
    stop.set()
    after = server.rss()
    again = await opened(server, texts, capacity / 2, seconds / 6, seed + 2, pair)
    tenfold = await opened(server, texts, 10 * capacity, seconds / 6, seed + 3, pair)
    every = [*twice.answers, *tenfold.answers]
    refused = [each for each in every if each.status in REFUSED]
    wrong = [each for each in every if each.status not in (200, *REFUSED)]
    mute = [each for each in refused if "retry-after" not in each.headers]
    figure = {
        "capacity": capacity,
        "goodput_at_2x": round(twice.rate / capacity, 3),
        "goodput_at_10x": round(tenfold.rate / capacity, 3),
        "refused": len(refused),
        "refusal_p99": share([each.seconds for each in twice.of(*REFUSED)], 0.99),
        "accepted_p99": share([each.seconds for each in twice.of(200)], 0.99),
        "accepted_most": share([each.seconds for each in twice.of(200)], 1),
        "live_p99": share(await watching, 0.99),
        "rss_growth": round(after - before, 1),
        "p50_before": share([each.seconds for each in quiet.of(200)], 0.5),
        "p50_after": share([each.seconds for each in again.of(200)], 0.5),
        "other": sorted({each.status for each in wrong}),
    }
    return Result("B13 overload", len(every), len(wrong) + len(mute), figure, seed)


async def invariance(
    server: Server, seed: int, count: int, pair: Pair = ENGLISH, texts: Sequence[str] | None = None
) -> Result:
    """B20 over HTTP: each text alone, then all together and in another order, with strange neighbours."""
    texts = list(texts or sentences(seed, count))
    link, dice = Link(server.port), random.Random(seed)
    alone = {text: (await patient(link, body(text, *pair))).body for text in texts}
    hostile = ["a", "x" * 400, "\u2028 \x00 " * 50, texts[0] * 5]
    every = [*texts, *dice.choices(hostile, k=len(texts) // 8)]
    dice.shuffle(every)
    gate = asyncio.Semaphore(32)

    async def one(text: str) -> bool:
        async with gate:
            own = Link(server.port)
            once = 1 if text not in alone else TRIES
            answer = await patient(own, body(text, *pair), once)
            own.close()
            return text in alone and answer.body != alone[text]

    wrong = sum(await asyncio.gather(*map(one, every)))
    many = await patient(link, {**body("", *pair), "q": texts[:32]})
    lists = [each == json.loads(alone[text])["translatedText"]
             for each, text in zip(many.json()["translatedText"], texts[:32])]  # fmt: skip
    link.close()
    return Result("B20 the same in company", len(every) + len(lists), wrong + lists.count(False), {}, seed)


async def patient(link: Link, content: object, tries: int = TRIES) -> Answer:
    """An answer, asked for again while there is too much to do."""
    for _ in range(tries):
        answer = await link.ask("POST", "/translate", content)
        if answer.status not in REFUSED:
            break
        await asyncio.sleep(0.2)
    return answer
