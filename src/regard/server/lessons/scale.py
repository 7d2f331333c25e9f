"""Why scores are divided by sqrt(d_k)."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.interpret.names import attention_shapes
from regard.models.attention import masked_softmax, scores
from regard.server.lessons.given import Given, Values, all_visible, cell, race, seeded

SEED = 5
KEYS = 16
QUERIES = 64
SIZES = (4, 16, 64, 256, 1024)


def random_scores(d_k: int, scale: float | None) -> Tensor:
    """Queries and keys of independent numbers with mean 0 and variance 1: [queries, keys]."""
    generator = seeded(SEED)
    q, k = (torch.randn(count, d_k, generator=generator) for count in (QUERIES, KEYS))
    return scores(q, k, scale=scale)


def softmax_gradient(products: Tensor) -> float:
    """How strongly weights answer to scores: the mean size (Frobenius norm) of da/de, by autograd. [T,S]."""
    products = products.detach().requires_grad_()
    shares = masked_softmax(products, all_visible(*products.shape))
    rows = [
        torch.autograd.grad(share.sum(), products, retain_graph=True)[0] for share in shares.unbind(dim=1)
    ]
    return float(torch.stack(rows, dim=1).flatten(1).norm(dim=1).mean())  # rows: da_ij/de_i of every query i


def spread(products: Tensor) -> float:
    """The standard deviation of scores."""
    return float(products.std())


@cell
def spreads(given: Given) -> Values:
    """The standard deviation of q . k by d_k."""
    by_size = {str(d_k): given(spread, given(random_scores, d_k, 1.0)) for d_k in SIZES}
    rows = [[d_k, by_size[str(d_k)], d_k**0.5] for d_k in SIZES]
    return {"products": QUERIES * KEYS, "seed": SEED, "by_size": by_size, "rows": rows}


@cell
def gradients(given: Given) -> Values:
    """The gradient of the softmax and its largest weight by d_k, without the division and with it."""
    visible, values = all_visible(QUERIES, KEYS), []
    for scale in (1.0, None):
        products = [given(random_scores, d_k, scale) for d_k in SIZES]
        largest = [float(masked_softmax(each, visible).amax(dim=-1).mean()) for each in products]
        values.append({"gradient": [given(softmax_gradient, each) for each in products], "largest": largest})
    plain, scaled = values
    ratio = plain["gradient"][-1] / scaled["gradient"][-1]
    return {
        "queries": QUERIES,
        "keys": KEYS,
        "sizes": SIZES,
        "plain": plain,
        "scaled": scaled,
        "ratio": ratio,
    }


@cell
def timing(given: Given, words: int = 512, d_k: int = 64) -> Values:
    """Multiplications (d_k for each score, one more if it is divided) and milliseconds of all scores."""
    generator = seeded(SEED)
    q, k = (torch.randn(words, d_k, generator=generator) for _ in range(2))
    times = race({"divided": lambda: scores(q, k), "not divided": lambda: q @ k.T}, 0.2)
    given.note(race, scores)
    counts = {"divided": words * words * (d_k + 1), "not divided": words * words * d_k}
    rows = [[name, counts[name], times[name]] for name in times]
    ratio = times["divided"] / times["not divided"]
    return {"words": words, "d_k": d_k, "more": words * words, "ratio": ratio, "rows": rows}


@cell
def dropped(given: Given) -> Values | None:
    """The loaded model without the division: its output, and the largest weight of a row on average."""
    scales = [each.scale for each in attention_shapes(given.task.folder.model).values()]
    if not scales or None in scales:  # nothing is scaled in this model
        return None
    traces = given.trace(), given.trace(interventions=[{"type": "drop_scale"}])
    before, after = (
        float(torch.stack([trace.weights(each).amax(dim=-1).mean() for each in trace.attentions]).mean())
        for trace in traces
    )
    output, other = (trace.output for trace in traces)
    texts = {"output": output, "other": other, "same": output == other}
    return {**texts, "before": before, "after": after, "sharper": after > before}
