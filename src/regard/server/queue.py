"""What waits for a model: requests, their units in fair order, and streams of tokens."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from regard.errors import RegardError
from regard.generation import Hypothesis, Request
from regard.generation.scheduler import Handle


@dataclass(frozen=True)
class BatchLimits:
    rows: int = 128  # of the running batch: sources * beams
    tokens: int = 16_384  # of the running batch: padded source tokens * rows
    queue_tokens: int = 20_000  # a client may wait for: tokens to read, plus rows * tokens to write


class Full(RegardError):
    """The queue is full; in `retry_after` seconds there may be room."""

    def __init__(self, text: str, retry_after: float = 1.0) -> None:
        super().__init__(text, code="rate_limit_exceeded")
        self.retry_after = retry_after


class TooLate(RegardError):
    """A request timed out."""

    default_code = "timeout"


@dataclass(frozen=True)
class ModelCall:
    """A call that is scheduled by itself; `tokens` estimates its work."""

    call: Callable[[], Any]
    tokens: int


@dataclass(frozen=True, eq=False)
class Unit:
    """What is scheduled by itself: one decode request, or a call."""

    request: PendingRequest
    number: int  # in the request
    rows: int
    tokens: int  # an estimate of the work
    decode_request: Request | None = None
    call: Callable[[], Any] | None = None


class FairQueue:
    """The waiting units of all clients. The client that has received the least work is next.

    Start-time fair queueing: `received` counts the tokens of a client in virtual time. A client that was
    idle starts at the time of the last unit taken, so that nobody saves up turns.
    """

    def __init__(self) -> None:
        self.units: dict[str, deque[Unit]] = {}
        self.tokens: defaultdict[str, int] = defaultdict(int)  # waiting, by client
        self.received: dict[str, int] = {}
        self.time = 0

    def __len__(self) -> int:
        return sum(map(len, self.units.values()))

    def add(self, unit: Unit) -> None:
        client = unit.request.client
        if client not in self.units:
            self.units[client] = deque()
            self.received[client] = max(self.time, self.received.get(client, 0))
        self.units[client].append(unit)
        self.tokens[client] += unit.tokens

    def first(self, without: Collection[str] = ()) -> Unit | None:
        """The next unit of a client that is not among `without`."""
        clients = [client for client in self.units if client not in without]
        return self.units[min(clients, key=self.received.__getitem__)][0] if clients else None

    def take(self, unit: Unit) -> None:
        """Remove the first unit of its client, whose turn is over."""
        client = unit.request.client
        self.units[client].popleft()
        self.time = self.received[client]
        self.received[client] += unit.tokens
        self.forget(client, unit.tokens)

    def remove(self, request: PendingRequest) -> None:
        """Remove all units of a request."""
        units = self.units.get(request.client, deque())
        gone = [unit for unit in units if unit.request is request]
        if gone:
            self.units[request.client] = deque(unit for unit in units if unit.request is not request)
            self.forget(request.client, sum(unit.tokens for unit in gone))

    def forget(self, client: str, tokens: int) -> None:
        self.tokens[client] -= tokens
        if not self.units[client]:
            del self.units[client], self.tokens[client]
        # of idle clients only those that are ahead of time matter
        self.received = {
            name: count for name, count in self.received.items() if name in self.units or count > self.time
        }

    def ahead(self, client: str, tokens: int) -> int:
        """Tokens that are done before `tokens` more of this client: of each other client at most as many."""
        turn = self.tokens.get(client, 0) + tokens
        others = sum(min(count, turn) for name, count in self.tokens.items() if name != client)
        return others + self.tokens.get(client, 0)


Stream = asyncio.Queue[list[int] | Hypothesis | None]  # None is the end


class PendingRequest:
    """A request of one client, with its results so far."""

    def __init__(self, client: str, deadline: float | None, streams: bool = False) -> None:
        self.client, self.deadline = client, deadline
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[Any]] = self.loop.create_future()
        self.stream: Stream | None = asyncio.Queue() if streams else None
        self.results: list[Any] = []  # by number of the unit
        self.left = 0  # units without a result
        self.handles: dict[Handle, Unit] = {}  # running units; used by the worker only

    def is_late(self, now: float) -> bool:
        return self.deadline is not None and self.deadline < now

    def seconds_left(self, now: float) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - now)

    def post(self, call: Callable[[], None]) -> None:
        """Run `call` in the client's event loop, unless that has ended."""
        try:
            self.loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop has ended
            return

    def put(self, item: list[int] | Hypothesis | None) -> None:
        if (queue := self.stream) is not None:
            self.post(lambda: queue.put_nowait(item))

    def settle(self, error: Exception | None) -> None:
        def set_future() -> None:
            if self.future.done():
                return
            if error is None:
                self.future.set_result(self.results)
            else:
                self.future.set_exception(error)
            if self.stream is not None:
                self.future.exception()  # mark as retrieved: a stream may be left early

        self.post(set_future)
        self.put(None)


def estimate(decode_request: Request, rows: int, continues: bool) -> int:
    """Estimated tokens that the model reads and writes.

    A continuation is as long as max_length. A translation is about as long as its source: counting max_length
    would reject bursts of short requests.
    """
    options = decode_request.options
    read, least, most = len(decode_request.ids), options.min_length, options.max_length
    written = most if continues and most else min(read, most or read)
    return read + rows * max(least, written)
