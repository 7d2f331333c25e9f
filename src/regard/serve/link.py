"""A small HTTP client that counts time and keeps nothing: what drives a server to measure it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from regard.errors import UsageError


@dataclass(frozen=True)
class Answer:
    status: int  # 0 where none came
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Address:
    """Where a server is, and what is said to it each time."""

    port: int
    host: str = "127.0.0.1"
    secure: bool = False
    key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, key: str | None = None) -> Address:
        parts = urlsplit(url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            port = 0
        if parts.scheme not in ("http", "https") or not parts.hostname or not port:
            raise UsageError(f"{url}: give the address as http://127.0.0.1:8000")
        if parts.path not in ("", "/"):
            raise UsageError(f"{url}: give the address of the server alone, without {parts.path}")
        return cls(port, parts.hostname, parts.scheme == "https", key)

    def headers(self) -> dict[str, str]:
        usual = self.port == (443 if self.secure else 80)
        told = {"Host": self.host if usual else f"{self.host}:{self.port}"}
        return told | ({"Authorization": f"Bearer {self.key}"} if self.key else {})


class Link:
    """One connection, opened when needed and kept open."""

    def __init__(self, address: Address | int) -> None:
        self.address = Address(address) if isinstance(address, int) else address
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(
        self,
        method: str,
        path: str,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 60.0,
    ) -> Answer:
        if content is None:
            raw = b""
        else:
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        own = {"Content-Type": "application/json", "Content-Length": str(len(raw))}
        every = self.address.headers() | own | dict(headers or {})
        head = "".join(f"{name}: {value}\r\n" for name, value in every.items())
        return await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + raw, wait)

    async def send(self, raw: bytes, wait: float = 60.0) -> Answer:
        """Bytes as they are, and what is answered; status 0 if nothing is."""
        begun = time.perf_counter()
        for attempt in range(2):
            fresh = self.writer is None
            try:
                async with asyncio.timeout(wait):
                    status, headers, body = await self.exchange(raw)
                    return Answer(status, headers, body, time.perf_counter() - begun)
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
                self.close()
                if fresh or attempt or isinstance(error, TimeoutError):  # an idle connection may be closed
                    break
        return Answer(0, {}, b"", time.perf_counter() - begun)

    async def exchange(self, raw: bytes) -> tuple[int, dict[str, str], bytes]:
        if self.reader is None or self.writer is None:
            own = self.address
            self.reader, self.writer = await asyncio.open_connection(
                own.host, own.port, ssl=own.secure or None
            )
        self.writer.write(raw)
        return await self.read(self.reader)

    async def read(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:] if line)}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await reader.readline(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
        elif "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        else:
            body = await reader.read() if headers.get("connection") == "close" else b""
        if headers.get("connection") == "close":
            self.close()
        return int(head[0].split()[1]), headers, body

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    def __del__(self) -> None:
        with suppress(RuntimeError):  # the loop has ended before
            self.close()
