"""Deadlines and a limit for connections, around uvicorn's HTTP protocol.

uvicorn has no timeout for a client that sends its headers slowly or does not read its response. Both are
kept here with the methods of `asyncio.Protocol` and the ASGI scope alone: no HTTP is parsed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.server.requests import ServerLimits

RESERVED = 32  # connections beyond the limit, for health checks
Address = tuple[str, int]  # of the client: unique among the open connections of a server


@dataclass(eq=False)
class Connection:
    transport: asyncio.Transport
    address: Address
    requests: int = 0  # running
    admitted: bool = False  # the running request has a valid key, or its body is complete
    extra: bool = False  # beyond the limit: only health checks are answered
    deadline: asyncio.TimerHandle | None = None  # for the next request to begin
    unread: asyncio.TimerHandle | None = None  # for the client to read

    def reset(self) -> None:
        """Close at once; what the client has not read is dropped, in the kernel too."""
        if (raw := self.transport.get_extra_info("socket")) is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def stop_timers(self) -> None:
        for timer in (self.deadline, self.unread):
            if timer is not None:
                timer.cancel()


class Connections:
    """The open connections, oldest first.

    Beyond the limit the oldest connection without a request is closed, then the oldest whose body is still
    being read without a valid key: slow clients give way to new ones.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.open: dict[Address, Connection] = {}

    def add(self, transport: asyncio.Transport) -> Connection:
        peer = transport.get_extra_info("peername")
        connection = Connection(transport, (str(peer[0]), int(peer[1])))  # as in the ASGI scope
        if (raw := transport.get_extra_info("socket")) is not None:
            # the kernel would buffer megabytes for a client that does not read
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.unread)
        self.wait_for_request(connection)
        if len(self.open) >= self.limits.connections and not self.close_oldest():
            connection.extra = True
            if len(self.open) >= self.limits.connections + RESERVED:
                transport.abort()
        self.open[connection.address] = connection
        return connection

    def close_oldest(self) -> bool:
        """Make room; False if every connection has an admitted request."""
        waiting = [each for each in self.open.values() if not each.admitted]
        if waiting:
            victim = min(waiting, key=lambda each: each.requests > 0)  # the first one without a request
            self.remove(victim)
            victim.reset()
        return bool(waiting)

    def remove(self, connection: Connection) -> None:
        connection.stop_timers()
        if self.open.get(connection.address) is connection:
            del self.open[connection.address]

    def wait_for_request(self, connection: Connection) -> None:
        seconds = max(self.limits.header_seconds, self.limits.idle_seconds)
        connection.deadline = asyncio.get_running_loop().call_later(seconds, connection.transport.close)

    def begin(self, address: Address | None) -> Connection | None:
        """The headers of a request are complete. None if the server runs without `TimedProtocol`."""
        connection = self.open.get(address) if address is not None else None
        if connection is not None:
            connection.requests += 1
            if connection.deadline is not None:
                connection.deadline.cancel()
        return connection

    def end(self, connection: Connection) -> None:
        connection.requests -= 1
        if not connection.requests and not connection.transport.is_closing():
            connection.admitted = False
            self.wait_for_request(connection)


class TimedProtocol(H11Protocol):
    """uvicorn's protocol. Overrides methods of `asyncio.Protocol` only."""

    registry: ClassVar[Connections]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.connection = self.registry.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.registry.remove(self.connection)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The send buffer is full; the client has some seconds to read from it."""
        super().pause_writing()
        seconds, connection = self.registry.limits.write_seconds, self.connection
        connection.unread = asyncio.get_running_loop().call_later(seconds, connection.reset)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.connection.unread is not None:
            self.connection.unread.cancel()


def protocol_for(connections: Connections) -> type[Any]:
    return type("BoundedProtocol", (TimedProtocol,), {"registry": connections})
