"""The service scheduler: concurrent requests get the results they get alone; fair, in time, within limits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import torch

from regard.config import Decode
from regard.errors import UsageError
from regard.generation import Hypothesis, Request, SpecialTokens, scheduler
from regard.generation.scheduler import Scheduler
from regard.server.scheduler import BatchLimits, Full, ServiceScheduler, TooLate, estimate
from samples import END, START, random_samples, small

SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
MODEL = small(21)
SHORT = Decode(beam=1, min_length=3, max_length=3)
LONG = Decode(beam=1, min_length=2000, max_length=2000)  # nobody waits for the end of this


class Task:
    """What a scheduler asks of a task, with a model that can be held up."""

    longest_target = None

    def __init__(self) -> None:
        self.may_step = threading.Event()
        self.may_step.set()
        self.begun: list[int] = []  # the first piece of each source, in the order of entering
        self.rows: list[int] = []
        self.error: Exception | None = None

    workers = 1

    def scheduler(self, tokens: int, rows: int | None = None) -> Scheduler:
        # the bounds are those of all workers together: each gets what one alone would have
        count, rows = self.workers, None if rows is None else self.workers * rows
        return Scheduler(lambda request: self, SPECIAL, torch.device("cpu"), count * tokens, rows, count)

    def start(self, batch: Any, beams: int = 1) -> Any:
        self.begun += batch.source.ids[:, 0].tolist()
        return MODEL.start(batch, beams)

    def step(self, state: Any, tokens: Any) -> Any:
        assert self.may_step.wait(20)
        self.rows.append(len(state))
        if self.error is not None:
            raise self.error
        return MODEL.step(state, tokens)


def test_a_translation_is_reckoned_by_its_source() -> None:
    """A folder that allows 255 pieces had a server refuse 32 clients with a sentence each."""
    request = Request([5] * 20, Decode(beam=4, max_length=255))
    assert estimate(request, 4, continues=False) == 20 + 4 * 20
    assert estimate(request, 4, continues=True) == 20 + 4 * 255
    assert estimate(Request([5], Decode(beam=1, min_length=9, max_length=9)), 1, continues=False) == 1 + 9
    assert estimate(Request([5] * 20, Decode(beam=1, max_length=3)), 1, continues=False) == 20 + 3


@pytest.fixture(autouse=True, params=[1, 2])
def _in_both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with one worker, and with two whose steps overlap."""
    if request.param == 2:
        monkeypatch.setattr(scheduler, "SINGLE_WORKER_ROWS", 1)
        monkeypatch.setattr(Task, "workers", 2)


def alone(request: Request) -> list[Hypothesis]:
    pool = Task().scheduler(4096)
    handle = pool.add(request)
    while pool.busy:
        pool.step()
    return handle.result()


def with_scheduler(
    story: Callable[[ServiceScheduler, Task], Coroutine[Any, Any, None]], limits: BatchLimits = BatchLimits()
) -> tuple[ServiceScheduler, Task]:
    """Tell a story of a scheduler, within a time."""
    task = Task()
    service = ServiceScheduler(task, limits)
    try:
        asyncio.run(asyncio.wait_for(story(service, task), 60))
    finally:
        task.may_step.set()
        service.close()
    assert service.worker is None or not service.worker.is_alive()
    return service, task


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # the other thread tells nobody
        await asyncio.sleep(0.002)


def test_fifty_at_once_are_answered_as_one():
    options = [
        Decode(beam=1, max_length=9),
        Decode(beam=3, max_length=12),
        Decode(beam=2, sample=True, max_length=8),
    ]
    samples = random_samples(50, 8, longest=20)
    requests = [Request(sample.source, options[number % 3]) for number, sample in enumerate(samples)]

    async def story(service: ServiceScheduler, task: Task) -> None:
        async def one(number: int) -> list[list[Hypothesis]]:
            await asyncio.sleep(0.001 * (number % 7))
            return await service.generate([requests[number]], client=str(number % 5))

        found = await asyncio.gather(*(one(number) for number in range(50)))
        assert [own for (own,) in found] == [alone(request) for request in requests]
        counters = service.counters()
        assert counters["done"] == 50 and counters["queue"] == counters["rows"] == 0
        assert counters["queue_tokens"] == counters["requests"] == 0
        assert counters["tokens"] == sum(len(own[0].tokens) for (own,) in found)
        assert 0 < counters["steps"] < sum(len(own[0].tokens) for (own,) in found) / 4
        assert max(task.rows) > 8, "they really shared a batch"
        assert await service.generate([]) == []

    with_scheduler(story)


