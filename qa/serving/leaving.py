"""Clients that leave or dawdle."""

from __future__ import annotations

import asyncio
import json
import random
import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from qa.serving.client import Link, Result, Server, above, share
from qa.serving.driver import numbers, sentences
from qa.serving.load import ENGLISH, Pair, body, patient

HEAD = "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
AT_ONCE = 20  # clients that vanish together
BUSY = ("queue", "queue_tokens", "requests", "rows")
LONG = 64  # texts of a request that cannot be done in time
UNREAD = 60  # answers that a client asks for and does not read: more than what lies on the way


async def busy(server: Server) -> tuple[dict[str, float], float]:
    """What is in work now, and how many steps all desks have done."""
    metrics = await numbers(server.address)
    left = {
        name: value
        for name, value in metrics.items()
        if value and ("in_flight" in name or any(f'what="{word}"' in name for word in BUSY))
    }
    return left, sum(value for name, value in metrics.items() if 'what="steps"' in name)


async def settled(server: Server, seconds: float) -> tuple[dict[str, float], float, float]:
    """What is in work after a moment (nothing, if all is well), the seconds that it took, and the steps."""
    start = time.monotonic()
    left, first = await busy(server)
    steps = first
    while left and time.monotonic() - start < seconds:
        await asyncio.sleep(0.01)
        left, steps = await busy(server)
    return left, time.monotonic() - start, steps - first


