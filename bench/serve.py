"""A served translator under load: how long answers take, and what batching is worth.

    python bench/serve.py --model runs/demo --seconds 60 --clients 32    # three ways to put work together
    python bench/serve.py --model runs/demo --rate 20 --seconds 60       # arrivals by chance (Poisson)

Each line is JSON: answers a second, p50, p95 and p99 in seconds, pieces a second, read and written. All ways
get the same texts, and the same engine computes them: one at a time; wait-and-run, which waits for company
and runs a batch to its end; and continuous, where requests join and leave between two steps.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from serving.bounds import counters
from serving.client import Server, started
from serving.load import ENGLISH, Load, closed, opened, sentences


async def pieces(server: Server) -> float:
    found = await counters(server)
    return sum(value for name, value in found.items() if "tokens_total" in name)


async def measured(server: Server, way: str, work: Any) -> dict[str, Any]:
    before = await pieces(server)
    load: Load = await work
    rate = (await pieces(server) - before) / load.seconds
    return {"way": way, **load.told(), "pieces_a_second": round(rate, 1), "refused": len(load.of(429, 503))}


async def compare(server: Server, way: str, seed: int, clients: int, seconds: float) -> dict[str, Any]:
    texts = sentences(seed)
    await closed(server, texts, 4, 1, ENGLISH)
    return await measured(server, way, closed(server, texts, clients, seconds, ENGLISH))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="runs/demo")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rate", type=float, help="arrivals a second, by chance")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.rate:
        with started([asked.model]) as server:
            work = opened(server, sentences(asked.seed), asked.rate, asked.seconds, asked.seed, ENGLISH)
            print(json.dumps(asyncio.run(measured(server, f"{asked.rate} a second", work))), flush=True)
        return
    found = {}
    for way, desk, clients in (
        ("one at a time", "continuous", 1),
        ("wait and run", "fixed", asked.clients),
        ("continuous", "continuous", asked.clients),
    ):
        with started([asked.model], desk=desk) as server:
            found[way] = asyncio.run(compare(server, way, asked.seed, clients, asked.seconds))
            print(json.dumps(found[way]), flush=True)
    best = found["continuous"]["rate"]
    print(json.dumps({f"over {way}": round(best / found[way]["rate"], 2) for way in list(found)[:2]}))


if __name__ == "__main__":
    main()