def test_a_stream_gives_pieces_and_then_the_whole():
    async def story(service: ServiceScheduler, task: Task) -> None:
        async def read(request: Request) -> tuple[list[list[int]], Hypothesis]:
            pieces = [each async for each in service.stream(request)]
            *before, last = pieces
            assert isinstance(last, Hypothesis)
            return before, last

        greedy = Request([5, 6, 7, END], Decode(beam=1, min_length=6, max_length=9))
        searched = Request([5, 6, 7, END], Decode(beam=3, min_length=6, max_length=9))
        (one, whole), (other, best) = await asyncio.gather(read(greedy), read(searched))
        assert [piece for part in one for piece in part] == list(whole.tokens)
        assert len(one) == len(whole.tokens), "each piece at its own step"
        assert [list(best.tokens)] == other, "of several beams nothing is certain before the end"
        assert [whole] == alone(greedy) and best == alone(searched)[0]

    with_scheduler(story)


def test_who_goes_away_costs_nothing_more():
    async def story(service: ServiceScheduler, task: Task) -> None:
        waiting = asyncio.create_task(service.generate([Request([5, END], LONG)] * 3))
        pieces = service.stream(Request([6, END], LONG))
        await anext(pieces)
        await until(lambda: service.counters()["rows"] == 4)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await pieces.aclose()
        assert [each async for each in pieces] == []
        await until(lambda: service.counters()["rows"] == 0)
        steps = len(task.rows)
        await asyncio.sleep(0.05)
        assert len(task.rows) <= steps + 1, "the worker rests"
        counters = service.counters()
        assert counters["cancelled"] == 2 and counters["requests"] == 0
        task.may_step.clear()  # also one that has not begun
        queued = [asyncio.create_task(service.generate([Request([7, END], LONG)])) for _ in range(100)]
        await until(lambda: service.counters()["requests"] == 100)
        for each in queued:
            each.cancel()
        await asyncio.gather(*queued, return_exceptions=True)
        assert service.counters()["queue_tokens"] == 0
        task.may_step.set()
        await until(lambda: service.counters()["rows"] == 0)
        assert await service.generate([Request([5, END], SHORT)]) == [alone(Request([5, END], SHORT))]

    with_scheduler(story, BatchLimits(queue_tokens=10**6))


def test_time_is_kept():
    async def story(service: ServiceScheduler, task: Task) -> None:
        with pytest.raises(TooLate, match="timed out"):
            await service.generate([Request([5, END], LONG)], deadline=time.monotonic() + 0.05)
        await until(lambda: service.counters()["rows"] == 0)
        with pytest.raises(TooLate):
            await service.run(lambda: 1, deadline=time.monotonic() - 1)
        pieces = service.stream(Request([5, END], LONG), deadline=time.monotonic() + 0.1)
        with pytest.raises(TooLate):
            async for _ in pieces:
                pass
        fine = await service.generate([Request([5, END], SHORT)], deadline=time.monotonic() + 30)
        assert fine == [alone(Request([5, END], SHORT))] and service.counters()["late"] == 3

    with_scheduler(story)


def test_time_is_kept_while_a_step_lasts():
    """A step that took many sentences in held back the word of a deadline for a fifth of a second."""

    async def story(service: ServiceScheduler, task: Task) -> None:
        task.may_step.clear()
        with pytest.raises(TooLate, match="timed out"):
            await service.generate([Request([5, END], LONG)], deadline=time.monotonic() + 0.05)
        assert service.counters()["late"] == 1 and service.counters()["cancelled"] == 0
        task.may_step.set()
        await until(lambda: service.counters()["rows"] == 0)

    with_scheduler(story)


def test_clients_take_turns():
    """One who asks for much does not keep the others waiting."""

    async def story(service: ServiceScheduler, task: Task) -> None:
        task.may_step.clear()
        holding = asyncio.create_task(service.generate([Request([4, END], SHORT)], client="first"))
        await until(lambda: task.begun == [4])
        greedy = asyncio.create_task(service.generate([Request([5, END], SHORT)] * 30, client="greedy"))
        await asyncio.sleep(0.01)
        others = [
            asyncio.create_task(service.generate([Request([6 + number, END], SHORT)], client=f"{number}"))
            for number in range(3)
        ]
        calls = asyncio.create_task(service.run(lambda: task.begun.append(99) or 7, client="caller"))
        await until(lambda: service.counters()["queue"] == 34)
        task.may_step.set()
        await asyncio.gather(holding, greedy, calls, *others)
        assert calls.result() == 7
        first = task.begun[1:9]
        assert {6, 7, 8, 99} <= set(first), first
        assert max(task.rows) <= 4

    with_scheduler(story, BatchLimits(rows=4))


