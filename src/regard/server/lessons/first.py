"""Attention before anything is learned: given weights, weights from the words alone, and why these differ."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from regard.models.attention import self_attention_columns, self_attention_rows, weights
from regard.server.lessons.given import Given, Values, adam, all_visible, cell, distance, seeded

WORDS = ("Python", "executes", "quickly")
GIVEN_WEIGHTS = torch.tensor([[0.4, 0.4, 0.2], [0.3, 0.6, 0.1], [0.1, 0.1, 0.8]])
EMBEDDINGS = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0], [2.0, 1.0, 0.0]])  # small, to calculate by hand
VISIBLE = all_visible(3, 3)
FITTING_STEPS = 250
SEED = 1


def cycle_products(shares: Tensor) -> tuple[float, float]:
    """a_12 a_23 a_31 and a_21 a_32 a_13: once around the triangle, and once the other way."""
    there = shares[0, 1] * shares[1, 2] * shares[2, 0]
    back = shares[1, 0] * shares[2, 1] * shares[0, 2]
    return float(there), float(back)


@cache  # the longest to compute
def fit_vectors(wanted: Tensor, steps: int = FITTING_STEPS, seed: int = SEED) -> tuple[Tensor, list[float]]:
    """Search X so that softmax(X X^T) is as near to the wanted rows as can be: the rows, error by step."""
    x = torch.randn(3, 3, generator=seeded(seed)).requires_grad_()
    return fit([x], lambda: weights(x, x, VISIBLE, scale=1.0), wanted, steps)


@cache
def fit_projections(
    wanted: Tensor, x: Tensor, steps: int = FITTING_STEPS, seed: int = SEED
) -> tuple[Tensor, list[float]]:
    """Search W_q and W_k so that softmax(QK^T / sqrt(d_k)) gives the wanted rows; X stays as it is."""
    generator = seeded(seed)
    w_q, w_k = (torch.randn(3, 3, generator=generator).requires_grad_() for _ in range(2))
    return fit([w_q, w_k], lambda: weights(x @ w_q, x @ w_k, VISIBLE), wanted, steps)


def fit(
    parameters: list[Tensor], shares: Callable[[], Tensor], wanted: Tensor, steps: int
) -> tuple[Tensor, list[float]]:
    """Adam on the divergence sum_ij a_ij log(a_ij / b_ij) of the wanted rows a from the found rows b."""
    errors: list[float] = []

    def loss() -> Tensor:
        current = shares()
        errors.append(distance(current.detach(), wanted))
        return (wanted * (wanted / current).log()).sum()

    deque(adam(parameters, 0.05, loss, steps), maxlen=0)
    return shares().detach(), errors


def solve(wanted: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """W_q and W_k without any search: q_i . k_j = sqrt(d_k) log a_ij, with k_j the j-th unit vector."""
    d_k = len(wanted)
    queries = d_k**0.5 * wanted.log()
    return torch.linalg.solve(x, queries), torch.linalg.solve(x, torch.eye(d_k))


@cell
def mixture(given: Given) -> Values:
    """z_i = sum_j a_ij x_j with the given weights: [T,S], [S,D] -> [T,D]."""
    return {"words": WORDS, "weights": GIVEN_WEIGHTS, "x": EMBEDDINGS, "z": GIVEN_WEIGHTS @ EMBEDDINGS}


@cell
def basic(given: Given) -> Values:
    """Self-attention without parameters."""
    shares = given(weights, EMBEDDINGS, EMBEDDINGS, VISIBLE, scale=1.0)
    tensors = {"x": EMBEDDINGS, "scores": EMBEDDINGS @ EMBEDDINGS.T, "weights": shares}
    return {"words": WORDS, **tensors, "z": given(self_attention_rows, EMBEDDINGS)}


@cell
def columns(given: Given) -> Values:
    """The same with words in columns."""
    rows = given(self_attention_rows, EMBEDDINGS)
    turned = given(self_attention_columns, EMBEDDINGS.T)
    shares = given(weights, EMBEDDINGS, EMBEDDINGS, VISIBLE, scale=1.0).T
    return {"words": WORDS, "weights": shares, "difference": distance(rows, turned.T)}


@cell
def cycle(given: Given) -> Values:
    products = given(cycle_products, GIVEN_WEIGHTS)
    without = given(cycle_products, given(weights, EMBEDDINGS, EMBEDDINGS, VISIBLE, scale=1.0))
    return {"words": WORDS, "weights": GIVEN_WEIGHTS, "products": products, "without": without}


@cell
def search(given: Given) -> Values:
    """The best rows with X alone and with learned q and k, and their errors by step."""
    alone, errors_alone = given(fit_vectors, GIVEN_WEIGHTS)
    learned, errors_learned = given(fit_projections, GIVEN_WEIGHTS, EMBEDDINGS)
    every = slice(0, FITTING_STEPS, 15)
    errors = {
        "at": range(FITTING_STEPS)[every],
        "alone": errors_alone[every],
        "learned": errors_learned[every],
    }
    last = {"error_alone": errors_alone[-1], "error_learned": errors_learned[-1]}
    constants = {"words": WORDS, "weights": GIVEN_WEIGHTS, "steps": FITTING_STEPS, "seed": SEED}
    return {**constants, **last, "errors": errors, "alone": alone, "learned": learned}


@cell
def solution(given: Given) -> Values:
    w_q, w_k = given(solve, GIVEN_WEIGHTS, EMBEDDINGS)
    shares = given(weights, EMBEDDINGS @ w_q, EMBEDDINGS @ w_k, VISIBLE)
    return {"words": WORDS, "w_q": w_q, "w_k": w_k, "weights": shares}
