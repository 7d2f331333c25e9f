"""The bars of a server: each a command that prints one line of JSON, and the same again from its seed.

    python bench/bars.py B13 B14 B15 B16 B17 B18 B19 B20 B21 --model runs/demo --seed 1
    python bench/bars.py --short          # all of them, with a tenth of the work

The server has a process of its own, on the first core if --pin is given.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from regard.serve.keys import add_key
from serving import attack, bounds, load
from serving.client import Result, started

BARS = ["B13", "B14", "B15", "B16", "B17", "B18", "B19", "B20", "B21"]


def run(bar: str, model: str, seed: int, part: float, cores: str) -> Result:
    """One bar with a part of its full size."""
    name, most = Path(model).resolve().name, lambda full, least: max(least, int(full * part))
    if bar == "B17":
        return asyncio.run(bounds.drain(bounds.fresh([model]), seed, most(20, 2)))
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.json"
        options = ["--keys", str(keys)] if bar == "B21" else []
        key = add_key(keys, "bar") if options else ""
        with started([model], *options, cores=cores) as server:
            work = {
                "B13": lambda: load.overload(server, seed, most(60, 6)),
                "B14": lambda: bounds.limits(server, seed, most(300, 60), name),
                "B15": lambda: bounds.cancel(server, seed, most(200, 40)),
                "B16": lambda: bounds.slow(server, seed, most(500, 50), 60 if part == 1 else 15),
                "B18": lambda: attack.soak(server, seed, most(20_000, 500), name),
                "B19": lambda: attack.fuzz(server, seed, most(20_000, 500), most(100, 20), name),
                "B20": lambda: load.invariance(server, seed, most(500, 60)),
                "B21": lambda: attack.strangers(server, seed, key),
            }
            return asyncio.run(work[bar]())


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
    asked = parser.parse_args()
    failures = 0
    for bar in asked.bars or BARS:
        result = run(
            bar, asked.model, asked.seed, 0.1 if asked.short else asked.part, "0" if asked.pin else ""
        )
        print(result.line(), flush=True)
        failures += result.failures
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
