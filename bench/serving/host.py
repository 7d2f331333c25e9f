"""`regard serve` with a choice of how work is put together: `host.py continuous|fixed MODEL ... [options]`.

`fixed` waits a moment for company and then runs all that came to its end before it looks again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from regard.decode import Hypothesis, Pool, Wish, decode_all
from regard.serve import service as services
from regard.tasks import Translator

WAIT = 0.01  # seconds for company
MOST = 16  # sentences of one batch


class Fixed(services.Desk):
    """Wait-and-run batching with the same engine."""

    def __init__(self, task: Any, limits: Any) -> None:
        super().__init__(task, limits)
        self.own = ThreadPoolExecutor(1)
        self.asked: asyncio.Queue[tuple[Wish, asyncio.Future[list[Hypothesis]]]] = asyncio.Queue()
        self.serving: asyncio.Task[None] | None = None

    async def ask(
        self, requests: Sequence[Wish], client: str = "", deadline: float | None = None
    ) -> list[list[Hypothesis]]:
        if self.serving is None:
            self.serving = asyncio.ensure_future(self.serve())
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in requests]
        for wish, future in zip(requests, futures):
            self.asked.put_nowait((wish, future))
        return list(await asyncio.gather(*futures))

    async def serve(self) -> None:
        loop, task = asyncio.get_running_loop(), self.task
        while True:
            taken = [await self.asked.get()]
            await asyncio.sleep(WAIT)
            while len(taken) < MOST and not self.asked.empty():
                taken.append(self.asked.get_nowait())

            def work(wishes: list[Wish] = [wish for wish, _ in taken]) -> list[list[Hypothesis]]:  # noqa: B006
                assert isinstance(task, Translator)
                pool = Pool(lambda wish: task.model(wish.options), task.special, task.device, 1 << 30)
                return decode_all(pool, wishes)

            for (_, future), found in zip(taken, await loop.run_in_executor(self.own, work)):
                if not future.done():
                    future.set_result(found)


def main() -> None:
    from regard import cli

    kind, *rest = sys.argv[1:]
    if kind == "fixed":
        services.Desk = Fixed  # type: ignore[misc]
    cli.main(["serve", *rest])


if __name__ == "__main__":
    main()
