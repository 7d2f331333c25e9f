"""Queries, keys and values: why three projections and not one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.interpret import Trace
from regard.models.attention import attend, attention_columns, repeat_kv, scores, weights
from regard.server.lessons.first import WORDS
from regard.server.lessons.given import Given, Values, all_visible, cell, distance, seeded
from regard.server.lessons.she import self_attentions

WIDTH = 8
SEED = 4
SHOWN = 12  # words of a figure


def toy() -> tuple[Tensor, Tensor, Tensor]:
    """Three words in rows and two random matrices: x [3,D], two of [D,D]."""
    generator = seeded(SEED)
    x, one, two = (torch.randn(size, WIDTH, generator=generator) for size in (3, WIDTH, WIDTH))
    return x, one * WIDTH**-0.5, two * WIDTH**-0.5


def one_sided(products: Tensor) -> float:
    """mean |e_ij - e_ji| / mean |e_ij| over i != j: 0 where scores are symmetric. [...,T,T]."""
    apart = ~torch.eye(products.shape[-1], dtype=torch.bool)
    difference = (products - products.transpose(-1, -2)).abs()[..., apart]
    return float(difference.mean() / products.abs()[..., apart].mean())


def head_of(trace: Trace, where: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v [H,T,C] and the mask of an attention."""
    q = trace[f"{where}.query"]
    k, v = (repeat_kv(trace[f"{where}.{name}"][None], q[None])[0] for name in ("key", "value"))
    return q, k, v, trace[f"{where}.mask"]


@cell
def one_projection(given: Given) -> Values:
    x, w = toy()[:2]
    return {"width": WIDTH, "seed": SEED, "words": WORDS, "scores": given(scores, x @ w, x @ w)}


@cell
def two_projections(given: Given) -> Values:
    x, w_q, w_k = toy()
    products, same = given(scores, x @ w_q, x @ w_k), given(scores, x @ w_q, x @ w_q)
    measures = {"one": given(one_sided, same), "two": given(one_sided, products)}
    return {"words": WORDS, "scores": products, **measures}


@cell
def learned(given: Given) -> Values | None:
    """Scores of the first self-attention of the loaded model."""
    trace = given.trace()
    if not (names := self_attentions(trace)):
        return None
    q, k, _, _ = head_of(trace, names[0])
    products = given(scores, q, k)
    shown = {"scores": products[0, :SHOWN, :SHOWN], "words": trace.sides(names[0])[0].shown[:SHOWN]}
    return {"asymmetry": given(one_sided, products), "heads": len(q), **shown}


@cell
def keys_as_queries(given: Given) -> Values | None:
    """How much of a word's weight stays with itself in each layer, with q . k as learned and with k . k."""
    trace = given.trace()
    parts = [head_of(trace, name) for name in self_attentions(trace)]
    if not parts:
        return None
    shares = [(given(weights, q, k, mask), given(weights, k, k, mask)) for q, k, _, mask in parts]
    q_k, k_k = ([float(each.diagonal(dim1=-2, dim2=-1).mean()) for each in kind] for kind in zip(*shares))
    return {"q_k": q_k, "k_k": k_k, "difference": (sum(k_k) - sum(q_k)) / len(parts)}


@cell
def keys_and_values(given: Given) -> Values | None:
    """The mean size of the cosine of key and value in each attention, and of random vectors."""
    trace = given.trace()
    if not (names := self_attentions(trace)):
        return None
    pairs = [head_of(trace, name)[1:3] for name in names]
    pairs.append(tuple(torch.randn(2, 2000, pairs[0][0].shape[-1], generator=seeded(SEED))))
    *cosines, chance = [float(F.cosine_similarity(k, v, dim=-1).abs().mean()) for k, v in pairs]
    return {"names": names, "values": cosines, "chance": chance}


@cell
def both_forms(given: Given) -> Values:
    """softmax(QK^T / sqrt(d)) V, with words in rows and in columns."""
    x, w_q, w_k = toy()
    q, k, v = x @ w_q, x @ w_k, x
    rows = given(attend, q[None, None], k[None, None], v[None, None], all_visible(3, 3)[None, None])[0, 0]
    turned = given(attention_columns, q.T, k.T, v.T)
    first = {"words": WORDS, "rows": rows[:, 0], "columns": turned[0]}
    return {"difference": distance(rows, turned.T), "first": first}
