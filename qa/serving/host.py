"""`regard serve` with a choice of how work is put together: `host.py WAY MODEL ... [options]`.

`continuous` is the server's own. `fixed` waits a moment for further requests and then runs all of them to
their end before it looks again; rows that end leave. In `padded` they stay until the last one has ended, as
in a batch that is a rectangle of tensors.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from regard.generation import Hypothesis, Request, scheduler
from regard.generation.requests import ActiveRequest
from regard.generation.search import BeamSearch
from regard.server import service as services

WAIT = 0.01  # seconds to wait for further requests


class Fixed(services.ServiceScheduler):
    """Wait-and-run batching with the same engine: a batch has as many rows as the continuous one may have,
    or the requests that came within WAIT of the first."""

    def __init__(self, task: Any, limits: Any) -> None:
        super().__init__(task, limits)
        self.thread, self.pool = (
            ThreadPoolExecutor(1),
            None if self.scheduler is None else task.scheduler(1 << 30, 1 << 30),
        )
        self.waiting: asyncio.Queue[tuple[Request, asyncio.Future[list[Hypothesis]]]] = asyncio.Queue()
        self.serving: asyncio.Task[None] | None = None

    async def generate(
        self,
        requests: Sequence[Request],
        client: str = "",
        deadline: float | None = None,
    ) -> list[list[Hypothesis]]:
        if self.serving is None:
            self.serving = asyncio.ensure_future(self.serve())
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in requests]
        for request, future in zip(requests, futures):
            self.waiting.put_nowait((request, future))
        return list(await asyncio.gather(*futures))

    async def next_batch(self) -> list[tuple[Request, asyncio.Future[list[Hypothesis]]]]:
        """The next batch: full, or what there is after a moment."""
        first = await self.waiting.get()
        taken, most = [first], max(1, self.limits.rows // first[0].rows)
        until = asyncio.get_running_loop().time() + WAIT
        while len(taken) < most:
            rest = until - asyncio.get_running_loop().time()
            if self.waiting.empty() and rest <= 0:
                break
            try:
                taken.append(await asyncio.wait_for(self.waiting.get(), max(rest, 0.001)))
            except TimeoutError:
                break
        return taken

    async def serve(self) -> None:
        loop, pool = asyncio.get_running_loop(), self.pool
        assert pool is not None
        while True:
            taken = await self.next_batch()

            def work(requests: list[Request] = [request for request, _ in taken]) -> list[list[Hypothesis]]:  # noqa: B006
                handles = [pool.add(request) for request in requests]
                while pool.busy:
                    pool.step()
                return [handle.result() for handle in handles]

            for (_, future), hypotheses in zip(taken, await loop.run_in_executor(self.thread, work)):
                if not future.done():
                    future.set_result(hypotheses)


class Padded(BeamSearch[Any]):
    """A search whose sources all stay until the last of them is done."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.over: set[ActiveRequest] = set()

    def finish(self, source: ActiveRequest, *result: Any) -> None:
        if source not in self.over:
            super().finish(source, *result)

    def reorder(self, groups: list[int], parent: Any = None) -> None:
        super().reorder(list(range(len(self.active))) if groups else [], parent)

    def step(self) -> list[ActiveRequest]:
        new = [source for source in super().step() if source not in self.over]
        self.over |= set(new)
        return new


def main() -> None:
    from regard import cli

    kind, *rest = sys.argv[1:]
    if kind in ("fixed", "padded"):
        services.ServiceScheduler = Fixed  # type: ignore[misc]
    if kind == "padded":
        scheduler.make_search = lambda *given: Padded(*given)
    cli.main(["serve", *rest])


if __name__ == "__main__":
    main()
