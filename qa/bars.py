"""The bars of a server: each a command that prints one line of JSON, and the same again from its seed.

    python -m qa.bars B13 B14 B15 B16 B17 B18 B19 B20 B21 --model runs/demo --seed 1
    python -m qa.bars --short          # all of them, with a tenth of the work

The server has a process of its own, on the first core if --pin is given. `failures` counts what is wrong on
any machine; `missed` in the figure tells times and sizes above their bar, which a busy machine spoils.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from qa.serving import attack, batch_invariance, bounds, leaving, load
from qa.serving import models as small
from qa.serving.client import Result, started
from regard.device import freeze_gc
from regard.server.keys import add_key

SHORT = 0.5  # seconds for an answer, where the deadline is looked at
BARS = ["B13", "B14", "B15", "B16", "B17", "B18", "B19", "B20", "B21"]


def run(bar: str, model: str, seed: int, part: float, cores: str) -> Iterator[Result]:
    """One bar with a part of its full size."""
    name, most = Path(model).resolve().name, lambda full, least: max(least, int(full * part))
    if bar == "B17":
        yield asyncio.run(bounds.drain(bounds.fresh([model]), seed, most(20, 2)))
        return
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.json"
        options = ["--keys", str(keys)] if bar == "B21" else []
        key = add_key(keys, "bar") if options else ""
        others = small.make(Path(folder), seed) if bar in ("B15", "B18", "B19") else []
        mixed = {name: "translate", **{other: task for other, (task, _) in small.KINDS.items()}}
        with started([model, *others], *options, cores=cores) as server:
            work = {
                "B13": lambda: load.overload(server, seed, most(60, 6)),
                "B14": lambda: bounds.limits(server, seed, most(300, 60), name),
                "B15": lambda: leaving.cancel(server, seed, most(200, 40), writer=small.WRITER),
                "B16": lambda: leaving.slow(server, seed, most(500, 50), 60 if part == 1 else 15),
                "B18": lambda: attack.soak(server, seed, most(20_000, 500), mixed),
                "B19": lambda: attack.fuzz(server, seed, most(20_000, 500), most(100, 20), list(mixed)),
                "B20": lambda: batch_invariance.invariance(server, seed, most(500, 60), model),
                "B21": lambda: attack.strangers(server, seed, key),
            }
            yield asyncio.run(work[bar]())
    if bar == "B15":
        with started([model], "--timeout", str(SHORT), cores=cores) as server:
            yield asyncio.run(leaving.deadline(server, seed, most(20, 5), SHORT))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bars", nargs="*", help=", ".join(BARS))
    parser.add_argument("--model", default="runs/demo", help="a translator from English into German")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="a tenth of the work")
    parser.add_argument("--part", type=float, default=1.0, help="so much of the work")
    parser.add_argument("--pin", action="store_true", help="keep the server on the first core")
    arguments = parser.parse_args()
    failures = 0
    freeze_gc()  # a client that halts would be taken for a server that does
    for bar in arguments.bars or BARS:
        part, cores = 0.1 if arguments.short else arguments.part, "0" if arguments.pin else ""
        for result in run(bar, arguments.model, arguments.seed, part, cores):
            print(result.line(), flush=True)
            failures += result.failures
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
