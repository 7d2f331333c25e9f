"""What Transformers cost: operations, memory, examples and energy, counted on our own models."""

from __future__ import annotations

import re
from pathlib import Path

from regard.server.lessons.given import EXAMPLE, Given, Values, cell, race
from regard.server.lessons.learning import record
from regard.server.lessons.pretraining import COUNTS, curves

TOKENS_PER_UPDATE = 4096  # recipes/tatoeba.toml
UPDATES = 4500  # where the card does not say it
BASE, BIG, GPT3 = 3.3e18, 2.3e19, 3.14e23  # Vaswani et al. 2017, Table 2; Brown et al. 2020, Table D.1
LAYERS, HEADS, BYTES = 6, 8, 4  # of the paper's encoder
LENGTHS = (100, 300, 1000, 3000, 10_000, 30_000)
MINUTES, WATTS = 64, 15  # of the training of our translator, and of one busy core
GPT3_WATT_HOURS = 1.287e9  # Patterson et al. 2021
BODY = "english"

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def updates(path: Path) -> int:
    """The updates of a training, as the model's card has them."""
    card = path / "README.md"
    match = (
        re.search(r"\| updates \| ([\d,]+) \|", card.read_text(encoding="utf-8")) if card.is_file() else None
    )
    return int(match[1].replace(",", "")) if match else UPDATES


def power(count: float) -> str:
    """4.1 · 10¹⁴, also in a table"""
    digits, _, exponent = f"{count:.1e}".partition("e")
    return f"{digits} · 10{str(int(exponent)).translate(RAISED)}"


def training_operations(parameters: int, tokens: int) -> int:
    """6 N T: forward 2 N T, backward twice that."""
    return 6 * parameters * tokens


@cell
def operations(given: Given) -> Values:
    """Operations of our translator's training, and of larger ones."""
    folder = given.task.folder
    tokens = given(updates, Path(folder.path)) * TOKENS_PER_UPDATE
    ours = given(training_operations, folder.parameters, tokens)
    trainings = (
        (given.name, "2026", ours),
        ("Transformer, base", "2017", BASE),
        ("Transformer, big", "2017", BIG),
        ("GPT-3", "2020", GPT3),
    )
    rows = [[name, year, power(count), f"{count / ours:,.0f}"] for name, year, count in trainings]
    sizes = {"model": given.name, "parameters": folder.parameters, "tokens": tokens, "ours": power(ours)}
    return {**sizes, "base": power(BASE), "times": BASE / ours, "rows": rows}


def weight_gigabytes(words: int) -> float:
    """Of the attention weights of all heads and layers: L H n^2 numbers."""
    return LAYERS * HEADS * words * words * BYTES / 1e9


@cell
def memory(given: Given) -> Values:
    """Memory of the weights by length."""
    short, long = 1000, 10_000
    sizes = {"short": short, "long": long, "layers": LAYERS, "heads": HEADS}
    values = {"short_bytes": given(weight_gigabytes, short), "long_bytes": weight_gigabytes(long)}
    return {**sizes, **values, "places": LENGTHS, "bytes": [weight_gigabytes(each) for each in LENGTHS]}


@cell
def examples(given: Given) -> Values:
    """Exact outputs on learned and on new sentences, by the number of examples (recipes/reversing.py)."""
    by_size = given(record)["by_size"]
    counts = list(by_size)
    seen, new = ([each[key] for each in by_size.values()] for key in ("seen", "new"))
    ends = {"least": counts[0], "most": counts[-1], "seen": seen[0], "best": new[-1]}
    return {**ends, "new_percent": 100 * new[0], "counts": counts, "seen_by_size": seen, "new_by_size": new}


@cell
def energy(given: Given) -> Values:
    """Energy of our training; and the time of one sentence, on this machine."""
    ours = MINUTES / 60 * WATTS
    milliseconds = given(race, {"sentence": lambda: given.task.translate(EXAMPLE)}, 0.3, 3)["sentence"]
    rows = [
        ["the sentence", EXAMPLE],
        ["milliseconds", f"{milliseconds:.0f}"],
        [f"joules, at {WATTS} watts", f"{WATTS * milliseconds / 1000:.2f}"],
    ]
    return {"minutes": MINUTES, "watts": WATTS, "ours": ours, "times": GPT3_WATT_HOURS / ours, "rows": rows}


@cell
def balance(given: Given) -> Values | None:
    """What a pre-trained body is worth, from the lesson about it."""
    if not given.has(BODY):
        return None
    pretrained, random = given(curves, given.with_model(BODY).task)
    return {"pretrained": pretrained[-1], "random": random[-1], "examples": COUNTS[-1]}