def test_wide_ones_are_not_passed_for_ever():
    async def story(service: ServiceScheduler, task: Task) -> None:
        wide = Request([9, END], Decode(beam=6, min_length=4, max_length=4))
        going = True

        async def crowd(number: int) -> None:
            while going:
                await service.generate([Request([5, END], SHORT)], client=f"{number}")

        many = [asyncio.create_task(crowd(number)) for number in range(8)]
        await until(lambda: len(task.rows) > 5)
        found = await service.generate([wide], client="wide")
        going = False
        assert found == [alone(wide)]
        await asyncio.gather(*many)

    with_scheduler(story, BatchLimits(rows=4))


def test_what_does_not_fit_is_refused_at_once():
    async def story(service: ServiceScheduler, task: Task) -> None:
        task.may_step.clear()
        first = asyncio.create_task(service.generate([Request([5, 6, END], SHORT)]))
        await until(lambda: bool(task.begun))
        large = asyncio.create_task(
            service.generate([Request([5, 6, END], SHORT)] * 40)
        )  # nobody else waits: it may
        await until(lambda: service.counters()["queue"] == 40)
        with pytest.raises(Full, match="try again in") as refused:
            await service.generate([Request([5, 6, END], SHORT)])
        assert refused.value.retry_after >= 1
        with pytest.raises(Full):
            service.stream(Request([5, 6, END], SHORT))
        with pytest.raises(Full):
            await service.run(lambda: 1)
        task.may_step.set()
        await asyncio.gather(first, large)
        assert service.counters()["refused"] == 3
        assert await service.run(lambda: "there is room again") == "there is room again"

    with_scheduler(story, BatchLimits(rows=2, queue_tokens=100))


def test_errors_reach_those_who_asked():
    async def story(service: ServiceScheduler, task: Task) -> None:
        with pytest.raises(ZeroDivisionError):
            await service.run(lambda: 1 // 0)
        task.error = RuntimeError("broken")
        with pytest.raises(RuntimeError, match="broken"):
            await service.generate([Request([5, END], SHORT)] * 3)
        with pytest.raises(RuntimeError, match="broken"):
            async for _ in service.stream(Request([5, END], SHORT)):
                pass
        task.error = None
        assert await service.generate([Request([5, END], SHORT)]) == [alone(Request([5, END], SHORT))]
        assert service.counters()["rows"] == 0

    with_scheduler(story)


def test_the_end():
    async def story(service: ServiceScheduler, task: Task) -> None:
        short = asyncio.create_task(
            service.generate([Request([5, END], Decode(beam=1, min_length=30, max_length=30))])
        )
        await until(lambda: bool(task.rows))
        await service.drain(20)
        assert len((await short)[0][0].tokens) == 30, "what was under way is done"
        with pytest.raises(Full, match="shutting down"):
            await service.generate([Request([5, END], SHORT)])

    with_scheduler(story)

    async def hurry(service: ServiceScheduler, task: Task) -> None:
        long = asyncio.create_task(service.generate([Request([5, END], LONG)]))
        await until(lambda: bool(task.rows))
        await service.drain(0.05)
        with pytest.raises(TooLate, match="shut down before"):
            await long
        await until(lambda: service.counters()["rows"] == 0)

    with_scheduler(hurry)

    async def closed(service: ServiceScheduler, task: Task) -> None:
        long = asyncio.create_task(service.generate([Request([5, END], LONG)]))
        await until(lambda: bool(task.rows))
        service.close()
        with pytest.raises(Full, match="has shut down"):
            await long

    with_scheduler(closed)


def test_a_model_that_writes_nothing_can_still_be_called():
    async def story() -> None:
        service = ServiceScheduler(object())
        with pytest.raises(UsageError, match="does not generate"):
            await service.generate([Request([5, END], SHORT)])
        assert await service.run(lambda: 3) == 3
        service.close()

    asyncio.run(story())
