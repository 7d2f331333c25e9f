"""Is this code slower than an earlier one? Both run the same work in processes of their own, interleaved.

    python -m bench.versions OLD/src [NEW/src] [--rounds 15] [--skip base]

For training (tiny, base), decoding (five cells: sentences x beams), memory and start-up: the median ratio
old / new of the pairs, and the 95 % bootstrap interval of that median. A ratio above 1 means that NEW is
faster, or smaller.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

from bench.rounds import arguments, show

ROOT = Path(__file__).resolve().parents[1]

WORK = r"""
import json, resource, sys, tempfile, time
began = time.perf_counter()
import regard
from pathlib import Path
skip, model = sys.argv[1].split(","), sys.argv[2]
figures = {}
translator = regard.load(model)
translator.translate("I see the small house.")
figures["first translation, s"] = time.perf_counter() - began
import torch
torch.set_num_threads(2)
texts = ["I would like to read this book before the summer.", "Where is the small house of my mother?",
         "He did not come to the station today.", "The children are playing in the garden."] * 16
for sentences, beams in ((1, 1), (1, 4), (32, 1), (32, 4), (64, 5)):
    rounds = max(1, 24 // (sentences * beams))
    translator.translate(texts[:sentences], beam=beams)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(rounds):
            translator.translate(texts[:sentences], beam=beams)
        times.append((time.perf_counter() - start) / rounds)
    figures[f"decode {sentences}x{beams}, s"] = min(times)
figures["decode peak memory, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
from regard.config import resolve
def trainer_of(config, folder):
    try:
        from regard.training.run import open_trainer
        return open_trainer(config, folder)
    except ImportError:
        from regard.machine import choose_machine
        from regard.train.prepare import prepare
        from regard.train.progress import Silent
        from regard.train.run import make_trainer, pinned
        machine = choose_machine("cpu", config.train.precision, 2, config.model.width)
        machine.use()
        config = pinned(config, machine)
        return make_trainer(config, folder, prepare(config, folder, Silent().say), machine)
for name, updates, tokens in (("tiny", 12, 2048), ("base", 2, 1024)):
    if name in skip:
        continue
    config = resolve({"task": {"source": "en", "target": "de"}, "data": {"train": "phrasebook:4000"},
                      "text": {"vocabulary": 2000}, "model": {"preset": f"transformer-{name}"},
                      "train": {"tokens_per_batch": tokens, "threads": 2, "device": "cpu"}})
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(config, Path(folder))
        trainer.update()
        times = []
        for _ in range(updates):
            start = time.perf_counter()
            trainer.update()
            times.append(time.perf_counter() - start)
    figures[f"train {name}, s"] = sum(sorted(times)[: max(1, updates // 2)]) / max(1, updates // 2)
figures["train peak memory, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps(figures))
"""


def measure(source: Path, skip: str) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", WORK, skip, "tatoeba-en-de"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def interval(ratios: list[float], seed: int = 1) -> tuple[float, float]:
    """95 % of the medians of resampled ratios."""
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def main() -> None:
    parser = arguments(__doc__, rounds=15, model=False)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=ROOT / "src")
    parser.add_argument("--skip", default="", help="base: without the training of the base model")
    given = parser.parse_args()
    pairs: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(given.rounds):
        first, second = (given.old, given.new) if number % 2 else (given.new, given.old)
        one, two = measure(first, given.skip), measure(second, given.skip)
        pairs.append((one, two) if number % 2 else (two, one))
        print(f"{number + 1} of {given.rounds}", file=sys.stderr, flush=True)
    for name in pairs[0][0]:
        ratios = [old[name] / new[name] for old, new in pairs]
        low, high = interval(ratios)
        old, new = (statistics.median(pair[side][name] for pair in pairs) for side in (0, 1))
        middle = statistics.median(ratios)
        if given.json:
            show({"figure": name, "old": old, "new": new, "old/new": middle, "low": low, "high": high}, True)
            continue
        print(f"{name:28} old {old:8.3f} new {new:8.3f}  old/new {middle:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
