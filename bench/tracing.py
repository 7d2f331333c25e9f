"""What tracing costs: those who trace, and those who do not.

    python -m bench.tracing -m runs/demo --text "I see the small house."

Prints one JSON line. `untraced` and `traced` are seconds of the same run over source and output (the best
of the rounds, time of the processor); `checks` is how often the untraced run asks whether there is a tap,
`check` what one such question costs, and `share` both together as a part of the run; `noise` is how far the
middle of the untraced rounds lies above the best, as a part of it; `apart` is the largest difference of their
logits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import torch

from regard.batch import collate
from regard.interpret.record import record
from regard.models import layers as taps
from regard.sample import Sample
from regard.tasks import load

BRANCHES = 2  # questions of each attention that are no call


def timed(run: Callable[[], Any], rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        begun = process_time()
        run()
        found.append(process_time() - begun)
    return found


def checks(run: Callable[[], Any], attentions: int) -> int:
    """Calls of functions that ask for a tap, and the questions of the attentions."""
    seen = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        seen += event == "call" and frame.f_code.co_filename == taps.__file__

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen + BRANCHES * attentions


def measure(task: Any, text: str, rounds: int) -> dict[str, float]:
    """One run over what was read and said."""
    trace = task.trace(text)
    sides = {side: trace.tokens[side].ids for side in ("source", "target") if side in trace.tokens}
    sample = Sample(**sides, labels=trace.tokens["output"].ids if "output" in trace.tokens else [])
    model = task.folder.model
    batch = collate([sample]).to(next(model.parameters()).device)
    with torch.no_grad():
        plain: Any = lambda: model(batch)  # noqa: E731
        times = timed(plain, rounds)
        asked = checks(plain, len(trace.attentions))
        apart = float((plain()[0] - record(model, sample)[1]).abs().max())
    one = min(timeit.repeat(lambda: taps.tapped(None, "x", batch), number=10_000, repeat=5)) / 10_000
    best = min(times)
    return {
        "untraced": best,
        "traced": min(timed(lambda: record(model, sample), rounds)),
        "checks": asked,
        "check": one,
        "share": asked * one / best,
        "noise": statistics.median(times) / best - 1,
        "apart": apart,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--text", default="A man in a blue shirt is standing on a ladder.")
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    print(json.dumps(measure(load(given.model, "cpu", 1), given.text, given.rounds)))


if __name__ == "__main__":
    main()
