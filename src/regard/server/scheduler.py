"""Runs the requests of many clients on one model: one worker thread owns the model and its running batch.

Requests join the batch between two decoding steps. They leave it when they finish, time out or are cancelled.
Each request is split into units: one text to decode, or one call. Units that do not fit wait in a fair queue:
a large request is served in turn with the small ones of other clients and never shuts them out.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from threading import Condition, Thread
from typing import Any, TypeVar

from regard.errors import UsageError
from regard.generation import Hypothesis, Request
from regard.generation.scheduler import ENTER_SHARE, Handle, Scheduler
from regard.server.queue import (
    BatchLimits,
    FairQueue,
    Full,
    ModelCall,
    PendingRequest,
    TooLate,
    Unit,
    estimate,
)

__all__ = ["BatchLimits", "Full", "ModelCall", "Request", "ResultStream", "ServiceScheduler", "TooLate"]

T = TypeVar("T")
ResultStream = AsyncGenerator[list[int] | Hypothesis, None]  # tokens as they are generated, then the whole
CALL_TOKENS = 100  # estimate for a call of unknown size
FIRST_SPEED = 500.0  # tokens per second, until measured
TIMED_OUT = "request timed out; try again later, or send a smaller request"
MEMORY = 30.0  # seconds of work after which older measurements are halved
RECENT = 2.0  # seconds for which a client counts as active
MOST_SHARES = 16  # a client beside others gets at least this part of the rows


class ServiceScheduler:
    """One per model. Deadlines are values of `time.monotonic`."""

    def __init__(self, task: Any, limits: BatchLimits = BatchLimits()) -> None:
        self.task, self.limits = task, limits
        self.continues = getattr(task, "continues", False)  # generates up to max_length
        self.condition = Condition()  # guards all fields down to `counts`
        self.queue = FairQueue()
        self.live: set[PendingRequest] = set()
        self.cancelled: list[PendingRequest] = []  # withdrawn; their rows are not freed yet
        self.seen: dict[str, float] = {}  # when a client last sent a request
        self.closing = self.closed = False
        self.counts = dict.fromkeys(("done", "cancelled", "late", "refused", "failed"), 0)
        self.scheduler = self.new_scheduler()
        self.load = 0  # rows in the batch, or about to join it
        self.tokens, self.row_steps, self.steps = 0, 0, 0
        self.work, self.seconds = FIRST_SPEED, 1.0  # estimated tokens done, and their time
        self.worker: Thread | None = None  # started by the first request

    def new_scheduler(self) -> Scheduler | None:
        """The running batch; None for a task that does not generate."""
        make = getattr(self.task, "scheduler", None)
        scheduler: Scheduler | None = make(self.limits.tokens, self.limits.rows) if make else None
        return scheduler

    # Called by clients

    async def generate(
        self, requests: Sequence[Request], client: str = "", deadline: float | None = None
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each request, best first."""
        pending = PendingRequest(client, deadline)
        units = [self.decode_unit(pending, each, number) for number, each in enumerate(requests)]
        return await self.results(pending, units)

    def stream(self, request: Request, client: str = "", deadline: float | None = None) -> ResultStream:
        """The tokens of one result as they are generated, then its `Hypothesis`. An invalid request raises
        here; closing the stream cancels the request."""
        unit = self.decode_unit(PendingRequest(client, deadline, streams=True), request)
        self.submit([unit])
        return self.items(unit.request)

    @asynccontextmanager
    async def streams(
        self, requests: Sequence[Request], client: str = "", deadline: float | None = None
    ) -> AsyncIterator[list[ResultStream]]:
        """Several results: all of them are admitted, or none."""
        opened = [PendingRequest(client, deadline, streams=True) for _ in requests]
        self.submit([self.decode_unit(*each) for each in zip(opened, requests)])
        try:
            yield [self.items(each) for each in opened]
        finally:
            for each in opened:  # also those that nobody has begun to read
                self.withdraw(each)

    async def items(self, request: PendingRequest) -> ResultStream:
        assert request.stream is not None
        try:
            while (item := await request.stream.get()) is not None:
                yield item
            if error := request.future.exception():
                raise error
        finally:
            self.withdraw(request)

    async def run(
        self,
        call: Callable[[], T],
        client: str = "",
        deadline: float | None = None,
        tokens: int = CALL_TOKENS,
    ) -> T:
        """Call `call` in the worker thread between two steps; `tokens` estimates its work."""
        result: T = (await self.run_portions([ModelCall(call, tokens)], client, deadline))[0]
        return result

    async def run_portions(
        self, portions: Sequence[ModelCall], client: str = "", deadline: float | None = None
    ) -> list[Any]:
        """The results of several calls, between which other clients have their turn."""
        pending = PendingRequest(client, deadline)
        units = [Unit(pending, n, 0, max(1, each.tokens), call=each.call) for n, each in enumerate(portions)]
        return await self.results(pending, units)

    async def results(self, request: PendingRequest, units: Sequence[Unit]) -> list[Any]:
        """Submit units and wait. Raises TooLate at the deadline even while a long step is running."""
        if not units:
            return []
        self.submit(units)
        try:
            return await asyncio.wait_for(request.future, request.seconds_left(time.monotonic()))
        except TimeoutError:
            self.withdraw(request, "late")
            raise TooLate(TIMED_OUT) from None
        finally:
            self.withdraw(request)

    def decode_unit(self, pending: PendingRequest, request: Request, number: int = 0) -> Unit:
        if self.scheduler is None:
            raise UsageError("this model does not generate text: there is nothing to decode")
        tokens = estimate(request, request.rows, self.continues)
        return Unit(pending, number, request.rows, tokens, decode_request=request)

    def submit(self, units: Sequence[Unit]) -> None:
        """Queue the units of one client; Full if they do not fit."""
        if not units:
            return
        client = units[0].request.client
        with self.condition:
            self.check_capacity(client, sum(unit.tokens for unit in units))
            self.seen[client] = time.monotonic()
            for unit in units:
                unit.request.results.append(None)
                unit.request.left += 1
                self.live.add(unit.request)
                self.queue.add(unit)
            if self.worker is None:
                self.worker = Thread(target=self.serve, name="scheduler", daemon=True)
                self.worker.start()
            self.condition.notify()

    def check_capacity(self, client: str, tokens: int) -> None:
        """Raise Full if `tokens` more of a client do not fit into the queue."""
        if (full := self.full(client, tokens)) is not None:
            self.counts["refused"] += not self.closing
            raise full

    def full(self, client: str, tokens: int) -> Full | None:
        """The error for `tokens` more of a client; None if they fit.

        What counts is the work that is done before them in fair turns, not how much others have asked for. A
        client that waits for nothing may send a request of any size: it delays nobody else.
        """
        if self.closing:
            return Full("the server is shutting down; try again in a moment", 5.0)
        with self.condition:
            ahead = self.queue.ahead(client, tokens)
            more = tokens if self.queue.tokens.get(client) else 0
        if ahead + more <= self.limits.queue_tokens:
            return None
        seconds = max(1.0, math.ceil(ahead * self.seconds / self.work))
        return Full(f"the queue is full; try again in {seconds:.0f} s", seconds)

    def withdraw(self, request: PendingRequest, reason: str = "cancelled") -> None:
        """Cancel a request; no effect if it is finished."""
        with self.condition:
            if request in self.live:
                self.counts[reason] += 1
                self.remove_pending(request)
                self.cancelled.append(request)
                self.condition.notify()

    def counters(self) -> dict[str, float]:
        with self.condition:
            return {
                "queue": len(self.queue),
                "queue_tokens": sum(self.queue.tokens.values()),
                "clients": len({request.client for request in self.live}),
                "requests": len(self.live),
                "rows": self.load,
                "steps": self.steps,
                "row_steps": self.row_steps,
                "tokens": self.tokens,
                **self.counts,
            }

    async def drain(self, seconds: float) -> None:
        """Reject new requests and wait for the running ones; those left after `seconds` fail."""
        end = time.monotonic() + seconds
        with self.condition:
            self.closing = True
        while self.live and time.monotonic() < end:
            await asyncio.sleep(0.02)
        with self.condition:
            rest = list(self.live)
            for request in rest:
                self.remove_pending(request)
            self.cancelled += rest
            self.condition.notify()
        for request in rest:
            request.settle(TooLate("the server shut down before this was done; try again"))

    def close(self) -> None:
        """End the worker after its current step; pending requests fail."""
        with self.condition:
            self.closing = self.closed = True
            self.condition.notify()
        if self.worker is not None:
            self.worker.join(timeout=5)

    # Called by the worker thread

    def serve(self) -> None:
        while True:
            with self.condition:
                self.condition.wait_for(lambda: self.closed or self.live or self.cancelled)
                if self.closed:
                    break
            try:
                self.run_step()
            except Exception as error:  # unexpected: pending requests fail, the worker goes on
                self.reset(error)
        self.reset(Full("the server has shut down", 5.0))

    def run_step(self) -> None:
        """Remove cancelled and late requests, admit those that fit, then run one decoding step."""
        start = time.monotonic()
        with self.condition:
            gone, self.cancelled = self.cancelled, []
            late = [each for each in self.live if each.is_late(start)]
        for request in gone:
            self.release_rows(request)
        for request in late:
            self.end(request, "late", TooLate(TIMED_OUT))
        if self.scheduler is not None and not self.load:
            self.scheduler.recover()
        for unit in self.next_units():
            self.start_unit(unit)
        if self.scheduler is not None and self.scheduler.busy:
            done = self.scheduler.step()
            self.row_steps, self.steps = self.row_steps + self.scheduler.rows_stepped, self.steps + 1
            self.deliver(set(done))
        self.seconds += time.monotonic() - start
        if self.seconds > MEMORY:
            self.work, self.seconds = self.work / 2, self.seconds / 2

    def next_units(self) -> list[Unit]:
        """Units to start now: in fair order, as many as there are rows for, and at most one call.

        A client that has its share of the rows waits. A unit that does not fit blocks those behind it, so
        that wide ones start.
        """
        room = self.limits.rows + self.limits.rows // ENTER_SHARE - self.load  # a few wait in the scheduler
        taken: list[Unit] = []
        passed: set[str] = set()  # clients whose next unit cannot start now
        may_call = may_decode = True
        with self.condition:
            rows, share = self.rows_by_client(), self.share()
            while (unit := self.queue.first(passed)) is not None:
                client = unit.request.client
                if unit.call is not None:
                    starts, may_call = may_call, False
                elif starts := not rows[client] or rows[client] + unit.rows <= share:
                    starts = may_decode = may_decode and (unit.rows <= room or not (self.load or taken))
                if not starts:
                    passed.add(client)
                    continue
                self.queue.take(unit)
                taken.append(unit)
                room -= unit.rows
                rows[client] += unit.rows
        return taken

    def rows_by_client(self) -> Counter[str]:
        running = (unit for request in self.live for unit in request.handles.values())
        return Counter(unit.request.client for unit in running for _ in range(unit.rows))

    def share(self) -> int:
        """Rows that one client may have: all if it is alone; beside others, their steps stay short."""
        recent = time.monotonic() - RECENT
        self.seen = {client: at for client, at in self.seen.items() if at > recent}
        clients = self.seen.keys() | {request.client for request in self.live}
        rows = self.limits.rows + self.limits.rows // ENTER_SHARE
        return rows // max(1, min(MOST_SHARES, len(clients)))

    def start_unit(self, unit: Unit) -> None:
        request = unit.request
        if request not in self.live:  # another unit failed, or it was cancelled
            return
        try:
            if unit.call is not None:
                if self.scheduler is not None:
                    self.scheduler.collect()  # the call gets the model and all cores
                self.record_result(unit, unit.call())
            elif unit.decode_request is not None and self.scheduler is not None:
                request.handles[self.scheduler.add(unit.decode_request)] = unit
                self.load += unit.rows
        except Exception as error:
            self.end(request, "failed", error)

    def deliver(self, done: set[Handle]) -> None:
        """Pass on the results of a step: finished hypotheses, and new tokens to streams."""
        if self.scheduler is None:
            return
        with self.condition:
            live = list(self.live)
        for request in live:
            if request.stream is not None:
                for handle in request.handles:
                    if new_tokens := self.scheduler.news(handle):
                        request.put(new_tokens)
            for handle in request.handles.keys() & done:
                unit = request.handles.pop(handle)
                self.load -= unit.rows
                if handle.error is not None:
                    self.end(request, "failed", handle.error)
                    break
                result = handle.result()
                for best in result[:1]:
                    self.tokens += len(best.tokens)
                    request.put(best)
                self.record_result(unit, result)

    def record_result(self, unit: Unit, result: Any) -> None:
        """Store the result of a unit; the last one finishes the request."""
        request = unit.request
        self.work += unit.tokens
        request.results[unit.number] = result
        request.left -= 1
        if not request.left:
            self.end(request, "done")

    def end(self, request: PendingRequest, outcome: str, error: Exception | None = None) -> None:
        """Finish a request, with its results or with `error`; no effect if it was cancelled."""
        with self.condition:
            if request not in self.live:
                return
            self.counts[outcome] += 1
            self.remove_pending(request)
        self.release_rows(request)
        request.settle(error)

    def release_rows(self, request: PendingRequest) -> None:
        """Free the rows of a request, after the current step at the latest."""
        handles, request.handles = request.handles, {}
        for handle, unit in handles.items():
            self.load -= unit.rows
            if self.scheduler is not None:
                self.scheduler.cancel(handle)

    def remove_pending(self, request: PendingRequest) -> None:
        """Remove a request and its queued units. Caller holds `condition`."""
        self.live.discard(request)
        self.queue.remove(request)

    def reset(self, error: Exception) -> None:
        """Fail all pending requests with `error` and start with an empty batch."""
        with self.condition:
            pending: Iterable[PendingRequest] = list(self.live)
            self.live, self.cancelled, self.queue = set(), [], FairQueue()
        if self.scheduler is not None:
            with suppress(Exception):  # its requests have failed already
                self.scheduler.collect()
        self.scheduler, self.load = (None if self.closed else self.new_scheduler()), 0
        for request in pending:
            request.settle(error)
