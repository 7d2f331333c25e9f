"""Pools side by side, each on a core of its own; to its user they are one pool.

A step of a small model is hundreds of small operations. Cut in two, they gain nothing from a second core;
whole batches do: nothing is shared but the weights, which nobody changes. A text does not depend on its
company, so it does not depend on its lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, TypeVar

import torch

from regard.generation.pool import Handle, Pool, rows_of
from regard.generation.sources import Steppable, Wish
from regard.inputs.text import Special
from regard.models.state import BLOCK, round_up

Item = TypeVar("Item")
Result = TypeVar("Result")
ALONE = 32  # rows that stay in one lane: they gain more from all cores in each operation
LEAST_TOKENS = 1024  # of a lane: smaller batches cost more than a core of their own saves


class Lanes:
    """Several pools with the interface of one."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self.pools = pools
        self.cores = torch.get_num_threads()
        self.lane_of: dict[Handle, int] = {}
        self.rows = [0] * len(pools)  # of those that run or wait in each
        self.costs = [0] * len(pools)  # their rows times padded source pieces
        self.under_way: dict[int, Future[list[Handle]]] = {}  # steps that are being made, by lane
        self.later: list[list[Callable[[], None]]] = [[] for _ in pools]  # what waits for such a step's end
        self.done: list[Handle] = []  # those that the next step tells of
        self.moved = 0  # rows that took part in the last step

    @classmethod
    def over(
        cls,
        model_for: Callable[[Wish], Steppable[Any]],
        special: Special,
        device: torch.device,
        tokens: int,
        rows: int | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> Lanes:
        """As many as there are cores and work for; `tokens` and `rows` are the bounds of all together."""
        cores = torch.get_num_threads() if device.type == "cpu" else 1
        count = max(1, min(cores, tokens // LEAST_TOKENS, cores if rows is None else rows // ALONE))
        share = None if rows is None else max(1, rows // count)
        return cls([Pool(model_for, special, device, tokens // count, share, say) for _ in range(count)])

    def portion(self, tokens: int) -> int:
        """How much of so much work a lane takes at once: its share, if that is worth it."""
        return min(self.pools[0].tokens, max(LEAST_TOKENS, -(-tokens // len(self.pools))))

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """One for each lane, which computes with its share of the cores."""
        count = len(self.pools)
        shares: SimpleQueue[int] = SimpleQueue()
        for number in range(count):
            shares.put(max(1, self.cores // count + (number < self.cores % count)))
        threads = ThreadPoolExecutor(count, "lane", lambda: compute_with(shares.get()))
        all_there = Event()
        try:
            waiting = [threads.submit(all_there.wait) for _ in self.pools]
        finally:
            all_there.set()
        for each in waiting:
            each.result()
        torch.set_num_threads(self.cores)  # for threads that others begin
        return threads

    @property
    def busy(self) -> bool:
        return bool(self.lane_of)

    def add(self, wish: Wish) -> Handle:
        """To the lane with the least work, once the first has enough to do or no room."""
        rows, cost = rows_of(wish), cost_of(wish)
        first = self.pools[0]
        alone = self.rows[0] + rows <= min(ALONE, first.most_rows) and self.costs[0] + cost <= first.tokens
        lane = 0 if alone or not any(self.rows) else self.costs.index(min(self.costs))
        handle = Handle(wish)
        self.between_steps(lane, lambda: self.pools[lane].put(handle))
        self.lane_of[handle] = lane
        self.rows[lane] += rows
        self.costs[lane] += cost
        return handle

    def between_steps(self, lane: int, act: Callable[[], None]) -> None:
        """Now, or as soon as the lane's step is over: a pool belongs to one thread at a time."""
        if lane in self.under_way:
            self.later[lane].append(act)
        else:
            act()

    def step(self) -> list[Handle]:
        """A step of at least one lane: none waits for another. A lane alone has all cores."""
        idle = [lane for lane, pool in enumerate(self.pools) if lane not in self.under_way and pool.busy]
        if len(idle) == 1 and not self.under_way:
            self.done += self.pools[idle[0]].step()
            self.moved = self.pools[idle[0]].moved
        else:
            for lane in idle:
                self.under_way[lane] = self.threads.submit(self.pools[lane].step)
            self.collect(FIRST_COMPLETED)
        done = [handle for handle in self.done if handle in self.lane_of]  # not who was cancelled meanwhile
        self.done = []
        for handle in done:
            self.forget(handle)
        return done

    def collect(self, until: str = ALL_COMPLETED) -> None:
        """Wait for steps that are under way; who is done by them comes with the next step."""
        wait(self.under_way.values(), return_when=until)
        over = [lane for lane, step in self.under_way.items() if step.done()]
        self.moved = sum(self.pools[lane].moved for lane in over)
        steps = [self.under_way.pop(lane) for lane in over]
        for lane in over:
            waiting, self.later[lane] = self.later[lane], []
            for act in waiting:
                act()
        for step in steps:
            self.done += step.result()

    def cancel(self, handle: Handle) -> None:
        """Nobody waits for this any more; its rows are free at once, or after the step that is being made."""
        if handle in self.lane_of:
            pool = self.pools[lane := self.forget(handle)]
            self.between_steps(lane, lambda: pool.cancel(handle))
        if not self.lane_of:  # nobody would come to free the rows
            self.collect()

    def forget(self, handle: Handle) -> int:
        lane = self.lane_of.pop(handle)
        self.rows[lane] -= handle.rows
        self.costs[lane] -= cost_of(handle.wish)
        return lane

    def news(self, handle: Handle) -> list[int]:
        """The pieces of an answer that have become certain; none while its lane makes a step."""
        lane = self.lane_of.get(handle, 0)
        return [] if lane in self.under_way and handle.answer is None else self.pools[lane].news(handle)

    def recover(self) -> None:
        for pool in self.pools:
            pool.recover()

    def share(
        self, work: Callable[[Pool, Item], Iterable[Sequence[Result]]], items: Sequence[Item]
    ) -> Iterator[Result]:
        """All results of `work` on the items; a lane that has done one takes the next."""
        if len(self.pools) == 1 or len(items) <= 1:
            for item in items:
                for results in work(self.pools[0], item):
                    yield from results
            return
        todo: SimpleQueue[Item] = SimpleQueue()
        for item in items:
            todo.put(item)
        ready: SimpleQueue[Sequence[Result] | None] = SimpleQueue()
        stopped = Event()

        def run(pool: Pool) -> None:
            try:
                while not stopped.is_set():
                    for results in work(pool, todo.get_nowait()):
                        ready.put(results)
                        if stopped.is_set():
                            break
            except Empty:
                pass
            except BaseException:
                stopped.set()
                raise
            finally:
                ready.put(None)

        running = [self.threads.submit(run, pool) for pool in self.pools]
        try:
            for _ in running:
                while (found := ready.get()) is not None:
                    yield from found
        finally:
            stopped.set()  # where nobody waits for the rest
        for each in running:
            each.result()


def cost_of(wish: Wish) -> int:
    """Rows times padded source pieces."""
    return rows_of(wish) * round_up(max(1, len(wish.ids)), BLOCK)


def compute_with(threads: int) -> None:
    """How many cores an operation that this thread begins may take."""
    torch.set_num_threads(threads)
    torch.get_num_threads()  # else the first operation takes what another thread has set by then
