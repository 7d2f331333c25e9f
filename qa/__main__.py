"""Release trials. Each prints one line of JSON: name, n, failures, figure, seed, seconds.

    python qa --list                       # names, cases, seconds, promises
    python qa                              # all of them
    python qa kills corruption --seed 7    # some of them
    python qa --share 0.05 --jobs 2        # a sample of each, two at a time where no time is measured
    python qa mutations --first 123 --count 1    # one case again

Every trial has a process of its own. The exit code is 1 if one of them fails; what failed goes to stderr.
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
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from qa.trials import TRIALS, Job  # noqa: E402


def run(name: str, job: Job) -> int:
    """One trial in this process."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ["REGARD_CACHE"] = str(job.work / "cache")
    import torch

    torch.set_num_threads(1)
    start = time.monotonic()
    result = TRIALS[name].run(job)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    times = {"seconds": round(time.monotonic() - start)}
    times["processor_seconds"] = round(sum(each.ru_utime + each.ru_stime for each in usage))
    print(replace(result, name=name, more={**result.more, **times}).line(), flush=True)
    for line in result.wrong[:20]:
        print(f"  {line}", file=sys.stderr)
    return int(result.failures > 0)


def show_list() -> None:
    for name, trial in TRIALS.items():
        print(f"{name:18}{trial.count:>8,} {trial.seconds:>5} s  {trial.promise}")
    print(f"{len(TRIALS)} trials, {sum(trial.seconds for trial in TRIALS.values()) / 60:.0f} minutes")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python qa"
    )
    parser.add_argument("trials", nargs="*", metavar="NAME", help="all without one")
    parser.add_argument("--list", action="store_true", help="print what there is, and run nothing")
    parser.add_argument("-m", "--model", type=Path, default=Path("runs/demo"), help="an English-German model")
    parser.add_argument("--count", type=int, help="cases, instead of the number in the list")
    parser.add_argument("--share", type=float, default=1.0, help="of these cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case, for mutations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="at the same time, where no time is measured")
    given = parser.parse_args()
    if given.list:
        show_list()
        return 0
    if unknown := set(given.trials) - TRIALS.keys():
        parser.error(f"no trial is called {min(unknown)}: see python qa --list")
    names = given.trials or list(TRIALS)
    if any(TRIALS[name].needs_model for name in names) and not given.model.is_dir():
        parser.error(f"{given.model} is missing: `make demo` trains it, -m names another model")
    counts = {name: given.count or max(1, round(given.share * TRIALS[name].count)) for name in names}
    if len(names) == 1:
        with tempfile.TemporaryDirectory() as work:
            count = counts[names[0]]
            return run(names[0], Job(count, given.seed, Path(work), given.model, given.first))

    def in_process(name: str) -> int:
        options = ["--count", str(counts[name]), "--seed", str(given.seed), "-m", str(given.model)]
        return subprocess.run([sys.executable, str(ROOT / "qa"), name, *options], check=False).returncode

    beside = [name for name in names if not TRIALS[name].alone]
    with ThreadPoolExecutor(given.jobs) as pool:
        codes = list(pool.map(in_process, beside))
    codes += [in_process(name) for name in names if TRIALS[name].alone]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
