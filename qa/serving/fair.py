"""One client beside many: a greedy one, slow sockets without a key, answers that nobody reads."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Sequence
from typing import Any

from qa.serving.client import Link, Result, Server, above, share
from qa.serving.driver import REFUSED, sentences
from qa.serving.load import ENGLISH, Pair, body

POLITE = 32  # clients, each with a key
LARGE = 64  # texts of a greedy request
GREEDY_LINKS = 4  # requests of the greedy client at the same time


def headers_of(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class Crowd:
    """Polite clients, each with a key and a connection of its own."""

    def __init__(
        self, server: Server, keys: Sequence[str], seed: int, pair: Pair, texts: Sequence[str]
    ) -> None:
        self.links = [(Link(server.port), headers_of(key)) for key in keys]
        self.pair, self.texts, self.dice = pair, texts, random.Random(seed)
        self.seconds: list[float] = []
        self.refused = self.wrong = 0

    async def ask(self, link: Link, headers: dict[str, str], due: float) -> None:
        answer = await link.ask("POST", "/translate", body(self.dice.choice(self.texts), *self.pair), headers)
        if answer.status == 200:
            self.seconds.append(time.monotonic() - due)
        else:
            self.refused += answer.status in REFUSED
            self.wrong += answer.status not in REFUSED

    async def run(self, seconds: float, rate: float | None = None) -> None:
        """All clients: as fast as they are answered, or `rate` requests a second together."""
        end = time.monotonic() + seconds

        async def one(link: Link, headers: dict[str, str]) -> None:
            due = time.monotonic()
            while True:
                if rate is not None:
                    due += self.dice.expovariate(rate / len(self.links))
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                if time.monotonic() > end:
                    return
                await self.ask(link, headers, time.monotonic() if rate is None else due)

        await asyncio.gather(*(one(*each) for each in self.links))

    def close(self) -> None:
        for link, _ in self.links:
            link.close()


async def greedy(
    server: Server,
    seed: int,
    seconds: float,
    keys: Sequence[str],
    pair: Pair = ENGLISH,
    texts: Sequence[str] | None = None,
) -> Result:
    """32 polite clients at half the capacity, without and with one that sends 64 texts again and again."""
    texts = list(texts or sentences(seed))
    measure = Crowd(server, keys[1:], seed, pair, texts)
    await measure.run(seconds / 6)
    measure.seconds.clear()
    await measure.run(seconds / 3)
    capacity = len(measure.seconds) / (seconds / 3)
    measure.close()
    alone, beside = (Crowd(server, keys[1:], seed + n, pair, texts) for n in (1, 2))
    await alone.run(seconds, capacity / 2)
    alone.close()
    over, large = asyncio.Event(), list[int]()

    async def want_all(number: int) -> None:
        link, dice = Link(server.port), random.Random(seed + number)
        while not over.is_set():
            request = {**body("", *pair), "q": [dice.choice(texts) for _ in range(LARGE)]}
            answer = await link.ask("POST", "/translate", request, headers_of(keys[0]), wait=60)
            large.append(answer.status)
            if answer.status != 200:
                await asyncio.sleep(0.1)
        link.close()

    wanting = [asyncio.ensure_future(want_all(number)) for number in range(GREEDY_LINKS)]
    await beside.run(seconds, capacity / 2)
    over.set()
    await asyncio.gather(*wanting)
    beside.close()
    figure: dict[str, Any] = {
        "capacity": round(capacity, 1),
        "p50_alone": share(alone.seconds, 0.5),
        "p99_alone": share(alone.seconds, 0.99),
        "p50_beside": share(beside.seconds, 0.5),
        "p99_beside": share(beside.seconds, 0.99),
        "polite_refused": beside.refused,
        "greedy_texts_a_second": round(LARGE * large.count(200) / seconds, 1),
        "greedy_refused": sum(status in REFUSED for status in large),
    }
    ratio = figure["p99_beside"] / max(1e-9, figure["p99_alone"])
    figure |= {"ratio": round(ratio, 2), "missed": above(ratio=(ratio, 2.0))}
    failures = alone.wrong + beside.wrong + beside.refused
    return Result("greedy", len(alone.seconds) + len(beside.seconds), failures, figure, seed)


async def slow_sockets(
    server: Server,
    seed: int,
    count: int,
    keys: Sequence[str],
    seconds: float = 20.0,
    pair: Pair = ENGLISH,
    texts: Sequence[str] | None = None,
) -> Result:
    """`count` sockets without a key that send a byte now and then, beside clients that have one."""
    texts = list(texts or sentences(seed))
    crowd = Crowd(server, keys[:4], seed, pair, texts)
    await crowd.run(seconds / 4)
    before, crowd.seconds = share(crowd.seconds, 0.99), []
    over, lives, link = asyncio.Event(), list[float](), Link(server.port)
    head = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    firsts = [b"GET / HTTP/1.1\r\n", head + b"Content-Length: 9000\r\n\r\n", b""]

    async def dawdle(number: int) -> None:
        while not over.is_set():
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(firsts[number % 3])
                while not over.is_set() and not writer.transport.is_closing():
                    await asyncio.sleep(1.0)
                    writer.write(b"X")
                    await writer.drain()
                writer.transport.abort()
            except OSError:
                await asyncio.sleep(0.5)

    async def live() -> None:
        while not over.is_set():
            answer = await Link(server.port).ask("GET", "/health/live")  # a new connection each, as a probe
            lives.append(answer.seconds if answer.status == 200 else 60.0)
            await asyncio.sleep(0.1)

    bad = [asyncio.ensure_future(dawdle(number)) for number in range(count)]
    await asyncio.sleep(2.0)
    watching = asyncio.ensure_future(live())
    await crowd.run(seconds)
    over.set()
    await asyncio.gather(watching, *bad)
    crowd.close()
    link.close()
    dead = sum(each >= 60 for each in lives)
    figure: dict[str, Any] = {
        "answered": len(crowd.seconds),
        "refused": crowd.refused,
        "p99_before": before,
        "p99_during": share(crowd.seconds, 0.99),
        "live_checks": len(lives),
        "live_failed": dead,
        "live_p99": share(lives, 0.99),
    }
    return Result("slow-sockets", count, crowd.wrong + crowd.refused + dead, figure, seed)


async def unread(server: Server, seed: int, count: int, keys: Sequence[str], text: str = "") -> Result:
    """`count` answers with all tensors of a trace that nobody reads: how much memory they hold."""
    link, headers = Link(server.port), headers_of(keys[0])
    source = text or " ".join(sentences(seed)[:6])
    answer = await link.ask("POST", "/api/v1/trace", {"source": source}, headers, wait=60)
    number = answer.json()["id"]
    path = f"/api/v1/trace/{number}/tensors?name=*"
    whole = await link.ask("GET", path, headers=headers, wait=60)
    before = server.rss()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode()
    sockets, loop = [socket.socket() for _ in range(count)], asyncio.get_running_loop()
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        each.setblocking(False)
        await loop.sock_connect(each, ("127.0.0.1", server.port))
        await loop.sock_sendall(each, request)
    peak, end = before, time.monotonic() + 4
    while time.monotonic() < end:
        peak = max(peak, server.rss())
        await asyncio.sleep(0.05)
    for each in sockets:
        each.close()
    link.close()
    size = len(whole.body) / (1 << 20)
    figure: dict[str, Any] = {
        "answer_mb": round(size, 1),
        "rss": round(before),
        "growth": round(peak - before, 1),
    }
    figure["missed"] = above(growth=(peak - before, 100))
    return Result("unread", count, int(whole.status != 200), figure, seed)
