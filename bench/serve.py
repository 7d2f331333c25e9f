"""What batching is worth: a served translator with many clients, and ways to put their work together.

    python -m bench.serve -m runs/demo --seconds 60 --clients 32
    python -m bench.serve -m runs/demo --seconds 60 --clients 32 --mix     # texts of all lengths

All ways get the same texts, and the same engine
computes them: one at a time; wait-and-run, which waits for further requests and runs a batch to its end
(padded: with all its rows, else those that end leave); and continuous, where requests join and leave between
two steps. The ways take turns in rounds, so that what else the machine does reaches all of them; beside the
time by the clock stands that of the processor. The last lines tell how much more continuous batching does, by
either.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.rounds import arguments, show
from qa.serving import mix
from qa.serving.client import Server, started
from qa.serving.driver import REFUSED, Drive, Load, numbers, questions_for, sentences, times
from regard.data.files import lines

WAYS = {
    "one at a time": "continuous",
    "wait and run, padded": "padded",
    "wait and run": "fixed",
    "continuous": "continuous",
}


class Way:
    """One way to put work together, and what came of its rounds."""

    def __init__(self, name: str, server: Server, drive: Drive) -> None:
        self.name, self.server, self.drive = name, server, drive
        self.load, self.processor = Load(0.0), 0.0

    async def round(self, texts: list[str]) -> None:
        questions = await questions_for(self.server.address, texts)
        before = self.server.processor_seconds()
        load = await self.drive.run(self.server.address, questions)
        self.processor += self.server.processor_seconds() - before
        self.load.answers += load.answers
        self.load.seconds += load.seconds

    def summary(self) -> dict[str, Any]:
        good = self.load.of(200)
        return {
            "way": self.name,
            "seconds": round(self.load.seconds, 1),
            "answered": len(good),
            "refused": len(self.load.of(*REFUSED)),
            "requests_per_second": self.load.rate,
            "requests_per_processor_second": round(len(good) / self.processor, 2),
            **times([each.seconds for each in good]),
        }


async def warm(server: Server, texts: list[str]) -> None:
    await Drive(4, None, 1.0).run(server.address, await questions_for(server.address, texts))


async def steps(server: Server) -> dict[str, float]:
    """Steps of the scheduler, and rows per step."""
    counters = {
        name: value for name, value in (await numbers(server.address)).items() if "regard_desk" in name
    }
    counts = {what: sum(v for name, v in counters.items() if f'what="{what}"' in name)
              for what in ("steps", "row_steps")}  # fmt: skip
    return {"steps": counts["steps"], "rows_a_step": round(counts["row_steps"] / max(1, counts["steps"]), 1)}


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--file", type=Path, help="texts to send, one a line; else of the phrasebook")
    parser.add_argument("--mix", action="store_true", help="texts of a word to some dozens of sentences")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rate", type=float, help="instead of clients: requests a second, by chance")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", default="0", help="of the server's engine; 0 = one for each core")
    given = parser.parse_args()
    texts = mix.texts(given.seed) if given.mix else sentences(given.seed)
    if given.file:
        texts = [each for each in lines(given.file) if each.strip()]
    with ExitStack() as stack:
        ways = []
        for name, kind in WAYS.items():
            server = stack.enter_context(
                started([str(given.model)], "--threads", given.threads, batching=kind)
            )
            clients, rate = (1, None) if name == "one at a time" else (given.clients, given.rate)
            ways.append(Way(name, server, Drive(clients, rate, given.seconds / given.rounds, given.seed)))
            asyncio.run(warm(server, texts))
        for _ in range(given.rounds):
            for way in ways:
                asyncio.run(way.round(texts))
        summaries = {way.name: way.summary() for way in ways}
        for summary in summaries.values():
            show(summary, given.json)
        show(asyncio.run(steps(ways[-1].server)), given.json)
    for figure in ("requests_per_second", "requests_per_processor_second"):
        best = summaries["continuous"][figure]
        more = {
            f"over {name}": round(best / summary[figure], 2) for name, summary in list(summaries.items())[:-1]
        }
        show({"continuous, by": figure, **more}, given.json)


if __name__ == "__main__":
    main()
