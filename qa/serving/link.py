"""A small HTTP client that counts time and keeps nothing: what drives a server to measure it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from regard.errors import UsageError

END = b"\r\n\r\n"


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
        headers = {"Host": self.host if usual else f"{self.host}:{self.port}"}
        return headers | ({"Authorization": f"Bearer {self.key}"} if self.key else {})

    def written(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """A request as it is sent; content that is not bytes is sent as JSON."""
        if content is None:
            raw = b""
        else:
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        defaults = {"Content-Type": "application/json", "Content-Length": str(len(raw))}
        every = self.headers() | defaults | dict(headers or {})
        head = "".join(f"{name}: {value}\r\n" for name, value in every.items())
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + raw


class Reading:
    """An answer while it comes."""

    def __init__(self) -> None:
        self.raw, self.at = bytearray(), 0  # and where the next part of it begins
        self.status, self.headers = 0, dict[str, str]()
        self.parts: list[bytes] | None = None  # of a body in chunks
        self.size: int | None = None  # of any other; None: it goes on until the connection ends

    def add(self, data: bytes) -> bool:
        """Whether it is whole now. ValueError for what is no HTTP."""
        self.raw += data
        if not self.status and not self.read_head():
            return False
        if self.parts is not None:
            return self.read_chunks(self.parts)
        return self.size is not None and len(self.raw) >= self.at + self.size

    def read_head(self) -> bool:
        end = self.raw.find(END)
        if end < 0:
            return False
        first, *lines = self.raw[:end].decode("latin-1").split("\r\n")
        self.headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
        self.status, self.at = int(first.split(" ", 2)[1]), end + len(END)
        if self.headers.get("transfer-encoding") == "chunked":
            self.parts = []
        elif "content-length" in self.headers or not self.ends_it:
            self.size = int(self.headers.get("content-length", "0"))
        return True

    def read_chunks(self, parts: list[bytes]) -> bool:
        while (end := self.raw.find(b"\r\n", self.at)) >= 0:
            size = int(self.raw[self.at : end], 16)
            begin, after = end + 2, end + 2 + size + 2
            if len(self.raw) < after:
                return False
            if not size:
                return True
            parts.append(bytes(self.raw[begin : begin + size]))
            self.at = after
        return False

    @property
    def ends_it(self) -> bool:
        """Whether the connection ends with it."""
        return self.headers.get("connection") == "close"

    @property
    def body(self) -> bytes:
        if self.parts is not None:
            return b"".join(self.parts)
        return bytes(self.raw[self.at : None if self.size is None else self.at + self.size])


class Wire(asyncio.Protocol):
    """An open connection with one question at a time. Thousands a second are asked of a server on the cores
    that it computes with: what stands between the bytes and their reader (streams, locks) is left out."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.reading = Reading()
        self.waiting: asyncio.Future[Reading] | None = None
        self.over = False

    async def ask(self, raw: bytes, wait: float) -> Reading:
        """An answer; OSError, TimeoutError or ValueError where none comes."""
        loop = asyncio.get_running_loop()
        if self.transport is None or self.over:
            raise ConnectionError("the connection has ended")
        self.reading, self.waiting = Reading(), loop.create_future()
        late = loop.call_later(wait, self.settle, TimeoutError("there was no answer"))
        try:
            self.transport.write(raw)
            return await self.waiting
        finally:
            late.cancel()
            self.waiting = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            if self.reading.add(data):
                self.settle()
        except ValueError as error:
            self.settle(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.over = True
        ended = self.reading.status and self.reading.parts is None and self.reading.size is None
        self.settle(None if ended else error or ConnectionError("the connection has ended"))

    def settle(self, error: Exception | None = None) -> None:
        if self.waiting is None or self.waiting.done():
            return
        if error is None:
            self.waiting.set_result(self.reading)
        else:
            self.waiting.set_exception(error)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class Link:
    """One connection, opened when needed and kept open."""

    def __init__(self, address: Address | int) -> None:
        self.address = Address(address) if isinstance(address, int) else address
        self.wire: Wire | None = None

    async def ask(
        self,
        method: str,
        path: str,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 60.0,
    ) -> Answer:
        return await self.send(self.address.written(method, path, content, headers), wait)

    async def send(self, raw: bytes, wait: float = 60.0, due: float | None = None) -> Answer:
        """Bytes as they are, and what is answered; status 0 if nothing is. Time counts from when it was due
        (in `time.monotonic`), or from now."""
        start = time.monotonic() if due is None else due
        for attempt in range(2):
            fresh = self.wire is None
            try:
                response = await self.exchange(raw, wait)
                return Answer(response.status, response.headers, response.body, time.monotonic() - start)
            except (OSError, ValueError) as error:  # of time too
                self.close()
                if fresh or attempt or isinstance(error, TimeoutError):  # an idle connection may be closed
                    break
        return Answer(0, {}, b"", time.monotonic() - start)

    async def exchange(self, raw: bytes, wait: float) -> Reading:
        if self.wire is None:
            address = self.address
            async with asyncio.timeout(wait):
                _, self.wire = await asyncio.get_running_loop().create_connection(
                    Wire, address.host, address.port, ssl=address.secure or None
                )
        response = await self.wire.ask(raw, wait)
        if response.ends_it:
            self.close()
        return response

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
        self.wire = None

    def __del__(self) -> None:
        with suppress(RuntimeError):  # the loop has ended before
            self.close()
