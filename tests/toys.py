"""Small made-up languages, one for each task, that a model learns in seconds and cannot guess."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.config import Config, resolve

SYLLABLES = [consonant + vowel for consonant in "bdkt" for vowel in "aio"]
CUES = {"good": "yes", "bad": "no", "odd": "hm"}


def words(dice: random.Random, count: int) -> list[str]:
    return ["".join(dice.choices(SYLLABLES, k=2)) for _ in range(count)]


def labelled(dice: random.Random, count: int) -> list[str]:
    """One word among five decides the label."""
    rows = []
    for _ in range(count):
        text, label = words(dice, 5), dice.choice(list(CUES))
        text[dice.randrange(5)] = CUES[label]
        rows.append(f"{' '.join(text)}\t{label}")
    return rows


def tagged(dice: random.Random, count: int) -> list[str]:
    """A capital makes a name; a name right after a name goes on with it."""
    rows = []
    for _ in range(count):
        before = "O"
        for word in words(dice, 6):
            tag = ("B-NAME" if before == "O" else "I-NAME") if dice.random() < 0.4 else "O"
            rows.append(f"{word if tag == 'O' else word.capitalize()}\t{tag}")
            before = tag
        rows.append("")
    return rows


def asked(dice: random.Random, count: int) -> list[str]:
    """The answer is the one word in capitals; where there is none there is no answer."""
    rows = []
    for _ in range(count):
        text, place = words(dice, 10), dice.randrange(10)
        there = dice.random() < 0.8
        text[place] = text[place].upper() if there else text[place]
        start = len(" ".join(text[:place])) + bool(place)
        answers = {"text": [text[place]] * there, "answer_start": [start] * there}
        rows.append(json.dumps({"question": "which", "context": " ".join(text), "answers": answers}))
    return rows


def counted(dice: random.Random, count: int) -> list[str]:
    """Letters one after another, from anywhere on."""
    rows = []
    for _ in range(count):
        start, size = dice.randrange(26), dice.randint(8, 14)
        rows.append(" ".join(string.ascii_lowercase[(start + number) % 26] for number in range(size)))
    return rows


def echoed(dice: random.Random, count: int) -> list[str]:
    """A word that comes again and again: what is hidden stands elsewhere in the line."""
    return [" ".join(words(dice, 1) * dice.randint(6, 12)) for _ in range(count)]


Maker = Callable[[random.Random, int], list[str]]
TOYS: dict[str, tuple[Maker, str, int, float]] = {  # what makes a corpus, its suffix, updates, learning rate
    "classify": (labelled, ".tsv", 180, 3e-3),
    "tag": (tagged, ".conll", 250, 3e-3),
    "answer": (asked, ".jsonl", 200, 3e-3),
    "fill": (echoed, ".txt", 200, 5e-3),
    "spans": (counted, ".txt", 160, 1e-2),  # fill, by T5
    "generate": (counted, ".txt", 120, 1e-2),
}
SMALL = {"width": 32, "layers": 2, "feed_forward": 64, "heads": 4, "max_length": 48, "dropout": 0.0}


def task_config(task: str, folder: Path, model: dict[str, Any] | None = None, **train: Any) -> Config:
    """A run of a task on its toy language, whose corpora are written into `folder`."""
    make, suffix, steps, rate = TOYS["spans" if (model or {}).get("family") == "t5" else task]
    for split, count, seed in (("train", 1000, 1), ("valid", 60, 2), ("test", 60, 3)):
        rows = make(random.Random(seed), count)
        (folder / f"{task}.{split}{suffix}").write_text("\n".join(rows) + "\n", encoding="utf-8")
    corpora = {split: str(folder / f"{task}.{split}{suffix}") for split in ("train", "valid", "test")}
    settings = {
        "steps": steps,
        "tokens_per_batch": 1024,
        "lr": rate,
        "warmup": 20,
        "schedule": "linear",
        "checkpoint_every": steps,
        "threads": 1,
        "precision": "float32",
    }
    return resolve(
        {
            "task": {"name": task, "stride": 8},
            "data": {**corpora, "documents": "line", "leaks": "keep"},
            "text": {"kind": "bpe", "vocabulary": 400},
            "model": {**SMALL, **(model or {})},
            "train": {**settings, **train},
        }
    )
