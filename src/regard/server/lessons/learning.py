"""Learning: the record of a small Transformer that says numbers backwards, and the checkpoints of any run."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from regard.resources import BUILTIN
from regard.server.lessons.given import Given, Values, cell
from regard.storage.checkpoint import checkpoint_folder, checkpoint_steps
from regard.storage.files import read_json
from regard.tasks import load

SPOKEN = 11  # ten number words and the end of the text
EARLY, MIDDLE = 0, 3  # of the recorded steps
MOST_CHECKPOINTS = 8
MOST_POINTS = 60  # of a curve


@cache
def record() -> Values:
    """What recipes/reversing.py recorded."""
    return read_json(BUILTIN / "lessons" / "reversing.json")


@cell
def task(given: Given) -> Values:
    """The task, and the loss by update."""
    seen = given(record)
    at, losses = seen["loss"]["at"], seen["loss"]["values"]
    texts = {"source": " ".join(seen["words"]), "target": " ".join(seen["said"])}
    chance = {"choices": SPOKEN, "chance": math.log(SPOKEN)}
    return {**texts, **chance, "first": losses[0], "last": losses[-1], "at": at, "losses": losses}


@cell
def steps(given: Given) -> Values:
    """What was recorded at several steps."""
    seen = given(record)
    names = list(seen["steps"])
    states, target = list(seen["steps"].values()), " ".join(seen["said"])
    right = next(place for place, each in enumerate(states) if each["output"] == target)
    exact = [each["exact"] for each in states]
    # the largest fall from one recorded step to the next
    fall = min(range(1, len(exact)), key=lambda place: exact[place] - exact[place - 1])
    early, middle = states[EARLY], states[MIDDLE]
    return {
        "where": seen["where"],
        "head": seen["head"],
        "words": seen["words"],
        "said": seen["said"],
        "target": target,
        "names": names,
        "at": list(map(int, names)),
        "early": names[EARLY],
        "early_weights": early["weights"],
        "first_right": right,
        "right_at": names[right],
        "middle": names[MIDDLE],
        "middle_output": middle["output"],
        "middle_p": sum(middle["p"]) / len(middle["p"]),
        "tested": seen["tested"],
        "before_name": names[fall - 1],
        "before": exact[fall - 1],
        "after_name": names[fall],
        "after": exact[fall],
        "exact": exact,
    }


@cell
def at_step(given: Given, step: str = "") -> Values:
    """The record of one step."""
    seen = given(record)
    loss = dict(zip(seen["loss"]["at"], seen["loss"]["values"]))
    return {"step": step, "loss": loss[int(step)], **seen["steps"][step]}


# The run of a model that the page has


def thinned(values: list[Any], most: int) -> list[Any]:
    """At most so many, evenly, the last among them."""
    every = max(1, math.ceil(len(values) / most))
    return values[(len(values) - 1) % every :: every]


def run_folder(given: Given) -> Path | None:
    """The run of the model, where checkpoints lie beside it; it may itself be a checkpoint."""
    path = Path(given.task.folder.path)
    folders = (path, path.parent.parent)
    return next(
        (each for each in folders if (each / "checkpoints").is_dir() and checkpoint_steps(each)), None
    )


def losses_of(folder: Path) -> list[tuple[int, float]]:
    """Update and loss, as the run's metrics.jsonl has them."""
    if not (file := folder / "metrics.jsonl").is_file():
        return []
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [(each["step"], each["loss"]) for each in rows if each["kind"] == "train"]


@cell
def run(given: Given) -> Values | None:
    """Loss and checkpoints of the run of the page's model."""
    folder = run_folder(given)
    losses = given(losses_of, folder) if folder else []
    if folder is None or not losses or given.task.folder.task.input != "text":
        return None
    losses = thinned(losses, MOST_POINTS)
    names = list(map(str, thinned(sorted(checkpoint_steps(folder)), MOST_CHECKPOINTS)))
    first, last = (checkpoint(given, name)["output"] for name in (names[0], names[-1]))
    at, values = zip(*losses)
    about = {"count": len(checkpoint_steps(folder)), "text": given.sentence, "same": first == last}
    return {**about, "at": at, "losses": values, "steps": names}


@cell
def checkpoint(given: Given, step: str = "") -> Values:
    """What one checkpoint says, and the probability that it gives its words on average."""
    folder = run_folder(given)
    assert folder is not None
    name = f"checkpoint {step}"
    if name not in given.kept:
        task = given(load, checkpoint_folder(folder, int(step)), "cpu")
        given.kept[name] = task.trace(given.sentence, **given.settings)
    trace = given.kept[name]
    log_p = trace.log_probabilities() if "output" in trace.tokens else []
    sure = [["mean probability of its tokens", f"{math.exp(sum(log_p) / len(log_p)):.3f}"]] if log_p else []
    return {"step": step, "output": trace.output, "rows": [["it says", trace.output], *sure]}
