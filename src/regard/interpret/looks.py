"""Readings of a trace as matrices with names on their sides, and what each of them does not mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.errors import UsageError
from regard.interpret.pieces import Pieces
from regard.interpret.readings import entropy, mean_distance, word_attention
from regard.interpret.trace import Trace

MEAN = "mean"  # in place of a head's number
HONEST = {
    "weights": "Where a head looked, not why the model said a word: a head may look at what it then ignores.",
    "mean": "The mean of all heads: a look that no head took, if they look at different things.",
    "value_norm": "The length of what each key gives, a · ‖v W_O‖. Lengths, not shares: rows do not sum to "
    "1, and two gifts may cancel each other out.",
    "rollout": "Looks multiplied through all layers, with half of each layer for the way around it. Values, "
    "norms and feed-forward are not in it, and all heads count alike.",
    "words": "Pieces are merged to words: keys are added up, queries averaged, so that pieces of one word "
    "which look apart come out as one look between.",
}


@dataclass(frozen=True)
class Look:
    """[T,S] with the texts of its rows and columns; `places` are the first pieces of those."""

    values: Tensor
    rows: Sequence[str]
    columns: Sequence[str]
    places: tuple[Sequence[int], Sequence[int]]
    special: tuple[Sequence[int], Sequence[int]]  # rows and columns of no word: begin, end
    honest: Sequence[str]

    def about(self) -> dict[str, Any]:
        """All but the numbers, as JSON."""
        return {
            "rows": list(self.rows),
            "columns": list(self.columns),
            "places": [list(own) for own in self.places],
            "special": [list(own) for own in self.special],
            "honest": list(self.honest),
        }


def look(trace: Trace, kind: str, where: str = "", head: int | str = MEAN, words: bool = False) -> Look:
    """One reading: `weights` or `value_norm` of a head (or the mean of all), or the `rollout` of the run."""
    if kind == "rollout":
        values, sides = trace.rollout(), rollout_sides(trace)
    elif kind in ("weights", "value_norm"):
        values, sides = one_head(trace, kind, where, head), trace.sides(where)
    else:
        raise UsageError(f'there is no reading "{kind}": weights, value_norm, rollout, heads')
    honest = [HONEST["mean" if kind == "weights" and head == MEAN else kind]]
    queries, keys = sides
    rows, columns = queries.shown, keys.shown
    if words:
        values = word_attention(values, queries.groups, keys.groups)
        rows, columns = queries.group_texts, keys.group_texts
        honest.append(HONEST["words"])
    return Look(values, rows, columns, places(sides, words), special(sides, words), honest)


def one_head(trace: Trace, kind: str, where: str, head: int | str) -> Tensor:
    weighted = kind == "value_norm"
    if weighted and f"{where}.weights" in trace and f"{where}.value_norms" not in trace:
        raise UsageError(f"{where}: the lengths of its values are not in this trace")
    if head == MEAN:
        return trace.weights(where, weighted=weighted).mean(dim=0)
    return trace.weights(where, int(head), weighted)


def rollout_sides(trace: Trace) -> tuple[Pieces, Pieces]:
    across = [name for name in trace.attentions if name.endswith(".cross")]
    return trace.sides(across[0] if across else trace.attentions[0])


def places(sides: Sequence[Pieces], words: bool) -> tuple[list[int], list[int]]:
    """The piece that each row and column begins with."""
    first, second = ([own[0] for own in side.groups] if words else list(range(len(side))) for side in sides)
    return first, second


def special(sides: Sequence[Pieces], words: bool) -> tuple[list[int], list[int]]:
    first, second = (
        [n for n, place in enumerate(own) if side.words[place] < 0]
        for side, own in zip(sides, places(sides, words))
    )
    return first, second


def head_numbers(trace: Trace) -> dict[str, Tensor]:
    """[H] for each attention: the entropy of its heads in bits, and how far they look in pieces."""
    found = {}
    for where in trace.attentions:
        weights = trace.weights(where)
        found[f"{where}.entropy"], found[f"{where}.distance"] = entropy(weights), mean_distance(weights)
    return found
