"""A trace as a page is told of it first: all but its tensors, with texts to show and the best words."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.interpret.pieces import Pieces, visible
from regard.interpret.trace import Trace

BEST = 10  # words of each place


def told(number: str, trace: Trace) -> dict[str, Any]:
    """All but the tensors, for the page: also texts to show, and the best words at each place."""
    content = trace.as_json()
    content["tokens"] = {
        side: {**own, "shown": list(trace.tokens[side].shown)} for side, own in content["tokens"].items()
    }
    content["beam"] = [{**node, "shown": visible(node["text"])} for node in content["beam"]]
    return {"id": number, **content, "steps": steps(trace)}


def steps(trace: Trace) -> list[dict[str, Any]]:
    """What the model says at each place: the choice made, and the best choices with their probabilities."""
    if "logits" not in trace:
        return []
    if "output" in trace.tokens:
        return rows(trace, trace["logits"].softmax(dim=-1), trace.tokens["output"])
    logits, pieces = trace["logits"], trace.tokens["source"]
    match trace.meta.get("head"):
        case "span":
            by_end = logits.softmax(dim=0).T  # [2, places]
            names = dict(enumerate(pieces.shown))
            return [row(end, None, p, names) for end, p in zip(("begins", "ends"), by_end)]
        case "words":
            said = dict(trace.meta.get("chosen", ()))  # only in the gaps
            shares, names = logits.softmax(dim=-1), readable(trace)
            return [row(text, said.get(n), shares[n], names) for n, text in enumerate(pieces.shown)]
    names = dict(enumerate(trace.meta.get("labels", ())))
    places = list(pieces.shown) if len(logits) == len(pieces) else ["the text"] * len(logits)
    shares = logits.sigmoid() if trace.meta.get("many") else logits.softmax(dim=-1)
    return [row(place, int(p.argmax()), p, names) for place, p in zip(places, shares)]


def rows(trace: Trace, shares: Tensor, pieces: Pieces) -> list[dict[str, Any]]:
    names = readable(trace)
    return [row(text, own, p, names) for text, own, p in zip(pieces.shown, pieces.ids, shares)]


def readable(trace: Trace) -> dict[int, str]:
    return {number: visible(text) for number, text in trace.vocabulary.items()}


def row(place: str, own: int | None, shares: Tensor, names: dict[int, str]) -> dict[str, Any]:
    best = shares.topk(min(BEST, len(shares)))
    return {
        "shown": place,
        "id": own,
        "p": None if own is None else float(shares[own]),
        "best": [
            {"id": number, "shown": names.get(number, f"<id {number}>"), "p": p}
            for p, number in zip(best.values.tolist(), best.indices.tolist())
        ],
    }


def pooled(tensor: Tensor, size: int) -> Tensor:
    """At most size x size: the largest number of each field, so that no bright spot is lost."""
    if tensor.dim() < 2 or max(tensor.shape[-2:]) <= size:
        return tensor
    height, width = (min(size, length) for length in tensor.shape[-2:])
    flat = tensor.float().reshape(-1, 1, *tensor.shape[-2:])
    return F.adaptive_max_pool2d(flat, (height, width)).reshape(*tensor.shape[:-2], height, width)
