"""Kill a short run with SIGKILL at random moments, resume it, and compare the bits with an uncut run.

    python bench/kills.py --kills 30 --seed 1

Prints one JSON line: kills made, runs finished, runs whose final weights, optimiser or position differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = """
[task]
name = "translate"
source = "en"
target = "de"
[data]
train = "phrasebook"
[model]
preset = "transformer-tiny"
[train]
steps = 120
tokens_per_batch = 1024
checkpoint_every = 10
validate_sentences = 20
seed = 3
"""


def command(config: Path, folder: Path, resume: bool) -> list[str]:
    more = ["--resume"] if resume else []
    return [sys.executable, "-m", "regard", "train", str(config), "--out", str(folder), *more]


def digest(folder: Path) -> str:
    """Of the final model, and of weights, optimiser and position in the last checkpoint."""
    last = max((folder / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
    state = json.loads((last / "state.json").read_text())
    for clock in ("seconds", "updating", "waiting", "validating", "saving"):
        state.pop(clock)
    found = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for path in (folder, last):
        found.update((path / "model.safetensors").read_bytes())
    found.update((last / "optimizer.safetensors").read_bytes())
    return found.hexdigest()


def run_once(config: Path, folder: Path, resume: bool, kill_after: float | None) -> bool:
    """Run until done (True) or until killed (False)."""
    process = subprocess.Popen(
        command(config, folder, resume), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        _, said = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return False
    if process.returncode:
        raise SystemExit(f"the run failed: {said.decode()}")
    return True


def trial(kills: int, seed: int, work: Path, config_text: str = CONFIG) -> dict[str, object]:
    config = work / "run.toml"
    config.write_text(config_text)
    began = time.monotonic()
    run_once(config, work / "whole", False, None)
    uncut, expected = time.monotonic() - began, digest(work / "whole")
    chance = random.Random(seed)
    made, finished, different, number, resume = 0, 0, 0, 0, False
    while made < kills or resume:
        folder = work / f"cut-{number}"
        moment = chance.uniform(0.0, uncut) if made < kills else None
        if run_once(config, folder, resume, moment):
            finished += 1
            different += digest(folder) != expected
            number, resume = number + 1, False
        else:
            made, resume = made + 1, True
    return {
        "name": "kills",
        "kills": made,
        "finished": finished,
        "different": different,
        "uncut_seconds": round(uncut, 1),
        "seconds": round(time.monotonic() - began, 1),
        "seed": seed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        result = trial(options.kills, options.seed, Path(work))
    print(json.dumps(result))
    sys.exit(bool(result["different"]))


if __name__ == "__main__":
    main()
