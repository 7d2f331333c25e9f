"""The tree of a beam search: every continuation that was looked at, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from torch import Tensor

from regard.generation.search import Candidates

Fate = Literal["kept", "pruned", "finished"]


@dataclass(frozen=True)
class Node:
    """One piece after those of its parent. `score` is the sum of log p so far; `log_p` that of the piece."""

    number: int
    step: int  # from 0
    parent: int  # the number of a node; -1 before the first piece
    token: int
    text: str
    log_p: float
    score: float
    fate: Fate
    best: bool = False  # on the way to the answer

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class BeamTree:
    """Watches the search of one source."""

    def __init__(self, text_of: Callable[[int], str]) -> None:
        self.text_of = text_of
        self.nodes: list[Node] = []
        self.beams: list[int] = []  # the node of each running beam; none at first
        self.step = 0

    def __call__(self, found: Candidates, closing: Tensor, chosen: Tensor, kept: Tensor) -> None:
        """One step; see `BeamSearch.choose`."""
        going_on = {
            int(column): beam
            for beam, (column, score) in enumerate(zip(kept[0].tolist(), chosen[0].tolist()))
            if score > float("-inf")
        }
        after: dict[int, int] = {}
        rows = zip(found.total[0].tolist(), found.log_p[0].tolist(), found.token[0].tolist())
        for column, ((score, log_p, token), beam) in enumerate(zip(rows, found.beam[0].tolist())):
            if score == float("-inf"):
                continue
            fate: Fate = (
                "finished" if bool(closing[0, column]) else "kept" if column in going_on else "pruned"
            )
            parent = self.beams[beam] if self.beams else -1
            number = len(self.nodes)
            text = self.text_of(token)
            self.nodes.append(Node(number, self.step, parent, token, text, log_p, score, fate))
            if column in going_on:
                after[going_on[column]] = number
        self.beams = [after.get(beam, -1) for beam in range(len(kept[0]))]
        self.step += 1

    def told(self, answer: Sequence[int]) -> tuple[Node, ...]:
        """The nodes, with those marked that lead to the answer's pieces (its end included)."""
        way: set[int] = set()
        parent = -1
        for step, token in enumerate(answer):
            own = [n for n in self.nodes if (n.step, n.parent, n.token) == (step, parent, token)]
            if not own:
                break
            parent = own[0].number
            way.add(parent)
        return tuple(replace(node, best=node.number in way) for node in self.nodes)
