"""Requests that are too much, clients that leave or dawdle, and the end of a server: B14, B15, B16, B17."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from serving.client import Answer, Link, Result, Server, share, started
from serving.load import ENGLISH, Pair, body, patient, sentences

NUMBERS = [-1, 0, 2**31, 2**63, 2**64, 1e308, -1e308, 1.5, True, None, "1", "NaN", [], {}]
FIELDS = {
    "/v1/completions": ["max_tokens", "n", "best_of", "temperature", "top_p", "logprobs", "seed", "stop",
                        "presence_penalty", "logit_bias", "prompt", "model", "stream", "echo"],
    "/translate": ["alternatives", "q", "source", "target", "format"],
    "/api/v1/fill": ["top_k", "text"],
    "/api/v1/score": ["source", "target"],
    "/api/v1/answer": ["question", "context", "top_k", "no_answer"],
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
    """B14: nothing odd gets another answer than 4xx (or 200, where it is allowed after all), and quickly."""
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
    return Result("B14 input limits", count + 2, failures, figure, seed)


async def pour(server: Server, size: int) -> Answer:
    """A body of many bytes, sent until the server answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    begun, sent = time.perf_counter(), 0
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
    seconds = time.perf_counter() - begun
    writer.close()
    return Answer(int(head_.split()[1]), {}, b"", seconds)


async def counters(server: Server) -> dict[str, float]:
    """What the server says of its queue."""
    link = Link(server.port)
    text = (await link.ask("GET", "/metrics")).body.decode()
    link.close()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


async def settled(server: Server, seconds: float) -> dict[str, float]:
    """What is in work after a moment: nothing, if all is well."""
    until = time.monotonic() + seconds
    while True:
        found = await counters(server)
        busy = {
            name: value for name, value in found.items() if value and ("in_flight" in name or re_busy(name))
        }
        if not busy or time.monotonic() > until:
            return busy
        await asyncio.sleep(0.05)


def re_busy(name: str) -> bool:
    return any(f'what="{word}"' in name for word in ("queue", "queue_tokens", "requests", "rows"))


async def cancel(
    server: Server, seed: int, count: int, pair: Pair = ENGLISH, texts: Sequence[str] | None = None
) -> Result:
    """B15: clients that vanish at any moment leave nothing behind."""
    dice, link = random.Random(seed), Link(server.port)
    texts = list(texts or sentences(seed))
    base = [(await patient(link, body(text, *pair))).seconds for text in texts[:20]]

    async def one() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        raw = json.dumps({**body("", *pair), "q": dice.sample(texts, min(8, len(texts)))}).encode()
        head = f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(raw)}\r\n"
        cut = dice.choice([len(raw), len(raw), len(raw) // 2])
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + raw[:cut])
        await asyncio.sleep(dice.random() * 0.5)
        writer.transport.abort()

    for _ in range(0, count, 20):
        await asyncio.gather(*(one() for _ in range(20)))
    begun = time.monotonic()
    left = await settled(server, 5.0)
    seconds = time.monotonic() - begun
    after = [(await patient(link, body(text, *pair))).seconds for text in texts[:20]]
    figure = {
        "quiet_after": round(seconds, 3),
        "left": left,
        "p50_before": share(base, 0.5),
        "p50_after": share(after, 0.5),
    }
    return Result("B15 cancel", count, len(left), figure, seed)


async def dawdle(server: Server, kind: int, seconds: float, tick: float) -> float:
    """One bad client; how long it was borne, or `seconds` if to the end."""
    begun = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        first, drip = [
            (b"GET / HTTP/1.1\r\n", b"X: y\r\n"),
            (head + b"Content-Length: 100000\r\n\r\n", b" "),
            (head + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
            (b"", b""),
            (b"GET /web/js/main.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50, b""),
        ][kind]
        writer.write(first)
        reading = asyncio.ensure_future(reader.read(1) if kind == 4 else read_out(reader))
        while time.monotonic() - begun < seconds:
            await asyncio.wait([reading], timeout=tick)
            if (reading.done() and kind != 4) or writer.transport.is_closing():
                break
            if kind == 4 and reading.done() and reader.at_eof():
                break
            writer.write(drip)
        reading.cancel()
        writer.transport.abort()
    except OSError:
        pass
    return time.monotonic() - begun


async def read_out(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def slow(
    server: Server,
    seed: int,
    count: int,
    seconds: float,
    pair: Pair = ENGLISH,
    texts: Sequence[str] | None = None,
    most: float = 10.0,
) -> Result:
    """B16: many slow clients cost the others nothing, and are cut."""
    texts = list(texts or sentences(seed))
    link, before = Link(server.port), server.rss()
    base = [(await patient(link, body(text, *pair))).seconds for text in texts[:40]]
    bad = [asyncio.ensure_future(dawdle(server, number % 4, seconds, 0.5)) for number in range(count)]
    await asyncio.sleep(1.0)
    peak, during = before, list[float]()
    for text in (texts * 10)[:400]:
        if all(each.done() for each in bad):
            break
        during.append((await patient(link, body(text, *pair))).seconds)
        peak = max(peak, server.rss())
    borne = await asyncio.gather(*bad)
    figure = {
        "longest": round(max(borne), 2),
        "p99_before": share(base, 0.99),
        "p99_during": share(during, 0.99),
        "p50_before": share(base, 0.5),
        "p50_during": share(during, 0.5),
        "rss_growth": round(peak - before, 1),
    }
    return Result("B16 slow clients", count, sum(each > most for each in borne), figure, seed)


async def drain(
    make: Callable[[], Any], seed: int, count: int, pair: Pair = ENGLISH, texts: Sequence[str] | None = None
) -> Result:
    """B17: SIGTERM under load: what was accepted is answered, readiness falls at once, liveness stays."""
    texts = list(texts or sentences(seed))
    failures, lasting, told = 0, list[float](), list[float]()
    for number in range(count):
        with make() as server:
            wrong, seconds, noticed = await one_end(server, random.Random(seed + number), texts, pair)
        failures += wrong
        lasting.append(seconds)
        told.append(noticed)
    figure = {"exit_most": round(max(lasting), 2), "ready_503_after": round(max(told), 3)}
    return Result("B17 drain", count, failures, figure, seed)


async def one_end(
    server: Server, dice: random.Random, texts: list[str], pair: Pair
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
    begun = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    noticed, lives = 60.0, True
    while time.monotonic() - begun < 0.25:
        if (await ready.ask("GET", "/health/ready")).status == 503:
            noticed = min(noticed, time.monotonic() - begun)
            break
    lives = (await live.ask("GET", "/health/live")).status == 200
    over.set()
    await asyncio.gather(*clients)
    await asyncio.to_thread(server.process.wait, 40)
    # a connection that was not accepted any more is no accepted request: status 0 at once
    lost = sum(each.status not in (200, 503) and each.seconds > 0.05 for each in answers)
    return lost + (not lives) + (noticed > 0.2), time.monotonic() - begun, noticed


def fresh(models: list[str], *options: str) -> Callable[[], Any]:
    return lambda: started(models, *options)
