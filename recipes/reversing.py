"""Train the small Transformer of the lesson “Learning”, and record what it does at several steps.

python recipes/reversing.py [--run runs/reversing]

Its task is to repeat number words in reverse order. The record, builtin/lessons/reversing.json, has the loss
of every tenth update, and for each checkpoint the outputs, the share of exact ones, and the weights of one
head; and how well the same model does with fewer examples (lesson “What Transformers cost”).
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from regard import load
from regard.config import resolve
from regard.storage.checkpoint import checkpoint_folder, checkpoint_steps
from regard.training import train

RECORD = Path(__file__).parent.parent / "src" / "regard" / "builtin" / "lessons" / "reversing.json"
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
STEPS, EVERY = 900, 50
SIZES = (50, 400, 3000)  # examples of models that differ in nothing else
RECORDED = (50, 100, 150, 200, 250, 300, 400, 600, 900)
WATCHED = "five one nine two ten four"
TESTED = 100


def pairs(seed: int, count: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    lines = [rng.choices(NUMBERS, k=rng.randint(2, 6)) for _ in range(count)]
    return [(" ".join(line), " ".join(reversed(line))) for line in lines]


def examples(count: int) -> list[tuple[str, str]]:
    test = {source for source, _ in pairs(2, TESTED)} | {WATCHED}
    return [pair for pair in pairs(1, 4000) if pair[0] not in test][:count]


def settings(folder: Path, count: int = SIZES[-1]) -> dict[str, Any]:
    splits = {"train": examples(count), "valid": pairs(3, 50)}
    files = {}
    for name, rows in splits.items():
        files[name] = str(folder / f"{name}.tsv")
        text = "".join(f"{source}\t{target}\n" for source, target in rows)
        Path(files[name]).write_text(text, encoding="utf-8")
    model = {"width": 32, "layers": 2, "heads": 2, "feed_forward": 64, "dropout": 0.0, "max_length": 64}
    schedule = {"steps": STEPS, "lr": 5e-3, "warmup": 150, "schedule": "linear", "tokens_per_batch": 512}
    return {
        "task": {"source": "forward", "target": "backward"},
        "data": {**files, "leaks": "keep"},
        "text": {"kind": "word", "vocabulary": 300},
        "model": model,
        "train": {
            **schedule, "label_smoothing": 0.0, "checkpoint_every": EVERY, "keep": STEPS // EVERY,
            "log_every": 10, "validate_every": STEPS, "threads": 1,
        },
        "decode": {"beam": 1, "max_length": 8},
    }  # fmt: skip


def best_head(task: Any) -> tuple[str, int]:
    """The head of the last checkpoint that reads the words in reverse order most clearly."""
    trace = task.trace(WATCHED, target=reverse(WATCHED))
    count = len(WATCHED.split())
    scores = {
        (name, head): float(weights[:count, :count].flip(1).diagonal().mean())
        for name in trace.attentions
        if name.endswith("cross")
        for head, weights in enumerate(trace.weights(name))
    }
    return max(scores, key=lambda each: scores[each])


def reverse(line: str) -> str:
    return " ".join(reversed(line.split()))


def at_step(task: Any, where: str, head: int) -> dict[str, Any]:
    """What one checkpoint does: its outputs, and one head while it is told the right words."""
    trace = task.trace(WATCHED, target=reverse(WATCHED))
    count = len(WATCHED.split())
    weights = trace.weights(where, head)[:count, :count]
    p = [
        round(float(each), 4) for each in trace["logits"].softmax(-1).gather(1, ids(trace)).flatten()[:count]
    ]
    shown = [[round(float(each), 3) for each in row] for row in weights]
    return {
        "output": task.translate(WATCHED, beam=1),
        "exact": exact(task, pairs(2, TESTED)),
        "p": p,
        "weights": shown,
    }


def ids(trace: Any) -> Any:
    import torch

    return torch.tensor(trace.tokens["output"].ids)[:, None]


def exact(task: Any, rows: list[tuple[str, str]]) -> float:
    outputs = task.translate([source for source, _ in rows], beam=1)
    return sum(text == target for text, (_, target) in zip(outputs, rows)) / len(rows)


def by_size(folder: Path) -> dict[str, dict[str, float]]:
    """The share of exact outputs on what was learned and on new sentences, by the number of examples."""
    shares = {}
    for count in SIZES:
        place = folder if count == SIZES[-1] else folder / str(count)
        place.mkdir(exist_ok=True)
        train(resolve(settings(place, count)), place / "run", resume=(place / "run" / "run.toml").is_file())
        task = load(checkpoint_folder(place / "run", STEPS))
        shares[str(count)] = {
            "seen": exact(task, examples(count)[:TESTED]),
            "new": exact(task, pairs(2, TESTED)),
            "loss": task_loss(place / "run"),
        }
    return shares


def task_loss(run: Path) -> float:
    """The training loss of the last logged update."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [each for each in map(json.loads, lines) if each["kind"] == "train"][-1]["loss"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--run", type=Path, default=Path("runs/reversing"))
    folder = options.parse_args().run
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "run"
    train(resolve(settings(folder)), run, resume=(run / "run.toml").is_file())
    where, head = best_head(load(checkpoint_folder(run, max(checkpoint_steps(run)))))
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    loss = [each for each in map(json.loads, lines) if each["kind"] == "train"]
    steps = [each for each in RECORDED if each in checkpoint_steps(run)]
    record = {
        "words": WATCHED.split(),
        "said": reverse(WATCHED).split(),
        "tested": TESTED,
        "where": where,
        "head": head,
        "loss": {"at": [each["step"] for each in loss], "values": [round(each["loss"], 4) for each in loss]},
        "steps": {str(step): at_step(load(checkpoint_folder(run, step)), where, head) for step in steps},
        "by_size": by_size(folder),
    }
    RECORD.write_text(json.dumps(record) + "\n", encoding="utf-8")
    print({step: (each["exact"], each["output"]) for step, each in record["steps"].items()})


if __name__ == "__main__":
    main()
