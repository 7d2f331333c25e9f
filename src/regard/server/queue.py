"""What waits for a model: requests, the units they are split into, and streams of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.errors import RegardError
from regard.generation import Hypothesis, Request
from regard.generation.scheduler import Handle


@dataclass(frozen=True)
class BatchLimits:
    rows: int = 128  # of the running batch: sources * beams
    tokens: int = 16_384  # of the running batch: padded source tokens * rows
    queue_tokens: int = 20_000  # of waiting requests: tokens to read, plus rows * tokens to write


class Full(RegardError):
    """The queue is full; in `retry_after` seconds there may be room."""

    def __init__(self, text: str, retry_after: float = 1.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class TooLate(RegardError):
    """A request timed out."""


@dataclass(frozen=True, eq=False)
class Unit:
    """What is scheduled by itself: one decode request, or a call."""

    request: PendingRequest
    number: int
    rows: int
    tokens: int  # an estimate of the work
    decode_request: Request | None = None
    call: Callable[[], Any] | None = None


class PendingRequest:
    """A request of one client, with its results so far."""

    def __init__(self, client: str, deadline: float | None) -> None:
        self.client, self.deadline = client, deadline
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[Any]] = self.loop.create_future()
        self.tokens_queue: asyncio.Queue[list[int] | Hypothesis | None] | None = None  # None ends the stream
        self.results: list[Any] = []
        self.left = 0  # units without a result
        self.handles: dict[Handle, Unit] = {}  # running units; used by the worker only

    def is_late(self, now: float) -> bool:
        return self.deadline is not None and self.deadline < now

    def seconds_left(self, now: float) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - now)

    def expect(self, units: int) -> None:
        self.results, self.left = [None] * units, units

    def post(self, call: Callable[[], None]) -> None:
        """Run `call` in the client's event loop, unless that has ended."""
        try:
            self.loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop has ended
            return

    def put(self, item: list[int] | Hypothesis | None) -> None:
        if (queue := self.tokens_queue) is not None:
            self.post(lambda: queue.put_nowait(item))

    def settle(self, error: Exception | None) -> None:
        def set_future() -> None:
            if self.future.done():
                return
            if error is None:
                self.future.set_result(self.results)
            else:
                self.future.set_exception(error)
            if self.tokens_queue is not None:
                self.future.exception()  # mark as retrieved: a stream may be left early

        self.post(set_future)
        self.put(None)


class ResultStream:
    """Tokens of one result as they are generated; the last item is the `Hypothesis`. Close it after use."""

    def __init__(
        self, request: PendingRequest, queue: asyncio.Queue[Any], withdraw: Callable[[PendingRequest], None]
    ) -> None:
        self.request, self.tokens_queue, self.withdraw = request, queue, withdraw
        self.over = False

    def __aiter__(self) -> ResultStream:
        return self

    async def __anext__(self) -> list[int] | Hypothesis:
        if self.over:
            raise StopAsyncIteration
        try:
            item: list[int] | Hypothesis | None = await self.tokens_queue.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if item is None:
            self.over = True
            if error := self.request.future.exception():
                raise error
            raise StopAsyncIteration
        return item

    async def aclose(self) -> None:
        """Cancel the request if it is still running."""
        self.over = True
        self.withdraw(self.request)


def estimate(decode_request: Request, rows: int, continues: bool) -> int:
    """Estimated tokens that the model reads and writes.

    A continuation is as long as max_length. A translation is about as long as its source: counting max_length
    would reject bursts of short requests.
    """
    options = decode_request.options
    read, least, most = len(decode_request.ids), options.min_length, options.max_length
    written = most if continues and most else min(read, most or read)
    return read + rows * max(least, written)
