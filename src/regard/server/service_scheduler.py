"""Where requests meet a model: many ask at once, one worker thread owns the model and its running batch.

Requests enter the batch between two steps and leave it when they are done, too late, or nobody waits for them
any more. What cannot begin yet stands in one queue for each client; the clients take turns.
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
from regard.generation import Handle, Hypothesis, Scheduler
from regard.generation import Request as Wish
from regard.generation.scheduler import ENTER_SHARE
from regard.server.queue import BatchLimits, Full, PendingRequest, ResultStream, TooLate, Unit

__all__ = ["BatchLimits", "Full", "ResultStream", "ServiceScheduler", "TooLate", "Wish"]

T = TypeVar("T")
CALL_TOKENS = 100  # what a call of unknown size is taken for
FIRST_SPEED = 500.0  # tokens a second, as long as nothing was measured
TIMED_OUT = "there was no time left for this; try again later, or ask for less"
MEMORY = 30.0  # seconds of work after which old measurements count half


class ServiceScheduler:
    """One for each model. Deadlines are times of `time.monotonic`."""

    def __init__(self, task: Any, limits: BatchLimits = BatchLimits()) -> None:
        self.task, self.limits = task, limits
        self.continues = getattr(task, "continues", False)  # writes as much as it is asked for
        self.condition = Condition()  # guards what stands here, up to the worker's own
        self.queues: dict[str, deque[Unit]] = {}  # by client; the first one's turn is next
        self.live: set[PendingRequest] = set()
        self.cancelled: list[PendingRequest] = []  # those that nobody waits for any more
        self.queue_tokens = self.reserved_tokens = 0  # of those who wait, and of those who are being prepared
        self.closing = self.closed = False
        self.counts = dict.fromkeys(("done", "cancelled", "late", "refused", "failed"), 0)
        self.scheduler = self.new_scheduler()
        self.load = 0  # rows that the pool has or will have
        self.tokens, self.row_steps, self.steps = 0, 0, 0
        self.work, self.seconds = FIRST_SPEED, 1.0  # estimated tokens done, and the time that they took
        self.worker = Thread(target=self.serve, name="desk", daemon=True)
        self.worker.start()

    def new_scheduler(self) -> Scheduler | None:
        """The running batch, of a task that writes."""
        make = getattr(self.task, "scheduler", None)
        pool: Scheduler | None = make(self.limits.tokens, self.limits.rows) if make else None
        return pool

    # The callers' side

    async def generate(
        self,
        requests: Sequence[Wish],
        client: str = "",
        deadline: float | None = None,
        promised: bool = False,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each wish, best first; `promised` if their room was kept until now."""
        if not requests:
            return []
        return await self.wait(self.submit_requests(requests, client, deadline, promised=promised))

    def stream(
        self, wish: Wish, client: str = "", deadline: float | None = None, promised: bool = False
    ) -> ResultStream:
        """The pieces of one answer as they come. What is wrong with the wish is said at once."""
        request = PendingRequest(client, deadline)
        request.pieces = asyncio.Queue()
        self.submit_requests([wish], client, deadline, request, promised)
        return ResultStream(request, request.pieces, self.withdraw)

    @asynccontextmanager
    async def streams(
        self, wishes: Sequence[Wish], client: str = "", deadline: float | None = None
    ) -> AsyncIterator[list[ResultStream]]:
        """Several answers of one request, which finds room for all of them or for none."""
        opened: list[ResultStream] = []
        try:
            with self.reserve(sum(estimate(wish, wish.rows, self.continues) for wish in wishes)):
                opened += (self.stream(wish, client, deadline, promised=True) for wish in wishes)
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
        """Other work with the model, between two steps; `tokens` is about how much."""
        request = PendingRequest(client, deadline)
        self.submit(request, [Unit(request, 0, 0, tokens, call=call)])
        found: list[T] = await self.wait(request)
        return found[0]

    async def wait(self, request: PendingRequest) -> list[Any]:
        """The answers, or TooLate at the deadline itself: a step that takes many in may last a while."""
        try:
            return await asyncio.wait_for(request.future, request.seconds_left(time.monotonic()))
        except TimeoutError:
            self.withdraw(request, "late")
            raise TooLate(TIMED_OUT) from None
        finally:
            self.withdraw(request)

    def submit_requests(
        self,
        wishes: Sequence[Wish],
        client: str,
        deadline: float | None,
        request: PendingRequest | None = None,
        promised: bool = False,
    ) -> PendingRequest:
        if self.scheduler is None:
            raise UsageError("this model writes nothing: there is nothing to decode")
        request = request or PendingRequest(client, deadline)
        rows = [wish.rows for wish in wishes]
        units = [
            Unit(
                request,
                number,
                rows[number],
                estimate(wish, rows[number], self.continues),
                decode_request=wish,
            )
            for number, wish in enumerate(wishes)
        ]
        self.submit(request, units, promised)
        return request

    def submit(self, request: PendingRequest, units: Sequence[Unit], promised: bool = False) -> None:
        """Let a request wait for its turn, if there is room."""
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
        """Room for about so much, kept while a request is prepared; Full at once, before its preparation."""
        with self.condition:
            self.check_capacity(tokens)
            self.reserved_tokens += tokens
        try:
            yield
        finally:
            with self.condition:
                self.reserved_tokens -= tokens

    def check_capacity(self, tokens: int) -> None:
        """Full if there is no room for so much."""
        if (full := self.full(tokens)) is not None:
            self.counts["refused"] += not self.closing
            raise full

    def full(self, tokens: int) -> Full | None:
        """Why there is no room for so much; None where there is."""
        if self.closing:
            return Full("the service is about to end; try again in a moment", 5.0)
        before = self.queue_tokens + self.reserved_tokens
        if not tokens or not before or before + tokens <= self.limits.queue_tokens:
            return None
        seconds = max(1.0, math.ceil(before * self.seconds / self.work))
        return Full(f"too much is waiting already; try again in {seconds:.0f} s", seconds)

    def withdraw(self, request: PendingRequest, reason: str = "cancelled") -> None:
        """Nobody waits for this request; nothing happens if it is over."""
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
        """Refuse what is new and wait for what is there, for so long; then the rest is told."""
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
            request.settle(TooLate("the service has ended before this was done; try again"))

    def close(self) -> None:
        """End the worker after its step; who still waits is told."""
        with self.condition:
            self.closing = self.closed = True
            self.condition.notify()
        self.worker.join(timeout=5)

    # The worker's side

    def serve(self) -> None:
        while True:
            with self.condition:
                self.condition.wait_for(lambda: self.closed or self.live or self.cancelled)
                if self.closed:
                    break
            try:
                self.run_step()
            except Exception as error:  # not to be expected; whoever waits is told, and the desk goes on
                self.reset(error)
        self.reset(Full("the service has ended", 5.0))

    def run_step(self) -> None:
        """Between two steps who is gone leaves and who fits enters; then one step."""
        begun = time.monotonic()
        self.remove_cancelled_and_late(begun)
        if self.scheduler is not None and not self.load:
            self.scheduler.recover()
        for unit in self.next_units():
            self.start_unit(unit)
        if self.scheduler is not None and self.scheduler.busy:
            done = self.scheduler.step()
            self.row_steps, self.steps = self.row_steps + self.scheduler.rows_stepped, self.steps + 1
            self.deliver(done)
        self.seconds += time.monotonic() - begun
        if self.seconds > MEMORY:
            self.work, self.seconds = self.work / 2, self.seconds / 2

    def remove_cancelled_and_late(self, now: float) -> None:
        """Those that nobody waits for, and those whose time is over."""
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
        """Who begins now: the clients in turn, as many as there are rows for, and at most one call.

        A wish that does not fit yet keeps its turn: those behind it wait, else wide ones never began.
        """
        room = self.limits.rows + self.limits.rows // ENTER_SHARE - self.load  # a few wait in the pool
        taken: list[Unit] = []
        may_call = may_wish = True
        with self.condition:
            found = True
            while found:
                found = False
                for client, queue in list(self.queues.items()):
                    unit = queue[0]
                    if unit.call is None:
                        may_wish = may_wish and (unit.rows <= room or not (self.load or taken))
                    if not (may_wish if unit.call is None else may_call):
                        continue
                    taken.append(queue.popleft())
                    del self.queues[client]
                    if queue:
                        self.queues[client] = queue  # behind the others
                    self.queue_tokens -= unit.tokens
                    room -= unit.rows
                    may_call, found = may_call and unit.call is None, True
        return taken

    def start_unit(self, unit: Unit) -> None:
        request = unit.request
        if request not in self.live:  # one of its units failed, or it was withdrawn just now
            return
        if request.is_late(time.monotonic()):
            self.end_late(request)
            return
        try:
            if unit.call is not None:
                if self.scheduler is not None:
                    self.scheduler.collect()  # the model and all cores are the call's
                self.record_result(unit, unit.call())
            elif unit.decode_request is not None and self.scheduler is not None:
                request.handles[self.scheduler.add(unit.decode_request)] = unit
                self.load += unit.rows
        except Exception as error:
            self.counts["failed"] += 1
            self.end(request, error)

    def deliver(self, done: Sequence[Handle]) -> None:
        """What the step gave: whole answers, and pieces to those who listen."""
        if self.scheduler is None:
            return
        with self.condition:
            listening = [each for each in self.live if each.pieces is not None]
        for request in listening:
            for handle in request.handles:
                if piece := self.scheduler.news(handle):
                    request.put(piece)
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
                answer = handle.result()
                self.tokens += sum(len(each.tokens) for each in answer[:1])
                if request.pieces is not None:
                    request.put(answer[0])
                self.record_result(unit, answer)

    def record_result(self, unit: Unit, answer: Any) -> None:
        """One unit's answer; with the last one the request is done."""
        request = unit.request
        self.work += unit.tokens
        request.answers[unit.number] = answer
        request.left -= 1
        if not request.left:
            self.counts["done"] += 1
            self.end(request, None)

    def end(self, request: PendingRequest, error: Exception | None) -> None:
        """A request is over, and all that belongs to it leaves."""
        with self.condition:
            if request not in self.live:
                return
            self.remove_pending(request)
        self.release_rows(request)
        request.settle(error)

    def release_rows(self, request: PendingRequest) -> None:
        """Its rows are free, at the latest after the step that is being made."""
        handles, request.handles = request.handles, {}
        for handle, unit in handles.items():
            self.load -= unit.rows
            if self.scheduler is not None:
                self.scheduler.cancel(handle)

    def remove_pending(self, request: PendingRequest) -> None:
        """It waits no more (under the lock)."""
        self.live.discard(request)
        queue = self.queues.get(request.client, ())
        self.queue_tokens -= sum(unit.tokens for unit in queue if unit.request is request)
        rest = deque(unit for unit in queue if unit.request is not request)
        if rest:
            self.queues[request.client] = rest
        else:
            self.queues.pop(request.client, None)

    def reset(self, error: Exception) -> None:
        """Whoever waits is told, and the batch is a new one."""
        with self.condition:
            told: Iterable[PendingRequest] = list(self.live)
            self.live, self.cancelled, self.queues, self.queue_tokens = set(), [], {}, 0
        if self.scheduler is not None:
            with suppress(Exception):  # of a step that nobody waits for
                self.scheduler.collect()
        self.scheduler, self.load = (None if self.closed else self.new_scheduler()), 0
        for request in told:
            request.settle(error)


def estimate(wish: Wish, rows: int, continues: bool) -> int:
    """About how many pieces a wish makes the model read and write.

    A text that continues one is as long as it may be. A translation is about as long as its source, whatever
    the bound: one burst of clients was once refused for 255 pieces that none of them needed.
    """
    read, least, most = len(wish.ids), wish.options.min_length, wish.options.max_length
    written = most if continues and most else min(read, most or read)
    return read + rows * max(least, written)
