"""What waits at a desk: requests, the units they are made of, and streams of pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.errors import RegardError
from regard.generation import Handle, Hypothesis
from regard.generation import Request as Wish


@dataclass(frozen=True)
class BatchLimits:
    rows: int = 128  # of the running batch: sources times beams
    tokens: int = 16_384  # of the running batch: padded source pieces times rows
    queue_tokens: int = 20_000  # of those who wait: pieces to read, and rows times pieces to write


class Full(RegardError):
    """Too much waits already; in `retry_after` seconds there may be room."""

    def __init__(self, text: str, retry_after: float = 1.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class TooLate(RegardError):
    """The time that a request had is over."""


@dataclass(frozen=True, eq=False)
class Unit:
    """What enters by itself: one wish of a request, or a call."""

    request: PendingRequest
    number: int
    rows: int
    tokens: int  # an estimate of the work
    decode_request: Wish | None = None
    call: Callable[[], Any] | None = None


class PendingRequest:
    """What one caller waits for."""

    def __init__(self, client: str, deadline: float | None) -> None:
        self.client, self.deadline = client, deadline
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[Any]] = self.loop.create_future()
        self.pieces: asyncio.Queue[list[int] | Hypothesis | None] | None = None  # of a stream; None: no more
        self.answers: list[Any] = []
        self.left = 0  # units without an answer
        self.handles: dict[Handle, Unit] = {}  # those in the pool; only the worker looks at them

    def is_late(self, now: float) -> bool:
        return self.deadline is not None and self.deadline < now

    def seconds_left(self, now: float) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - now)

    def expect(self, units: int) -> None:
        self.answers, self.left = [None] * units, units

    def post(self, call: Callable[[], None]) -> None:
        """Have something done in the caller's loop, if there is one still."""
        try:
            self.loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop has ended, and with it whoever waited
            return

    def put(self, piece: list[int] | Hypothesis | None) -> None:
        if (pieces := self.pieces) is not None:
            self.post(lambda: pieces.put_nowait(piece))

    def settle(self, error: Exception | None) -> None:
        def tell() -> None:
            if self.future.done():
                return
            if error is None:
                self.future.set_result(self.answers)
            else:
                self.future.set_exception(error)
            if self.pieces is not None:
                self.future.exception()  # a stream that is not read to its end shall not complain

        self.post(tell)
        self.put(None)


class ResultStream:
    """The pieces of one answer as they come, the last of them the `Hypothesis`; to be closed when left."""

    def __init__(
        self, request: PendingRequest, pieces: asyncio.Queue[Any], withdraw: Callable[[PendingRequest], None]
    ) -> None:
        self.request, self.pieces, self.withdraw = request, pieces, withdraw
        self.over = False

    def __aiter__(self) -> ResultStream:
        return self

    async def __anext__(self) -> list[int] | Hypothesis:
        if self.over:
            raise StopAsyncIteration
        try:
            piece: list[int] | Hypothesis | None = await self.pieces.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if piece is None:
            self.over = True
            if error := self.request.future.exception():
                raise error
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Nobody listens any more: the work ends."""
        self.over = True
        self.withdraw(self.request)
