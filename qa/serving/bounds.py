"""Requests that are too much, and the end of a server."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from qa.serving.client import Answer, Link, Result, Server, above, share, started
from qa.serving.driver import sentences
from qa.serving.load import ENGLISH, Pair, body

NUMBERS = [-1, 0, 2**31, 2**63, 2**64, 1e308, -1e308, 1.5, True, None, "1", "NaN", [], {}]
FIELDS = {
    "/v1/completions": ["max_tokens", "n", "best_of", "temperature", "top_p", "logprobs", "seed", "stop",
                        "presence_penalty", "logit_bias", "prompt", "model", "stream", "echo"],
    "/translate": ["alternatives", "q", "source", "target", "format"],
    "/api/v1/fill": ["num_results", "text"],
    "/api/v1/score": ["source", "target"],
    "/api/v1/answer": ["question", "context", "num_results", "min_score"],
}  # fmt: skip


def oversize(seed: int, count: int, model: str, pair: Pair) -> Iterator[tuple[str, bytes]]:
    """Odd requests without end: an address and what to send there."""
    dice = random.Random(seed)
    good: dict[str, dict[str, Any]] = {
        "/v1/completions": {"model": model, "prompt": "a", "max_tokens": 1},
        "/translate": body("a", *pair),
        "/api/v1/fill": {"text": "<mask>"},
        "/api/v1/score": {"source": "a", "target": "b"},
        "/api/v1/answer": {"question": "a", "context": "b"},
    }
    fixed = [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"q": NaN, "source": "en", "target": "de"}',
        json.dumps({**body("", *pair), "q": ["a"] * 200_000}).encode(),
        json.dumps(body("x" * 900_000, *pair)).encode(),
        json.dumps({"model": model, "prompt": list(range(200_000))}).encode(),
        b'{"q": "\\ud800", "source": 1}',
        b"\x00" * 1000,
        b'{"n": ' + b"9" * 10_000 + b"}",
    ]
    for _ in range(count):
        path = dice.choice(list(good))
        if dice.random() < 0.2:
            yield path, dice.choice(fixed)
            continue
        field = dice.choice(FIELDS[path])
        value = dice.choice([*NUMBERS, "y" * 30_000, ["z"] * 1000, {"a": {"b": []}}])
        if value in (1, None) and value is not True:
            continue
        yield path, json.dumps({**good[path], field: value}).encode()


async def limits(
    server: Server, seed: int, count: int, model: str = "demo", pair: Pair = ENGLISH, huge: int = 1 << 30
) -> Result:
    """Nothing odd gets another answer than 4xx (or 200, where it is allowed after all), and quickly."""
    link, failures, slow, statuses = Link(server.port), 0, list[float](), dict[int, int]()
    before = server.rss()
    for path, raw in oversize(seed, count, model, pair):
        answer = await link.ask("POST", path, raw)
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        failures += not (answer.status == 200 or 400 <= answer.status < 500)
        if answer.status != 200:
            slow.append(answer.seconds)
    long = await link.send(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 65_536 + b"\r\n\r\n")
    failures += long.status not in (400, 431)
    middle = server.rss()
    upload = await pour(server, huge)
    failures += upload.status != 413
    figure = {
        "statuses": statuses,
        "refusal_p99": share(slow, 0.99),
        "upload_seconds": round(upload.seconds, 3),
        "upload_growth": round(server.rss() - middle, 1),
        "growth": round(middle - before, 1),
    }
    figure["missed"] = above(refusal_p99=(share(slow, 0.99), 0.1), upload_growth=(server.rss() - middle, 4))
    return Result("limits", count + 2, failures, figure, seed)


async def pour(server: Server, size: int) -> Answer:
    """A body of many bytes, sent until the server answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    start, sent = time.perf_counter(), 0
    head = "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    part = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    reading = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
    try:
        while sent < size and not reading.done():
            writer.write(part)
            await writer.drain()
            sent += 65_536
        head_ = await asyncio.wait_for(reading, 10)
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        head_ = reading.result() if reading.done() and not reading.exception() else b"HTTP/1.1 000 \r\n"
    seconds = time.perf_counter() - start
    writer.close()
    return Answer(int(head_.split()[1]), {}, b"", seconds)


async def drain(
    make: Callable[[], Any],
    seed: int,
    count: int,
    pair: Pair = ENGLISH,
    texts: Sequence[str] | None = None,
    notice: float = 0.2,
) -> Result:
    """SIGTERM under load: what was accepted is answered, readiness falls within `notice` seconds, liveness
    stays."""
    texts = list(texts or sentences(seed))
    failures, lasting, notices = 0, list[float](), list[float]()
    for number in range(count):
        with make() as server:
            wrong, seconds, noticed = await one_end(server, random.Random(seed + number), texts, pair, notice)
        failures += wrong
        lasting.append(seconds)
        notices.append(noticed)
    figure = {"exit_most": round(max(lasting), 2), "ready_503_after": round(max(notices), 3)}
    return Result("drain", count, failures, figure, seed)


async def one_end(
    server: Server, dice: random.Random, texts: list[str], pair: Pair, notice: float
) -> tuple[int, float, float]:
    assert server.process is not None
    answers, over = list[Answer](), asyncio.Event()

    async def client() -> None:
        link = Link(server.port)
        while not over.is_set():
            answer = await link.ask("POST", "/translate", body(dice.choice(texts), *pair))
            answers.append(answer)
            if answer.status != 200:
                return

    clients = [asyncio.ensure_future(client()) for _ in range(16)]
    await asyncio.sleep(0.5 + dice.random())
    ready, live = Link(server.port), Link(server.port)
    await ready.ask("GET", "/health/ready")
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    noticed, lives = 60.0, True
    while time.monotonic() - start < notice + 0.05:
        if (await ready.ask("GET", "/health/ready")).status == 503:
            noticed = min(noticed, time.monotonic() - start)
            break
    lives = (await live.ask("GET", "/health/live")).status == 200
    over.set()
    await asyncio.gather(*clients)
    await asyncio.to_thread(server.process.wait, 40)
    # a connection that was not accepted any more is no accepted request: status 0 at once
    lost = sum(each.status not in (200, 503) and each.seconds > 0.05 for each in answers)
    return lost + (not lives) + (noticed > notice), time.monotonic() - start, noticed


def fresh(models: list[str], *options: str) -> Callable[[], Any]:
    return lambda: started(models, *options)
