"""The bars of reliability, each one JSON line: name, n, failures, figure, seed.

    python qa/survive                         # all of them, as many cases as the bar asks for
    python qa/survive B2 B4 --seed 7          # some of them
    python qa/survive B1 --count 20           # fewer cases
    python qa/survive --share 0.05            # a sample of each
    python qa/survive --jobs 2                # two at a time

Every bar has a process of its own, and ends with code 1 if anything fails; what failed goes to stderr.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qa.survive.common import Bar

sys.path[0] = str(Path(__file__).parents[2])

COUNTS = {  # cases that a bar asks for
    "B1": 200,
    "B2": 1000,
    "B3": 1,
    "B4": 2250,
    "B5": 60,
    "B6": 12,
    "B7": 1,
    "ranks": 100,
    "B8": 100,
    "B9": 5000,
    "B10": 100_000,
    "B11": 1,
    "B12": 1,
    "readers": 100_000,
    "saving": 200,
}


def run(name: str, count: int, seed: int) -> int:
    """One bar in this process."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch

    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        os.environ["REGARD_CACHE"] = str(Path(work) / "cache")
        bar = made(name, count, seed, Path(work))
    bar.more["seconds"] = round(time.monotonic() - began)
    bar.more["processor_seconds"] = round(working())
    print(bar.line(), flush=True)
    for line in bar.wrong[:20]:
        print(f"  {line}", file=sys.stderr)
    return int(bar.failures > 0)


def working() -> float:
    """Seconds of the processor, of this process and of its children: what others do does not count."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def made(name: str, count: int, seed: int, work: Path) -> Bar:
    if name in ("B1", "B8"):
        from qa.survive import kills

        return (kills.trial if name == "B1" else kills.signals)(count, seed, work)
    if name in ("B6", "ranks"):
        from qa.survive import parallel

        return (parallel.elastic if name == "B6" else parallel.ranks)(count, seed)
    if name in ("B9", "B10", "B11"):
        from qa.hostile import trials as hostile

        return hostile.bar(name, count, seed)
    from qa.survive import archives, damage, failing, power, readers, runs

    makers = {
        "B2": power.power,
        "B3": failing.failing,
        "B4": damage.damage,
        "B5": runs.resume,
        "B7": runs.numbers,
        "B12": archives.bar,
        "readers": readers.fuzz,
        "saving": runs.saving,
    }
    return makers[name](count, seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bars", nargs="*", help=f"{', '.join(COUNTS)}; else all")
    parser.add_argument("--count", type=int, help="cases; else as many as the bar asks for")
    parser.add_argument("--share", type=float, default=1.0, help="of these cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="bars at the same time")
    given = parser.parse_args()
    if unknown := set(given.bars) - COUNTS.keys():
        parser.error(f"no bar is called {min(unknown)}")
    wanted = given.bars or list(COUNTS)
    counts = {name: given.count or max(1, round(given.share * COUNTS[name])) for name in wanted}
    if len(wanted) == 1:
        sys.exit(run(wanted[0], counts[wanted[0]], given.seed))

    def alone(name: str) -> int:
        command = [sys.executable, str(Path(__file__).parent), name, "--count", str(counts[name])]
        return subprocess.run([*command, "--seed", str(given.seed)], check=False).returncode

    with ThreadPoolExecutor(given.jobs) as lanes:
        sys.exit(int(any([*lanes.map(alone, wanted)])))


if __name__ == "__main__":
    main()
