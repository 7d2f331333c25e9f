"""The traces that were asked for last, and what a page is told of one first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import Any

from torch import Tensor

from regard.errors import UsageError
from regard.trace import Pieces, Trace
from regard.trace.pieces import visible

MOST = 16  # traces
MOST_BYTES = 1 << 30
BEST = 10  # words of each place


class Traces:
    """Kept in memory alone; the one that was not looked at for longest goes first."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.kept: OrderedDict[str, Trace] = OrderedDict()
        self.lock = Lock()

    def get(self, number: str) -> Trace | None:
        with self.lock:
            if number in self.kept:
                self.kept.move_to_end(number)
            return self.kept.get(number)

    def require(self, number: str) -> Trace:
        found = self.get(number)
        if found is None:
            raise UsageError("this trace is not kept any more; ask for it again")
        return found

    def add(self, number: str, trace: Trace) -> None:
        with self.lock:
            self.kept[number] = trace
            while len(self.kept) > 1 and (len(self.kept) > self.most or self.bytes() > self.most_bytes):
                self.kept.popitem(last=False)

    def bytes(self) -> int:
        return sum(t.nbytes for trace in self.kept.values() for t in trace.tensors.values())


def number_of(key: str) -> str:
    """The same request has the same number, so that a page that is loaded again costs nothing."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:24]


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
            return rows(trace, logits.softmax(dim=-1), pieces)
    names = dict(enumerate(trace.meta.get("labels", ())))
    places = list(pieces.shown) if len(logits) == len(pieces) else ["the text"] * len(logits)
    shares = logits.sigmoid() if trace.meta.get("many") else logits.softmax(dim=-1)
    return [row(place, int(p.argmax()), p, names) for place, p in zip(places, shares)]


def rows(trace: Trace, shares: Tensor, pieces: Pieces) -> list[dict[str, Any]]:
    names = {number: visible(text) for number, text in trace.vocabulary.items()}
    return [row(text, own, p, names) for text, own, p in zip(pieces.shown, pieces.ids, shares)]


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
