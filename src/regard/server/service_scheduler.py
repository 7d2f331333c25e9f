"""Runs the requests of many clients on one model: one worker thread owns the model and its running batch.

Requests join the batch between two decoding steps. They leave it when they finish, time out or are cancelled.
Requests that do not fit wait in one queue per client; the queues are served round-robin.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Condition, Thread
from typing import Any, TypeVar

from regard.errors import UsageError
from regard.generation import Hypothesis, Request
from regard.generation.scheduler import ENTER_SHARE, Handle, Scheduler
from regard.server.queue import BatchLimits, Full, PendingRequest, ResultStream, TooLate, Unit, estimate

__all__ = ["BatchLimits", "Full", "Request", "ResultStream", "ServiceScheduler", "TooLate"]

T = TypeVar("T")
CALL_TOKENS = 100  # estimate for a call of unknown size
FIRST_SPEED = 500.0  # tokens per second, until measured
TIMED_OUT = "request timed out; try again later, or send a smaller request"
MEMORY = 30.0  # seconds of work after which older measurements are halved


class ServiceScheduler:
    """One per model. Deadlines are values of `time.monotonic`."""

    def __init__(self, task: Any, limits: BatchLimits = BatchLimits()) -> None:
        self.task, self.limits = task, limits
        self.continues = getattr(task, "continues", False)  # generates up to max_length
        self.condition = Condition()  # guards all fields down to `counts`
        self.queues: dict[str, deque[Unit]] = {}  # by client; the first is served next
        self.live: set[PendingRequest] = set()
        self.cancelled: list[PendingRequest] = []  # withdrawn; their rows are not freed yet
        self.queue_tokens = self.reserved_tokens = 0  # waiting, and being prepared
        self.closing = self.closed = False
        self.counts = dict.fromkeys(("done", "cancelled", "late", "refused", "failed"), 0)
        self.scheduler = self.new_scheduler()
        self.load = 0  # rows in the batch, or about to join it
        self.tokens, self.row_steps, self.steps = 0, 0, 0
        self.work, self.seconds = FIRST_SPEED, 1.0  # estimated tokens done, and their time
        self.worker = Thread(target=self.serve, name="scheduler", daemon=True)
        self.worker.start()

    def new_scheduler(self) -> Scheduler | None:
        """The running batch; None for a task that does not generate."""
        make = getattr(self.task, "scheduler", None)
        scheduler: Scheduler | None = make(self.limits.tokens, self.limits.rows) if make else None
        return scheduler

    # Called by clients

    async def generate(
        self,
        requests: Sequence[Request],
        client: str = "",
        deadline: float | None = None,
        promised: bool = False,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each request, best first; `promised` if their tokens are reserved already."""
        if not requests:
            return []
        return await self.wait(self.submit_requests(requests, client, deadline, promised=promised))

    def stream(
        self, decode_request: Request, client: str = "", deadline: float | None = None, promised: bool = False
    ) -> ResultStream:
        """The tokens of one result as they are generated. An invalid request raises here."""
        request = PendingRequest(client, deadline)
        request.tokens_queue = asyncio.Queue()
        self.submit_requests([decode_request], client, deadline, request, promised)
        return ResultStream(request, request.tokens_queue, self.withdraw)

    @asynccontextmanager
    async def streams(
        self, decode_requests: Sequence[Request], client: str = "", deadline: float | None = None
    ) -> AsyncIterator[list[ResultStream]]:
        """Several results of one request: all of them are admitted, or none."""
        opened: list[ResultStream] = []
        try:
            with self.reserve(sum(estimate(each, each.rows, self.continues) for each in decode_requests)):
                opened += (self.stream(each, client, deadline, promised=True) for each in decode_requests)
            yield opened
        finally:
            for each in opened:
                await each.aclose()

    async def run(
        self,
        call: Callable[[], T],
        client: str = "",
        deadline: float | None = None,
        tokens: int = CALL_TOKENS,
    ) -> T:
        """Call `call` in the worker thread between two steps; `tokens` estimates its work."""
        request = PendingRequest(client, deadline)
        self.submit(request, [Unit(request, 0, 0, tokens, call=call)])
        results: list[T] = await self.wait(request)
        return results[0]

    async def wait(self, request: PendingRequest) -> list[Any]:
        """The results. Raises TooLate at the deadline even while a long step is running."""
        try:
            return await asyncio.wait_for(request.future, request.seconds_left(time.monotonic()))
        except TimeoutError:
            self.withdraw(request, "late")
            raise TooLate(TIMED_OUT) from None
        finally:
            self.withdraw(request)

    def submit_requests(
        self,
        decode_requests: Sequence[Request],
        client: str,
        deadline: float | None,
        request: PendingRequest | None = None,
        promised: bool = False,
    ) -> PendingRequest:
        if self.scheduler is None:
            raise UsageError("this model does not generate text: there is nothing to decode")
        request = request or PendingRequest(client, deadline)
        rows = [each.rows for each in decode_requests]
        units = [
            Unit(
                request,
                number,
                rows[number],
                estimate(each, rows[number], self.continues),
                decode_request=each,
            )
            for number, each in enumerate(decode_requests)
        ]
        self.submit(request, units, promised)
        return request

    def submit(self, request: PendingRequest, units: Sequence[Unit], promised: bool = False) -> None:
        """Queue the units of a request; Full if they do not fit."""
        tokens = sum(unit.tokens for unit in units)
        request.expect(len(units))
        with self.condition:
            self.check_capacity(0 if promised else tokens)
            self.queue_tokens += tokens
            self.queues.setdefault(request.client, deque()).extend(units)
            self.live.add(request)
            self.condition.notify()

    @contextmanager
    def reserve(self, tokens: int) -> Iterator[None]:
        """Reserve queue capacity while a request is being tokenized; raises Full before that work."""
        with self.condition:
            self.check_capacity(tokens)
            self.reserved_tokens += tokens
        try:
            yield
        finally:
            with self.condition:
                self.reserved_tokens -= tokens

    def check_capacity(self, tokens: int) -> None:
        """Raise Full if `tokens` more do not fit into the queue."""
        if (full := self.full(tokens)) is not None:
            self.counts["refused"] += not self.closing
            raise full

    def full(self, tokens: int) -> Full | None:
        """The error for `tokens` more; None if they fit."""
        if self.closing:
            return Full("the server is shutting down; try again in a moment", 5.0)
        before = self.queue_tokens + self.reserved_tokens
        if not tokens or not before or before + tokens <= self.limits.queue_tokens:
            return None
        seconds = max(1.0, math.ceil(before * self.seconds / self.work))
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
                "queue": sum(len(queue) for queue in self.queues.values()),
                "queue_tokens": self.queue_tokens,
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
        self.remove_cancelled_and_late(start)
        if self.scheduler is not None and not self.load:
            self.scheduler.recover()
        for unit in self.next_units():
            self.start_unit(unit)
        if self.scheduler is not None and self.scheduler.busy:
            done = self.scheduler.step()
            self.row_steps, self.steps = self.row_steps + self.scheduler.rows_stepped, self.steps + 1
            self.deliver(done)
        self.seconds += time.monotonic() - start
        if self.seconds > MEMORY:
            self.work, self.seconds = self.work / 2, self.seconds / 2

    def remove_cancelled_and_late(self, now: float) -> None:
        with self.condition:
            gone, self.cancelled = self.cancelled, []
            late = [each for each in self.live if each.is_late(now)]
        for request in gone:
            self.release_rows(request)
        for request in late:
            self.end_late(request)

    def end_late(self, request: PendingRequest) -> None:
        self.counts["late"] += 1
        self.end(request, TooLate(TIMED_OUT))

    def next_units(self) -> list[Unit]:
        """Units to start now: round-robin over clients, as many as there are rows for, and at most one call.

        A decode request that does not fit keeps its turn and blocks those behind it, so that wide ones start.
        """
        room = self.limits.rows + self.limits.rows // ENTER_SHARE - self.load  # a few wait in the scheduler
        taken: list[Unit] = []
        may_call = may_decode = True
        with self.condition:
            progress = True
            while progress:
                progress = False
                for client, queue in list(self.queues.items()):
                    unit = queue[0]
                    if unit.call is None:
                        may_decode = may_decode and (unit.rows <= room or not (self.load or taken))
                    if not (may_decode if unit.call is None else may_call):
                        continue
                    taken.append(queue.popleft())
                    del self.queues[client]
                    if queue:
                        self.queues[client] = queue  # to the end of the round
                    self.queue_tokens -= unit.tokens
                    room -= unit.rows
                    may_call, progress = may_call and unit.call is None, True
        return taken

    def start_unit(self, unit: Unit) -> None:
        request = unit.request
        if request not in self.live:  # another unit failed, or it was cancelled
            return
        if request.is_late(time.monotonic()):
            self.end_late(request)
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
            self.counts["failed"] += 1
            self.end(request, error)

    def deliver(self, done: Sequence[Handle]) -> None:
        """Pass on the results of a step: finished hypotheses, and new tokens to streams."""
        if self.scheduler is None:
            return
        with self.condition:
            streaming = [each for each in self.live if each.tokens_queue is not None]
        for request in streaming:
            for handle in request.handles:
                if new_tokens := self.scheduler.news(handle):
                    request.put(new_tokens)
        finished = set(done)
        with self.condition:
            live = list(self.live)
        for request in live:
            for handle in finished & request.handles.keys():
                unit = request.handles.pop(handle)
                self.load -= unit.rows
                if handle.error is not None:
                    self.counts["failed"] += 1
                    self.end(request, handle.error)
                    break
                result = handle.result()
                self.tokens += sum(len(each.tokens) for each in result[:1])
                if request.tokens_queue is not None:
                    request.put(result[0])
                self.record_result(unit, result)

    def record_result(self, unit: Unit, result: Any) -> None:
        """Store the result of a unit; the last one finishes the request."""
        request = unit.request
        self.work += unit.tokens
        request.results[unit.number] = result
        request.left -= 1
        if not request.left:
            self.counts["done"] += 1
            self.end(request, None)

    def end(self, request: PendingRequest, error: Exception | None) -> None:
        """Finish a request, with its results or with `error`."""
        with self.condition:
            if request not in self.live:
                return
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
        queue = self.queues.get(request.client, ())
        self.queue_tokens -= sum(unit.tokens for unit in queue if unit.request is request)
        rest = deque(unit for unit in queue if unit.request is not request)
        if rest:
            self.queues[request.client] = rest
        else:
            self.queues.pop(request.client, None)

    def reset(self, error: Exception) -> None:
        """Fail all pending requests with `error` and start with an empty batch."""
        with self.condition:
            pending: Iterable[PendingRequest] = list(self.live)
            self.live, self.cancelled, self.queues, self.queue_tokens = set(), [], {}, 0
        if self.scheduler is not None:
            with suppress(Exception):  # its requests have failed already
                self.scheduler.collect()
        self.scheduler, self.load = (None if self.closed else self.new_scheduler()), 0
        for request in pending:
            request.settle(error)
