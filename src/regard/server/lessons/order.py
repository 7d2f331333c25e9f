"""Positional waves: without them attention is blind to order."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.interpret.names import has_positions
from regard.models.attention import self_attention_rows
from regard.models.positions import sinusoid
from regard.server.lessons.given import Given, Values, cell, distance, seeded

OTHER = [2, 1, 0]  # dog bites man, man bites dog
WIDTH = 16
SEED = 9
PLACES = 40


def likeness(places: Tensor, width: int) -> Tensor:
    """PE(p) . PE(q) of all pairs of places: [n,n]."""
    encodings = sinusoid(places, width, torch.float64)
    return encodings @ encodings.T


@cell
def dog(given: Given, waves: bool = False) -> Values:
    """The new vector of “dog” in “dog bites man” and “man bites dog”, with waves added or not."""
    x = torch.randn(3, WIDTH, generator=seeded(SEED))
    places = given(sinusoid, torch.arange(3), WIDTH) if waves else torch.zeros(3, WIDTH)
    straight = given(self_attention_rows, x + places)
    turned = given(self_attention_rows, x[OTHER] + places)
    difference = distance(straight[OTHER], turned)
    numbers = {"first": straight[0, :4], "last": turned[2, :4]}
    return {"width": WIDTH, "seed": SEED, "difference": difference, **numbers}


@cell
def waves(given: Given) -> Values:
    table = given(sinusoid, torch.arange(PLACES), WIDTH)
    series = {f"number {channel}": table[:, channel] for channel in (0, 4, 8)}
    names = {"rows": [f"place {place}" for place in range(8)], "columns": [str(c) for c in range(WIDTH)]}
    slowest = WIDTH - 2  # the last sine
    slow = {"slowest": slowest, "period": 2 * math.pi * 10000 ** (slowest / WIDTH), "count": PLACES}
    return {"width": WIDTH, **slow, "values": table[:8], "places": range(PLACES), "series": series, **names}


@cell
def distances(given: Given) -> Values:
    products = given(likeness, torch.arange(PLACES), WIDTH)
    four = [[f"{place} and {place + 4}", float(products[place, place + 4])] for place in (0, 3, 10, 20, 35)]
    return {"products": products, "places": range(PLACES), "four": four}


@cell
def dropped(given: Given) -> Values | None:
    """The loaded model without positions."""
    if not has_positions(given.task.folder.model):
        return None
    trace = given.trace()
    other = given.trace(interventions=[{"type": "drop_positions"}])
    return {"output": trace.output, "other": other.output, "same": trace.output == other.output}
