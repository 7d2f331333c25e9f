"""Requests that arrive over time: they enter running batches of bounded size and leave when they are done.

One worker, or one per core: to the caller it is one scheduler. A result depends neither on the other requests
nor on the worker. `add`, `step` until not `busy`, and `cancel` in between, all from one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from regard.generation.generate import (
    ModelFor,
    TooLarge,
    Warn,
    is_out_of_memory,
    make_search,
    out_of_memory_warning,
    release_gpu_memory,
    worker_count,
    worker_threads,
)
from regard.generation.requests import ActiveRequest, BatchKey, Hypothesis, Request
from regard.inputs.text import SpecialTokens

if TYPE_CHECKING:
    from regard.generation.generate import Search

# Entering costs as much as a step, however few enter: their sources are encoded and all caches move. So a
# running batch waits until those who fit are this part of it, but only for some steps; a small batch, whose
# steps are cheap, for fewer.
ENTER_SHARE = 2
MAX_WAIT = 8  # steps
ROWS_PER_WAIT = 8  # running rows for which one more step may be waited
SINGLE_WORKER_ROWS = 32  # rows that stay with one worker: they gain more from all cores in each operation


@dataclass(frozen=True)
class WorkerSettings:
    """What all workers of a scheduler share; the bounds are those of one worker."""

    model_for: ModelFor
    special: SpecialTokens
    device: torch.device
    tokens: int  # padded source tokens times rows
    rows: int
    warn: Warn = lambda text: None


@dataclass(eq=False)
class Handle:
    """A request in a scheduler, and in the end its result."""

    request: Request
    key: BatchKey = field(init=False)
    rows: int = field(init=False)
    width: int = field(init=False)
    hypotheses: Sequence[Hypothesis] | None = None  # best first
    error: Exception | None = None
    reported: int = 0  # tokens that `Scheduler.news` has returned

    def __post_init__(self) -> None:
        self.key, self.rows, self.width = self.request.key, self.request.rows, self.request.width

    @property
    def cost(self) -> int:
        return self.rows * self.width

    @property
    def is_done(self) -> bool:
        return self.hypotheses is not None or self.error is not None

    def result(self) -> list[Hypothesis]:
        if self.error is not None:
            raise self.error
        if self.hypotheses is None:
            raise ValueError("this request has no result yet")
        return list(self.hypotheses)


@dataclass
class RunningBatch:
    """One search with its running and its waiting requests."""

    search: Search
    waiting: deque[Handle] = field(default_factory=deque)
    running: dict[ActiveRequest, Handle] = field(default_factory=dict)
    waited: int = 0  # steps since a request could have entered

    def cost(self, more: Sequence[Handle] = ()) -> int:
        """Rows times padded source tokens, of the running requests and of some more."""
        handles = [*self.running.values(), *more]
        return sum(each.rows for each in handles) * max((each.width for each in handles), default=0)

    def rows(self) -> int:
        return sum(each.rows for each in self.running.values())

    def fitting(self, cost: int, rows: int) -> list[Handle]:
        """The first waiting requests, as many as fit; an idle batch admits at least one: nothing starves."""
        count, width = self.rows(), max((each.width for each in self.running.values()), default=0)
        chosen: list[Handle] = []
        for handle in self.waiting:
            count, width = count + handle.rows, max(width, handle.width)
            if (count * width > cost or count > rows) and (chosen or self.running):
                break
            chosen.append(handle)
        return chosen

    def may_enter(self, entering: Sequence[Handle]) -> bool:
        """Whether so few are worth the cost of entering, or have waited long enough."""
        if not self.running:
            return True
        rows, cost = self.rows(), self.cost()
        new_rows, new_cost = sum(each.rows for each in entering), self.cost(entering) - cost
        if ENTER_SHARE * new_rows >= rows or ENTER_SHARE * new_cost >= cost:
            return True
        self.waited += 1
        return self.waited > min(MAX_WAIT, rows // ROWS_PER_WAIT)


class Worker:
    """The running batches of one thread; requests that can share a search do.

    If memory runs out, the running requests start again with half the bound.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings, self.tokens = settings, settings.tokens
        self.batches: dict[tuple[int, BatchKey], RunningBatch] = {}
        self.batch_of: dict[Handle, RunningBatch] = {}
        self.rows_stepped = 0  # in the last step

    @property
    def busy(self) -> bool:
        return bool(self.batch_of)

    @property
    def rows(self) -> int:
        """Running rows."""
        return sum(batch.rows() for batch in self.batches.values())

    def add(self, handle: Handle) -> None:
        model = self.settings.model_for(handle.request)
        key = (id(model), handle.key)  # the batch holds the model, so that its id stays unique
        if key not in self.batches:
            self.batches[key] = RunningBatch(self.new_search(model, handle.key))
        self.batches[key].waiting.append(handle)
        self.batch_of[handle] = self.batches[key]

    def new_search(self, model: object, key: BatchKey) -> Search:
        settings = self.settings
        return make_search(model, settings.special, settings.device, key)  # type: ignore[arg-type]

    def cancel(self, handle: Handle) -> None:
        """Remove a request; no effect if it is done."""
        batch = self.batch_of.pop(handle, None)
        if batch is None:
            return
        active = next((active for active, each in batch.running.items() if each is handle), None)
        if active is None:
            batch.waiting.remove(handle)
        else:
            del batch.running[active]
            batch.search.drop(active)
        self.remove_empty()

    def certain(self, handle: Handle) -> Sequence[int]:
        """The tokens of a request that cannot change any more."""
        if handle.hypotheses is not None:
            return handle.hypotheses[0].tokens
        batch = self.batch_of.get(handle)
        running = batch.running.items() if batch is not None else ()
        active = next((active for active, each in running if each is handle), None)
        return () if batch is None or active is None else batch.search.certain(active)

    def step(self) -> list[Handle]:
        """Admit requests that fit, generate one more token, and return the requests that are done."""
        self.admit()
        self.rows_stepped = self.rows
        for batch in self.batches.values():
            if batch.running:
                self.advance(batch)
        self.remove_empty()
        done = [handle for handle in self.batch_of if handle.is_done]
        for handle in done:
            del self.batch_of[handle]
        return done

    def remove_empty(self) -> None:
        self.batches = {key: batch for key, batch in self.batches.items() if batch.running or batch.waiting}

    def admit(self) -> None:
        """Waiting requests enter; batches with waiting requests share the free room."""
        wanting = [batch for batch in self.batches.values() if batch.waiting]
        if not wanting:
            return
        others = [batch for batch in self.batches.values() if not batch.waiting]
        cost = self.tokens - sum(batch.cost() for batch in others)
        rows = self.settings.rows - sum(batch.rows() for batch in others)
        for batch in wanting:
            entering = batch.fitting(cost // len(wanting), rows // len(wanting))
            if entering and batch.may_enter(entering):
                batch.waited = 0
                for _ in entering:
                    batch.waiting.popleft()
                self.enter(batch, entering)

    def enter(self, batch: RunningBatch, handles: Sequence[Handle]) -> None:
        try:
            batch.running |= zip(batch.search.admit([each.request for each in handles]), handles)
            return
        except Exception as error:  # reported by the request that it concerns; the others continue
            failure = without_tensors(error)
        if is_out_of_memory(failure):
            self.shrink(batch, handles)
        elif len(handles) == 1:
            handles[0].error = failure
        else:
            for handle in handles:
                self.enter(batch, [handle])

    def advance(self, batch: RunningBatch) -> None:
        """One more token for all requests of a batch."""
        try:
            for active in batch.search.step():
                batch.running.pop(active).hypotheses = active.hypotheses
            return
        except Exception as error:  # the state of the search is undefined now
            failure = without_tensors(error)
        handles, batch.running = list(batch.running.values()), {}
        batch.search = self.new_search(batch.search.model, batch.search.key)
        if is_out_of_memory(failure):
            self.shrink(batch, handles)
            return
        for handle in handles:
            handle.error = failure

    def shrink(self, batch: RunningBatch, handles: Sequence[Handle]) -> None:
        """Memory ran out: these wait again, and fewer run at once."""
        release_gpu_memory()
        if len(handles) == 1 and self.rows == 0:
            handles[0].error = TooLarge(batch.cost(handles))
            return
        cost = sum(each.cost(handles if each is batch else ()) for each in self.batches.values())
        if self.tokens == self.settings.tokens:
            self.settings.warn(out_of_memory_warning(len(handles)))
        self.tokens = max(1, cost // 2)
        batch.waiting.extendleft(reversed(handles))


def without_tensors(error: Exception) -> Exception:
    """Out of memory: without the traceback, whose frames hold the tensors of the failed step."""
    return error.with_traceback(None) if is_out_of_memory(error) else error


class Scheduler:
    """`tokens` bounds the padded source tokens times rows of all workers together, `rows` their rows."""

    def __init__(
        self,
        model_for: ModelFor,
        special: SpecialTokens,
        device: torch.device,
        tokens: int,
        rows: int | None = None,
        workers: int | None = None,
        warn: Warn = lambda text: None,
    ) -> None:
        if workers is None:
            workers = worker_count(device, tokens)
            workers = workers if rows is None else max(1, min(workers, rows // SINGLE_WORKER_ROWS))
        share = max(1, (tokens if rows is None else rows) // workers)
        settings = WorkerSettings(model_for, special, device, max(1, tokens // workers), share, warn)
        self.workers = [Worker(settings) for _ in range(workers)]
        self.worker_of: dict[Handle, int] = {}
        self.rows = [0] * workers  # of running and waiting requests
        self.costs = [0] * workers  # their rows times padded source tokens
        self.stepping: dict[int, Future[list[Handle]]] = {}  # by worker
        self.deferred: list[list[Callable[[], None]]] = [[] for _ in self.workers]  # until the step ends
        self.done: list[Handle] = []  # returned by the next step
        self.rows_stepped = 0  # in the last step

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        return worker_threads(len(self.workers))

    @property
    def busy(self) -> bool:
        return bool(self.worker_of)

    def add(self, request: Request) -> Handle:
        """To the worker with the least work, once the first one has enough to do or no room."""
        handle = Handle(request)
        settings, first = self.workers[0].settings, self.workers[0]
        fits = self.rows[0] + handle.rows <= min(SINGLE_WORKER_ROWS, settings.rows)
        fits = fits and self.costs[0] + handle.cost <= first.tokens
        number = 0 if fits or not any(self.rows) else self.costs.index(min(self.costs))
        self.between_steps(number, lambda: self.workers[number].add(handle))
        self.worker_of[handle] = number
        self.rows[number] += handle.rows
        self.costs[number] += handle.cost
        return handle

    def between_steps(self, number: int, act: Callable[[], None]) -> None:
        """Now, or when the worker's step ends: a worker belongs to one thread at a time."""
        if number in self.stepping:
            self.deferred[number].append(act)
        else:
            act()

    def step(self) -> list[Handle]:
        """A step of at least one worker; none waits for another. The requests that are done."""
        idle = [
            number for number, each in enumerate(self.workers) if number not in self.stepping and each.busy
        ]
        if len(idle) == 1 and not self.stepping:  # alone, with all cores
            worker = self.workers[idle[0]]
            self.done += worker.step()
            self.rows_stepped = worker.rows_stepped
        else:
            for number in idle:
                self.stepping[number] = self.threads.submit(self.workers[number].step)
            self.collect(FIRST_COMPLETED)
        done = [handle for handle in self.done if handle in self.worker_of]  # without cancelled ones
        self.done = []
        for handle in done:
            self.remove(handle)
        return done

    def collect(self, until: str = ALL_COMPLETED) -> None:
        """Wait for steps in progress; the next step returns the requests that they finish."""
        wait(self.stepping.values(), return_when=until)
        over = [number for number, step in self.stepping.items() if step.done()]
        self.rows_stepped = sum(self.workers[number].rows_stepped for number in over)
        steps = [self.stepping.pop(number) for number in over]
        for number in over:
            actions, self.deferred[number] = self.deferred[number], []
            for act in actions:
                act()
        for step in steps:
            self.done += step.result()

    def cancel(self, handle: Handle) -> None:
        """Remove a request; its rows are free now, or after the step in progress."""
        if handle in self.worker_of:
            worker = self.workers[number := self.remove(handle)]
            self.between_steps(number, lambda: worker.cancel(handle))
        if not self.worker_of:  # no further step would free the rows
            self.collect()

    def remove(self, handle: Handle) -> int:
        number = self.worker_of.pop(handle)
        self.rows[number] -= handle.rows
        self.costs[number] -= handle.cost
        return number

    def news(self, handle: Handle) -> list[int]:
        """The tokens of a request that became certain since the last call; none during its worker's step."""
        number = self.worker_of.get(handle, 0)
        if number in self.stepping and handle.hypotheses is None:
            return []
        new = list(self.workers[number].certain(handle)[handle.reported :])
        handle.reported += len(new)
        return new

    def recover(self) -> None:
        """Try the full bound again after memory ran out."""
        for worker in self.workers:
            worker.tokens = worker.settings.tokens

    def stream(self, request: Request) -> Iterator[int]:
        """The tokens of one request, each as soon as it is certain; with several beams at the end."""
        handle = self.add(request)
        while not handle.is_done:
            self.step()
            yield from self.news(handle)
        handle.result()
