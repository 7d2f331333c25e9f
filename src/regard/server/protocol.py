"""uvicorn's HTTP/1.1 protocol with timeouts, strict framing, and early rejection while queues are full."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import time
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from starlette.datastructures import Headers
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.server.errors import APIError, error_response, rate_limit_error
from regard.server.middleware import KeyPolicy, request_id
from regard.server.origin_policy import SAFE, OriginPolicy
from regard.server.queue import Full
from regard.server.requests import ServerLimits
from regard.server.service import Service

# Bare newlines and folded header lines: proxies and servers parse them differently (request smuggling).
_ODD = re.compile(rb"(?<!\r)\n|\r\n[ \t]|\x00")
_END = b"\r\n\r\n"
HELD_SECONDS = 0.2  # a full server waits this long for a body before normal parsing
LEAST_READ = 64 << 10  # bytes a client must read within write_seconds


class StrictConnection(h11.Connection):
    """h11.Connection that rejects ambiguous requests."""

    def __init__(self, most_parts: int, most_head: int) -> None:
        super().__init__(h11.SERVER, most_head)
        self.parts, self.most_parts, self.most_head = 0, most_parts, most_head

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:  # also for pipelined requests
            head, _ = self.trailing_data
            end = head.find(_END)
            if _ODD.search(head, 0, end + len(_END) if end >= 0 else len(head)):
                raise h11.RemoteProtocolError("ambiguous header")
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.parts = 0
            self.check(event)
        elif isinstance(event, h11.Data):
            self.parts += 1
            if self.parts > self.most_parts:
                raise h11.RemoteProtocolError("too many chunks")
        return event

    def check(self, request: h11.Request) -> None:
        names = {name for name, _ in request.headers}
        size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
        if request.http_version not in (b"1.0", b"1.1"):
            raise h11.RemoteProtocolError("unsupported HTTP version")
        if size > self.most_head:
            raise h11.RemoteProtocolError("the headers are too large")
        if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
            raise h11.RemoteProtocolError("ambiguous body length")


class TimedHTTPProtocol(H11Protocol):
    bounds: ClassVar[ServerLimits] = ServerLimits()
    early_rejection: ClassVar[EarlyRejection | None] = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn: h11.Connection = StrictConnection(self.bounds.chunks, self.bounds.headers)
        self.crowded = False  # over the limit of connections
        self.waiting: asyncio.TimerHandle | None = None  # for the end of the headers
        self.unread: asyncio.TimerHandle | None = None  # until the client reads
        self.left = 0  # unread bytes of the response at the last check
        self.held = b""  # bytes of a request that is rejected once it is complete
        self.holding: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None:  # else the kernel buffers megabytes per slow client
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.bounds.unread)
        # answered once the request is read: closing on unread bytes would lose the response
        self.crowded = len(self.connections) > self.bounds.connections
        self.wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_waiting()
        self.let_go()
        if self.unread is not None:
            self.unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.crowded:
            self.answer(503, "too many connections; try again", "Retry-After: 1\r\n")
            return
        data = self.held + data
        if not self.turned_away(data):
            self.pass_on(data)

    def pass_on(self, data: bytes) -> None:
        """Normal processing by uvicorn."""
        self.let_go()
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # the response started before the request proved invalid
            self.transport.abort()
        if self.conn.their_state is not h11.IDLE:
            self.stop_waiting()
        elif self.waiting is None and not self.transport.is_closing():
            self.wait()

    def turned_away(self, data: bytes) -> bool:
        """Whether the request was rejected here, or is held until its body is complete."""
        if self.early_rejection is None or not self.is_free():
            return False
        answer = self.early_rejection.answer(data, self.server_state.default_headers)
        if answer is None:
            return False
        self.stop_waiting()
        if answer:
            self.let_go()
            self.transport.write(answer)
            self.on_response_complete()
        else:
            self.hold(data)
        return True

    def is_free(self) -> bool:
        """Whether no request is being parsed and no response is waiting to be read."""
        idle = self.conn.our_state is self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        return idle and not self.flow.write_paused

    def hold(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self.held = data
        if self.holding is None:  # a slow body is then read as usual
            self.holding = self.loop.call_later(HELD_SECONDS, lambda: self.pass_on(self.held))

    def let_go(self) -> None:
        self.held = b""
        if self.holding is not None:
            self.holding.cancel()
            self.holding = None

    def wait(self) -> None:
        self.waiting = self.loop.call_later(self.bounds.header_seconds, self.too_slow)

    def stop_waiting(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    def too_slow(self) -> None:
        if self.conn.trailing_data[0]:
            self.answer(408, "request headers timed out")
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.unread is None:
            self.watch()

    def watch(self) -> None:
        self.left = self.transport.get_write_buffer_size()
        self.unread = self.loop.call_later(self.bounds.write_seconds, self.look_again)

    def look_again(self) -> None:
        """Restart the timer while the client keeps reading, however large the response is."""
        if self.left - self.transport.get_write_buffer_size() >= LEAST_READ:
            self.watch()
        else:
            self.cut()

    def cut(self) -> None:
        """Reset the connection of a client that does not read; buffered bytes are dropped."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.response_started():
            self.answer(400, "malformed request")
        else:
            self.transport.abort()

    def response_started(self) -> bool:
        return self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete

    def answer(self, status: int, text: str, more: str = "") -> None:
        """Respond without the app and close the connection."""
        words = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}[status]
        body = json.dumps({"error": text}).encode()
        head = (
            f"HTTP/1.1 {status} {words}\r\nContent-Type: application/json\r\n{more}"
            f"Content-Length: {len(body)}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        if not self.transport.is_closing():
            self.transport.write(head.encode() + body)
            self.transport.close()


def protocol_for(
    bounds: ServerLimits, early_rejection: EarlyRejection | None = None
) -> type[TimedHTTPProtocol]:
    return type("Bounded", (TimedHTTPProtocol,), {"bounds": bounds, "early_rejection": early_rejection})


# Stricter than HTTP: every parser reads such a head in the same way.
HEAD = re.compile(rb"POST (/[a-z0-9_/]+) HTTP/1\.1\r\n((?:[A-Za-z0-9-]+: [!-~][ -~]*\r\n)+)\r\n")
# Requests with these headers take the normal path.
OTHERS = frozenset(
    {b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"origin", b"sec-fetch-site"}
)
LARGEST_HELD = 16 << 10  # bytes of a body that is waited for; larger ones take the normal path
Pairs = list[tuple[bytes, bytes]]


class EarlyRejection:
    """Answers 429 before HTTP parsing while no model has room.

    Under overload most requests are rejected, on the cores that compute for the others: through the whole app
    a rejection costs more than a short decode. Plain requests are checked here first; all others take the
    normal path, with the same status, body and headers.
    """

    def __init__(
        self, service: Service, access: OriginPolicy, locks: KeyPolicy, paths: frozenset[str]
    ) -> None:
        self.service, self.access, self.locks, self.paths = service, access, locks, paths

    def answer(self, data: bytes, more: Iterable[tuple[bytes, bytes]] = ()) -> bytes | None:
        """The bytes of the rejection; empty while the body is incomplete; None for the normal path."""
        if self.service.draining or self.service.full() is None:
            return None
        start, head = time.monotonic(), HEAD.match(data, 0, self.service.bounds.headers)
        if head is None or (path := head[1].decode()) not in self.paths:
            return None
        pairs = pairs_of(head[2])
        length = length_in(pairs)
        if length is None or length > self.service.bounds.body or len(data) > head.end() + length:
            return None
        if len(data) < head.end() + length:
            return b"" if length <= LARGEST_HELD else None
        headers = Headers(raw=pairs)
        if self.access.reason(path, "POST", headers) is not None:
            return None
        try:
            owner = self.locks.owner(self.service.keys, path, headers, data[head.end() :])
            self.service.check_capacity()
        except APIError:  # no key: the normal path answers that
            return None
        except Full as full:
            self.service.metrics.add("refused")
            status, first, body = written(path, str(full), full.retry_after)
        else:  # room was freed just now
            return None
        number = request_id(headers)
        self.service.note(path, "POST", status, time.monotonic() - start, number, owner)
        rest = b"".join(b"%b: %b\r\n" % pair for pair in more)
        return b"%bx-request-id: %b\r\n%b\r\n%b" % (first, number.encode(), rest, body)


def pairs_of(lines: bytes) -> Pairs:
    """Header lines as ASGI pairs."""
    pairs = []
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b": ")
        pairs.append((name.lower(), value.rstrip(b" ")))
    return pairs


def length_in(pairs: Pairs) -> int | None:
    """Content-Length of a plain request; None for any other."""
    headers = dict(pairs)
    length = headers.get(b"content-length", b"")
    plain = (
        len(headers) == len(pairs) and OTHERS.isdisjoint(headers) and length.isdigit() and len(length) <= 12
    )
    stays = headers.get(b"connection", b"keep-alive").lower() == b"keep-alive"
    return int(length) if plain and stays else None


@lru_cache(256)
def written(path: str, text: str, seconds: float) -> tuple[int, bytes, bytes]:
    """Status, constant part of the head, and body of a 429 response."""
    answer = error_response(path, rate_limit_error(text, seconds))
    answer.headers.update(SAFE)
    status = HTTPStatus(answer.status_code)
    lines = [b"%b: %b\r\n" % pair for pair in answer.raw_headers]
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() + b"".join(lines)
    return status.value, head, bytes(answer.body)
