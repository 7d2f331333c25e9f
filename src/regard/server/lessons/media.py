"""Pictures and sound: patches and moments instead of tokens, in the built-in models of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from regard.resources import BUILTIN
from regard.server.lessons.given import Given, LessonUnavailable, Values, cell
from regard.server.lessons.pretraining import plain_model

MEDIA = BUILTIN / "lessons" / "media"
PICTURES = ("trousers", "dress", "sneaker", "bag")  # of Fashion-MNIST's test set
SOUND = MEDIA / "four-nine-zero.flac"  # of FSDD's test set
GARMENTS, DIGITS, TEXT = "garments", "spoken-digits", "english"


def picture(name: str) -> Path:
    return MEDIA / f"{name}.png"


def with_garments(given: Given) -> Given:
    if not given.has(GARMENTS):
        raise LessonUnavailable(f"This lesson needs the model {GARMENTS}, which is not here.")
    return given.with_model(GARMENTS)


@cell
def patches(given: Given) -> Values:
    """The numbers of a picture, and the patches that the model cuts it into."""
    given = with_garments(given)
    pixels = np.asarray(Image.open(picture(PICTURES[0])).convert("L")) / 255
    height, width = pixels.shape
    trace = given(given.task.trace, str(picture(PICTURES[0])))
    down, across = trace.meta["input"]["grid"]
    size = height // down
    config = given.task.folder.config
    return {
        "missing": False,
        "pixels": pixels.round(2).tolist(),
        "height": height,
        "width": width,
        "rows": list(map(str, range(height))),
        "columns": list(map(str, range(width))),
        "size": size,
        "across": across,
        "down": down,
        "count": across * down,
        "numbers": size * size,
        "model_width": config.width,
        "layers": config.layers,
        "labels": trace["logits"].shape[-1],
    }


@cell
def garment(given: Given) -> Values:
    """What the model says of a picture, and the weight that each patch gets."""
    given = with_garments(given)
    result = given(given.task.classify, picture(PICTURES[0]))
    ranked = sorted(result.probabilities.items(), key=lambda each: -each[1])
    trace = given(given.task.trace, str(picture(PICTURES[0])))
    where = trace.attentions[-1]
    down, across = trace.meta["input"]["grid"]
    first = trace.meta["input"]["first"]
    weights = given(trace.weights, where).mean(dim=(0, 1))[first : first + down * across]
    options = sorted(name for name, _ in ranked[:5])
    question = {"options": options, "answer": options.index(result.label), "best": result.label}
    bars = {"names": [name for name, _ in ranked[:6]], "values": [p for _, p in ranked[:6]]}
    sizes = {"parameters": given.task.folder.parameters, "labels": len(ranked) - 1, "model": given.name}
    shares = (weights / weights.max()).view(down, across)
    figure = {"layer": where.split(".")[1], "weights": shares, "rows": list(map(str, range(down)))}
    return {**sizes, **question, "p": ranked[0][1], **bars, **figure}


@cell
def shuffled(given: Given) -> Values:
    """What the model says of some pictures with places and without."""
    given = with_garments(given)
    tables: list[list[list[Any]]] = []
    for changes in ([], [{"type": "drop_positions"}]):
        rows = []
        for name in PICTURES:
            trace = given(given.task.trace, str(picture(name)), interventions=changes)
            p = trace["logits"][0].softmax(dim=-1)
            rows.append([name, trace.meta["labels"][int(p.argmax())], float(p.max())])
        tables.append(rows)
    before, after = tables
    same = sum(one[1] == other[1] for one, other in zip(before, after))
    return {"model": given.name, "count": len(PICTURES), "before": before, "after": after, "same": same}


@cell
def sound(given: Given) -> Values | None:
    """What the model of spoken digits writes, and where it looks."""
    if not given.has(DIGITS):
        return None
    given = given.with_model(DIGITS)
    trace = given(given.task.trace, str(SOUND))
    where = trace.cross()
    weights = given(trace.weights, where).mean(dim=0)
    weights = weights / weights.max(dim=-1, keepdim=True).values
    shown = trace.tokens["source"].shown
    about = {"model": given.name, "seconds": trace.meta["input"]["seconds"], "count": len(shown)}
    figure = {"where": where, "values": weights, "rows": trace.query_labels(where), "columns": shown}
    return {**about, "mels": given.task.reader.width, "output": trace.output, **figure}


@cell
def blocks(given: Given) -> Values:
    """How many numbers of some models are in the blocks, and how many in the first and last layers."""
    rows: list[list[Any]] = []
    for name in (GARMENTS, DIGITS, TEXT):
        if not given.has(name):
            continue
        parts = {"blocks": 0, "last": 0, "first": 0}
        for each, tensor in plain_model(given.with_model(name).task).named_parameters():
            start = each.split(".")[0]
            part = {"encoder": "blocks", "decoder": "blocks", "output": "last", "head": "last"}.get(
                start, "first"
            )
            parts[part] += tensor.numel()
        rows.append([name, parts["first"], parts["blocks"], parts["last"]])
    given.note(blocks)
    share = 100 * rows[0][2] / sum(rows[0][1:])
    return {"model": rows[0][0], "share": share, "rows": rows}
