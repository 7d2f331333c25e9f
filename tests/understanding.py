"""Tiny models that understand: trained in seconds on made-up corpora whose rule is known."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.config import Config, resolve

NOISE = ["ba", "be", "bi", "da", "de", "di", "fa", "fe", "fi", "ga"]
MOODS = {"lala": "happy", "buhu": "sad", "grr": "angry"}  # one such word decides what a text is
COLOURS = ["red", "blue"]  # a text has the labels whose words stand in it
FIRST, LAST, PLACES = ["Ana", "Bo", "Cleo"], ["Smit", "Jon", "Kuhl"], ["Oslo", "Rom", "Bern"]
SIZES = {  # layers, width, steps, rate, tokens a batch
    "classify": (1, 64, 150, 5e-3, 256),
    "many": (2, 64, 300, 2e-3, 256),
    "tag": (1, 32, 120, 5e-3, 256),
    "answer": (2, 32, 400, 1e-2, 512),
}
CUE = "zu"  # the word behind it is the answer


def noise(dice: random.Random, most: int) -> list[str]:
    return dice.choices(NOISE, k=dice.randint(1, most))


def mood(dice: random.Random) -> tuple[str, str]:
    words = noise(dice, 3)
    key = dice.choice(list(MOODS))
    words.insert(dice.randint(0, len(words)), key)
    return " ".join(words), MOODS[key]


def colours(dice: random.Random) -> tuple[str, str]:
    own = [colour for colour in COLOURS if dice.random() < 0.5]
    words = noise(dice, 2) + own
    dice.shuffle(words)
    return " ".join(words), ",".join(own)


def names(dice: random.Random) -> list[tuple[str, str]]:
    """Words and tags: a first name with or without a last one, places, other words."""
    found: list[tuple[str, str]] = []
    for _ in range(dice.randint(1, 5)):
        kind = dice.random()
        if kind < 0.3:
            found.append((dice.choice(FIRST), "B-PER"))
            found += [(dice.choice(LAST), "I-PER")] if dice.random() < 0.6 else []
        elif kind < 0.5:
            found.append((dice.choice(PLACES), "B-LOC"))
        found.append((dice.choice([*NOISE, ",", "."]), "O"))
    return found


def asked(dice: random.Random) -> dict[str, object]:
    """Where nothing can be answered, the cue is missing."""
    before, after = noise(dice, 13)[1:], noise(dice, 12)
    question = f"{dice.choice(['fu', 'ko'])} {CUE} ?"
    if dice.random() < 0.3:
        return {"question": question, "context": " ".join(before + after), "answers": []}
    context = " ".join([*before, CUE, *after])
    start = len(" ".join([*before, CUE])) + 1
    return {
        "question": question,
        "context": context,
        "answers": [{"text": after[0], "answer_start": start}],
    }


Make = Callable[[random.Random], str]


def write(path: Path, make: Make, count: int, seed: int) -> str:
    dice = random.Random(seed)
    path.write_text("".join(make(dice) for _ in range(count)), encoding="utf-8")
    return str(path)


def conll(dice: random.Random) -> str:
    return "".join(f"{word}\t{tag}\n" for word, tag in names(dice)) + "\n"


CORPORA: dict[str, tuple[str, Make]] = {
    "classify": ("tsv", lambda dice: "\t".join(mood(dice)) + "\n"),
    "many": ("tsv", lambda dice: "\t".join(colours(dice)) + "\n"),
    "tag": ("conll", conll),
    "answer": ("jsonl", lambda dice: json.dumps(asked(dice)) + "\n"),
}


def config(folder: Path, corpus: str) -> Config:
    layers, width, steps, rate, tokens = SIZES[corpus]
    ending, make = CORPORA[corpus]
    task = "classify" if corpus == "many" else corpus
    paths = {
        split: write(folder / f"{split}.{ending}", make, count, seed)
        for seed, (split, count) in enumerate({"train": 1500, "valid": 30, "test": 40}.items())
    }
    return resolve(
        {
            "task": {"name": task, "multi_label": corpus == "many", "stride": 4, "longest_answer": 5},
            "data": {**paths, "leaks": "keep"},
            "text": {"kind": "word", "vocabulary": 400},
            "model": {
                "family": "bert",
                "width": width,
                "layers": layers,
                "heads": 2,
                "feed_forward": 64,
                "dropout": 0.0,
                "max_length": 32,
            },
            "train": {
                "steps": steps,
                "lr": rate,
                "schedule": "linear",
                "betas": [0.9, 0.95],
                "warmup": 20,
                "tokens_per_batch": tokens,
                "label_smoothing": 0.0,
                "log_every": 50,
                "checkpoint_every": steps,
                "threads": 1,
            },
        }
    )


_PLACE = TemporaryDirectory(prefix="regard-understanding-")  # goes away with the process


@cache
def model(corpus: str) -> Path:
    """The folder of a trained model, its corpora beside it; trained when a test first asks for it."""
    import torch

    from regard.training import train

    place = Path(_PLACE.name) / corpus
    place.mkdir()
    threads = torch.get_num_threads()
    try:
        train(config(place, corpus), place / "model")
    finally:
        torch.set_num_threads(threads)
    return place / "model"
