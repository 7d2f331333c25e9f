"""Spoken digits of unknown speakers: recipes/fsdd.toml once for each speaker, who is left out of training.

REGARD_DATA=folder python recipes/spoken.py
python recipes/speakers.py [--place runs/spoken] [--runs runs/speakers] [--set train.seed=2 ...]

A run is scored on all recordings of its speaker; the checkpoint is chosen on those of the others. The script
can be stopped at any time; the same command resumes it. It prints the accuracy of each speaker, the mean and
the worst.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import mean

from spoken import PLACE

from regard.config import load_config
from regard.training import train

RECIPE = Path(__file__).with_name("fsdd.toml")
SPLITS = ("train", "valid", "test")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--place", type=Path, default=PLACE)
    options.add_argument("--runs", type=Path, default=Path("runs/speakers"))
    options.add_argument("--set", dest="changes", action="append", default=[], help="a field of all runs")
    given = options.parse_args()
    accuracies: dict[str, float] = {}
    for name in speakers(given.place):
        folder = given.runs / name
        if (accuracy := test_accuracy(folder)) is None:
            files = [f'data.{split}="{given.place.resolve()}/fsdd.{name}.{split}.tsv"' for split in SPLITS]
            config = load_config(RECIPE, [*files, *given.changes])
            if not train(config, folder, resume=(folder / "run.toml").is_file()).finished:
                sys.exit(130)  # interrupted; the same command resumes
            accuracy = test_accuracy(folder)
        if accuracy is None:
            sys.exit(f"{folder}: the run ended without a record of its scores")
        accuracies[name] = accuracy
        print(f"{name}: {accuracy:.1%}", flush=True)
    worst = min(accuracies, key=lambda name: accuracies[name])
    print(f"mean {mean(accuracies.values()):.1%}; the worst is {worst} with {accuracies[worst]:.1%}")


def speakers(place: Path) -> list[str]:
    return sorted(path.name.split(".")[1] for path in place.glob("fsdd.*.test.tsv"))


def test_accuracy(folder: Path) -> float | None:
    """Of a finished run; None if it has not finished."""
    path = folder / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        record = json.loads(line)
        if record["kind"] == "test":
            return float(record["accuracy"])
    return None


if __name__ == "__main__":
    main()
