"""More requests than can be answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from qa.serving import driver
from qa.serving.client import Answer, Link, Result, Server, above, share
from qa.serving.driver import REFUSED, Load, Question, sentences

TRIES = 200
DEADLINE = 30.0  # seconds, of a server that was told nothing else
Pair = tuple[str, str]
ENGLISH: Pair = ("en", "de")


def body(text: str, source: str = "en", target: str = "de") -> dict[str, str]:
    return {"q": text, "source": source, "target": target}


def questions(texts: Sequence[str], pair: Pair) -> list[Question]:
    return [Question("/translate", body(text, *pair)) for text in texts]


async def closed(server: Server, texts: Sequence[str], clients: int, seconds: float, pair: Pair) -> Load:
    return await driver.closed(server.address, questions(texts, pair), clients, seconds)


async def opened(
    server: Server, texts: Sequence[str], rate: float, seconds: float, seed: int, pair: Pair
) -> Load:
    return await driver.opened(server.address, questions(texts, pair), rate, seconds, seed)


async def alive(server: Server, stop: asyncio.Event) -> list[float]:
    """How long liveness takes meanwhile."""
    link, answers = Link(server.port), []
    while not stop.is_set():
        answer = await link.ask("GET", "/health/live")
        answers.append(answer.seconds if answer.status == 200 else 60.0)
        await asyncio.sleep(0.1)
    return answers


async def overload(
    server: Server, seed: int, seconds: float, pair: Pair = ENGLISH, texts: Sequence[str] | None = None
) -> Result:
    """Twice as much as can be done, then ten times, then half."""
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
    lives = await watching
    figure: dict[str, Any] = {
        "capacity": capacity,
        "goodput_at_2x": round(twice.rate / capacity, 3),
        "goodput_at_10x": round(tenfold.rate / capacity, 3),
        "refused": len(refused),
        "refusal_p99": share([each.seconds for each in twice.of(*REFUSED)], 0.99),
        "accepted_p99": share([each.seconds for each in twice.of(200)], 0.99),
        "accepted_most": share([each.seconds for each in twice.of(200)], 1),
        "live_p99": share(lives, 0.99),
        "rss_growth": round(after - before, 1),
        "p50_before": share([each.seconds for each in quiet.of(200)], 0.5),
        "p50_after": share([each.seconds for each in again.of(200)], 0.5),
        "other": sorted({each.status for each in wrong}),
    }
    figure["missed"] = above(
        goodput_lost_at_2x=(1 - twice.rate / capacity, 0.05),
        goodput_lost_at_10x=(1 - tenfold.rate / capacity, 0.2),
        refusal_p99=(share([each.seconds for each in twice.of(*REFUSED)], 0.99), 0.05),
        accepted_p99_9=(share([each.seconds for each in twice.of(200)], 0.999), DEADLINE),
        live_p99=(share(lives, 0.99), 0.1),
        rss_growth=(after - before, 50),
        slower_after=(figure["p50_after"] / max(1e-9, figure["p50_before"]), 1.1),
    )
    return Result("overload", len(every), len(wrong) + len(mute), figure, seed)


async def patient(link: Link, content: object, tries: int = TRIES) -> Answer:
    """An answer, asked for again while there is too much to do."""
    for _ in range(tries):
        answer = await link.ask("POST", "/translate", content)
        if answer.status not in REFUSED:
            break
        await asyncio.sleep(0.2)
    return answer
