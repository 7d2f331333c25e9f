"""What a layer costs: the paper's Table 1 for sizes of one's choice, and our own layers counted and timed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from regard.models.attention import MultiHeadAttention
from regard.models.recurrent import GRU, run_cell
from regard.server.lessons.given import Given, Values, all_visible, cell, race, seeded
from regard.server.lessons.heads import multiplications

KERNEL = 3  # words that a convolution sees
NEAR = 16  # r: words that a restricted self-attention sees
MEASURED = (16, 64, 256, 512)
MEASURED_WIDTH = 256  # at most
SEED = 10


@dataclass(frozen=True)
class Cost:
    layer: str
    operations: int
    sequential: int
    path: int


def layer_costs(n: int, d: int, kernel: int = KERNEL, near: int = NEAR) -> list[Cost]:
    """Table 1 of the paper: n words of width d; `near` words are seen by a restricted attention.

    self-attention  n^2 d    1   1         recurrent   n d^2   n   n
    convolution     k n d^2  1   log_k(n)  restricted  r n d   1   n / r
    """
    near = min(near, n)
    path = max(1, math.ceil(math.log(n, kernel) - 1e-9))
    return [
        Cost("self-attention", n * n * d, 1, 1),
        Cost("recurrent", n * d * d, n, n),
        Cost(f"convolution, k = {kernel}", kernel * n * d * d, 1, path),
        Cost(f"self-attention over r = {near} words", near * n * d, 1, math.ceil(n / near)),
    ]


def layer_multiplications(n: int, d: int) -> dict[str, int]:
    """Of our own layers: attention with its four projections, the six matrices of a GRU, a convolution."""
    attention = multiplications(n, 1, d, d)
    return {
        "self-attention": attention,
        "recurrent": 6 * n * d * d,
        f"convolution, k = {KERNEL}": KERNEL * n * d * d,
    }


@torch.no_grad()
def milliseconds(n: int, d: int) -> dict[str, float]:
    """Our own layers on n random words: the shortest time of a few runs, each."""
    x = torch.randn(1, n, d, generator=seeded(SEED))
    attention = MultiHeadAttention(d, max(1, d // 64), d // max(1, d // 64))
    gru, convolution = GRU(d, d), nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2)
    mask, valid = all_visible(n, n)[None, None], torch.ones(1, n, dtype=torch.bool)
    runs = [
        lambda: attention(*attention.queries_keys_values(x), mask),
        lambda: run_cell(gru, x, valid),
        lambda: convolution(x.transpose(1, 2)),
    ]
    return race(dict(zip(layer_multiplications(n, d), runs)), 0.1, rounds=5)


@cell
def table(given: Given) -> Values:
    """The paper's Table 1, and the multiplications of one self-attention with its projections."""
    n, d = given.words, given.width
    costs = given(layer_costs, n, d)
    rows = [[each.layer, each.operations, each.sequential, each.path] for each in costs]
    full = {
        "projections": 4 * n * d * d,
        "products": 2 * n * n * d,
        "full": given(multiplications, n, 1, d, d),
    }
    best = min(range(3), key=lambda place: costs[place].operations)
    operations = [[each.layer, each.operations] for each in costs[:3]]
    question = {
        "names": [each.layer for each in costs[:3]],
        "best": best,
        "operations": operations,
        "rows": rows,
    }
    relation = "less than" if n < d else "the same as" if n == d else "more than"
    return {"attention": costs[0].operations, **full, **question, "relation": relation}


@cell
def growth(given: Given) -> Values:
    """Operations by length, around n = d."""
    d = given.width
    places = [max(1, round(d * factor)) for factor in (0.125, 0.25, 0.5, 1, 2, 4)]
    costs = [given(layer_costs, n, d) for n in places]
    series = {each.layer: [row[i].operations for row in costs] for i, each in enumerate(costs[0][:3])}
    return {"places": places, "series": series}


@cell
def clock(given: Given) -> Values:
    """Multiplications and milliseconds of our own layers by length."""
    d = max(8, min(given.width, MEASURED_WIDTH) // 8 * 8)
    counts = given(layer_multiplications, MEASURED[-1], d)
    times = [given(milliseconds, n, d) for n in MEASURED]
    given.note(MultiHeadAttention.forward, run_cell, nn.Conv1d.forward)
    names, last = list(counts), times[-1]
    slowest = max(last, key=last.__getitem__)
    lengths = {
        "measured": MEASURED,
        "last": MEASURED[-1],
        "times_longer": MEASURED[-1] // MEASURED[0],
        "width": d,
    }
    question = {"names": names, "most": names.index(max(counts, key=counts.__getitem__))}
    rows = [[name, counts[name], last[name]] for name in names]
    grown = [f"{last[name] / times[0][name]:.0f} times ({name})" for name in names]
    series = {name: [each[name] for each in times] for name in names}
    return {**lengths, **question, "slowest": slowest, "rows": rows, "grown": grown, "series": series}