class Vanishing:
    """Clients that go away without a word: while they write, wait, or read a stream."""

    def __init__(
        self, server: Server, dice: random.Random, texts: Sequence[str], pair: Pair, writer: str
    ) -> None:
        self.server, self.dice, self.texts, self.pair, self.writer = server, dice, texts, pair, writer

    async def one(self, number: int) -> None:
        reader, out = await asyncio.open_connection("127.0.0.1", self.server.port)
        with suppress(OSError, asyncio.IncompleteReadError):
            await (self.while_streaming if self.writer and number % 2 else self.while_waiting)(reader, out)
        out.transport.abort()

    async def while_waiting(self, _: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        raw = json.dumps({**body("", *self.pair), "q": self.dice.sample(self.texts, 8)}).encode()
        cut = self.dice.choice([len(raw), len(raw), len(raw) // 2])
        out.write(f"{HEAD.format('/translate')}Content-Length: {len(raw)}\r\n\r\n".encode() + raw[:cut])
        await asyncio.sleep(self.dice.choice([0.0, self.dice.random() * 0.5]))

    async def while_streaming(self, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        body = {"model": self.writer, "prompt": "I", "max_tokens": 200, "stream": True}
        raw = json.dumps(body).encode()
        out.write(f"{HEAD.format('/v1/completions')}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
        for _ in range(self.dice.randint(0, 12)):
            await asyncio.wait_for(reader.readuntil(b"\n\n"), 5)


async def cancel(
    server: Server,
    seed: int,
    count: int,
    pair: Pair = ENGLISH,
    texts: Sequence[str] | None = None,
    writer: str = "",
    patience: float = 1.0,
) -> Result:
    """Clients that vanish at any moment leave nothing behind, and the work for them ends."""
    dice, link = random.Random(seed), Link(server.port)
    texts = list(texts or sentences(seed))
    clients = Vanishing(server, dice, texts, pair, writer)
    base = [(await patient(link, body(text, *pair))).seconds for text in texts[:20]]
    lasting, steps, left = list[float](), list[float](), dict[str, float]()
    for _ in range(0, count, AT_ONCE):
        await asyncio.gather(*(clients.one(number) for number in range(AT_ONCE)))
        rest, seconds, more = await settled(server, patience)
        left |= rest
        lasting.append(seconds)
        steps.append(more)
    after = [(await patient(link, body(text, *pair))).seconds for text in texts[:20]]
    link.close()
    figure: dict[str, Any] = {
        "stopped_after": round(max(lasting), 3),
        "stopped_after_p50": share(lasting, 0.5),
        "steps_after": max(steps),
        "left": left,
        "p50_before": share(base, 0.5),
        "p50_after": share(after, 0.5),
    }
    figure["missed"] = above(
        stopped_after=(max(lasting), 0.1),
        slower_after=(figure["p50_after"] / max(1e-9, figure["p50_before"]), 1.1),
    )
    return Result("cancel", count, len(left), figure, seed)


async def deadline(
    server: Server,
    seed: int,
    count: int,
    seconds: float,
    pair: Pair = ENGLISH,
    texts: Sequence[str] | None = None,
    patience: float = 1.0,
) -> Result:
    """A server that gives each request so many seconds answers then, whatever is left to do."""
    dice, link, failures, over = random.Random(seed), Link(server.port), 0, list[float]()
    texts = list(texts or sentences(seed))
    for _ in range(count):
        long = [" ".join(dice.choices(texts, k=3))[:700] for _ in range(LONG)]
        answer = await link.ask("POST", "/translate", {**body("", *pair), "q": long})
        failures += answer.status != 503 or "retry-after" not in answer.headers
        over.append(answer.seconds - seconds)
    left, _, _ = await settled(server, patience)
    link.close()
    figure: dict[str, Any] = {
        "seconds": seconds,
        "over_p50": share(over, 0.5),
        "over_most": round(max(over), 3),
    }
    figure |= {"left": left, "missed": above(over_most=(max(over), 0.1))}
    return Result("deadline", count, failures + len(left), figure, seed)


async def dawdle(server: Server, kind: int, seconds: float, tick: float) -> float:
    """One bad client; how long it was borne, or `seconds` if to the end."""
    start = time.monotonic()
    head = HEAD.format("/translate").encode()
    first, drip = [
        (b"GET / HTTP/1.1\r\n", b"X: y\r\n"),
        (head + b"Content-Length: 100000\r\n\r\n", b" "),
        (head + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
        (b"", b""),
    ][kind]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(first)
        reading = asyncio.ensure_future(read_out(reader))
        while time.monotonic() - start < seconds:
            await asyncio.wait([reading], timeout=tick)
            if reading.done() or writer.transport.is_closing():
                break
            writer.write(drip)
        reading.cancel()
        writer.transport.abort()
    except OSError:
        pass
    return time.monotonic() - start


async def read_out(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def never_read(server: Server, seconds: float, tick: float) -> float:
    """A client that asks for much and reads nothing of it; how long it was borne."""
    start, loop = time.monotonic(), asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        watch = select.poll()
        watch.register(client, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        try:
            await loop.sock_connect(client, ("127.0.0.1", server.port))
            requests = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * UNREAD
            sending = asyncio.ensure_future(loop.sock_sendall(client, requests))
            while time.monotonic() - start < seconds and not watch.poll(0):
                await asyncio.wait([sending], timeout=tick) if not sending.done() else await asyncio.sleep(
                    tick
                )
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        except OSError:
            pass
    return time.monotonic() - start


async def slow(
    server: Server,
    seed: int,
    count: int,
    seconds: float,
    pair: Pair = ENGLISH,
    texts: Sequence[str] | None = None,
    most: float = 10.0,
) -> Result:
    """Many clients that write slowly, or read nothing, cost the others nothing, and are cut."""
    texts = list(texts or sentences(seed))
    link = Link(server.port)
    base = [(await patient(link, body(text, *pair))).seconds for text in texts[:40]]
    before = server.rss()  # of a server that has worked
    bad = [asyncio.ensure_future(never_read(server, seconds, 0.5) if number % 5 == 4
                                 else dawdle(server, number % 5, seconds, 0.5))
           for number in range(count)]  # fmt: skip
    await asyncio.sleep(1.0)
    peak, during = before, list[float]()
    for text in (texts * 10)[:400]:
        if all(each.done() for each in bad):
            break
        during.append((await patient(link, body(text, *pair))).seconds)
        peak = max(peak, server.rss())
    borne = await asyncio.gather(*bad)
    link.close()
    figure: dict[str, Any] = {
        "longest": round(max(borne), 2),
        "longest_unread": round(max(borne[4::5], default=0.0), 2),
        "p99_before": share(base, 0.99),
        "p99_during": share(during, 0.99),
        "p50_before": share(base, 0.5),
        "p50_during": share(during, 0.5),
        "rss_growth": round(peak - before, 1),
    }
    figure["missed"] = above(
        longest=(max(borne), 10.0),
        slower=(figure["p99_during"] / max(1e-9, figure["p99_before"]), 1.2),
        rss_growth=(peak - before, 32),
    )
    return Result("slow-clients", count, sum(each > most for each in borne), figure, seed)
