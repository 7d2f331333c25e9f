"""Queries, keys and values: why three projections and not one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.interpret import Trace
from regard.models.attention import attend, attention_columns, repeat_kv, scores, weights
from regard.server.lessons.content import bars, fmt, formula, matrix, table, token
from regard.server.lessons.first import WORDS
from regard.server.lessons.given import Given, Ledger, all_visible, seeded
from regard.server.lessons.she import self_attentions
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion

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


def on_themselves(shares: Tensor) -> float:
    """How much of a word's weight stays with itself, on average: [...,T,T]."""
    return float(shares.diagonal(dim1=-2, dim2=-1).mean())


def likeness(one: Tensor, other: Tensor) -> float:
    """The mean size of the cosine of two lists of vectors: [...,C]."""
    return float(F.cosine_similarity(one, other, dim=-1).abs().mean())


def head_of(trace: Trace, where: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v [H,T,C] and the mask of an attention."""
    q = trace[f"{where}.query"]
    k, v = (repeat_kv(trace[f"{where}.{name}"][None], q[None])[0] for name in ("key", "value"))
    return q, k, v, trace[f"{where}.mask"]


def one_projection(_: Given, ledger: Ledger) -> LessonStep:
    x, w = toy()[:2]
    products = ledger(scores, x @ w, x @ w)
    return LessonStep(
        "One projection",
        [
            "Suppose that every word had only one projection, y = x W, and that words were compared by it. "
            f"Three words with {WIDTH} random numbers each, and a random W (seed {SEED}).",
            f"“Python” scores “quickly” with {fmt(float(products[0, 2]), 3)}.",
        ],
        NumberQuestion("What does “quickly” score “Python” with?", float(products[2, 0]), 0.0051, 3),
        "The same: y₁ · y₃ = y₃ · y₁. With one projection, I look at you exactly as you look at me.",
        before=formula("eᵢⱼ = yᵢ · yⱼ / √d      y = x W"),
        after=matrix("Scores with one projection", products, WORDS, WORDS, signed=True),
    )


def two_projections(_: Given, ledger: Ledger) -> LessonStep:
    x, w_q, w_k = toy()
    products = ledger(scores, x @ w_q, x @ w_k)
    same = ledger(scores, x @ w_q, x @ w_q)
    return LessonStep(
        "A query and a key",
        [
            "Now a word asks with one vector, its query q, and is found by another, its key k. An adjective "
            "can look for its noun while the noun looks for its verb.",
            "We measure how one-sided the scores are: the mean difference between eᵢⱼ and eⱼᵢ, divided by "
            f"the mean size of a score. With one projection it is {ledger(one_sided, same):.2f}.",
        ],
        ChoiceQuestion(
            "And with two random projections?",
            ["still 0", "above 0, but less than 0.1", "above 0.1"],
            0 if (asymmetry := ledger(one_sided, products)) == 0 else 1 if asymmetry < 0.1 else 2,
        ),
        f"It is {asymmetry:.2f}: who looks and who is looked at are now two things.",
        before=formula("eᵢⱼ = qᵢ · kⱼ / √d      q = x W_q      k = x W_k"),
        after=matrix("Scores with two projections", products, WORDS, WORDS, signed=True),
    )


def in_the_model(given: Given, ledger: Ledger) -> LessonStep | None:
    trace = given.trace(ledger)
    if not self_attentions(trace):
        return None
    where = self_attentions(trace)[0]
    q, k, _, _ = head_of(trace, where)
    products = ledger(scores, q, k)
    asymmetry = ledger(one_sided, products)
    names = trace.sides(where)[0].shown[:SHOWN]
    return LessonStep(
        "In a model that has learned",
        f"The same measure in {token(given.name)}, in the first layer, on {token(given.sentence)} (its W_q "
        "and W_k were learned: it could have made them equal if that were best).",
        ChoiceQuestion(
            "How one-sided are the scores that it learned?",
            ["0: it made both alike", "between 0 and 0.5", "above 0.5"],
            0 if asymmetry == 0 else 1 if asymmetry <= 0.5 else 2,
        ),
        f"{asymmetry:.2f}, the mean of {len(q)} heads: the difference between the two directions, as a share "
        "of the size of a score.",
        after=matrix("Scores of head 0", products[0, :SHOWN, :SHOWN], names, names, signed=True),
    )


def looking_at_oneself(given: Given, ledger: Ledger) -> LessonStep | None:
    trace = given.trace(ledger)
    parts = [head_of(trace, where) for where in self_attentions(trace)]
    if not parts:
        return None
    real = [ledger(on_themselves, ledger(weights, q, k, mask)) for q, k, _, mask in parts]
    alike = [ledger(on_themselves, ledger(weights, k, k, mask)) for _, k, _, mask in parts]
    with_queries, single = sum(real) / len(real), sum(alike) / len(alike)
    names = [f"layer {place}" for place in range(len(parts))]
    return LessonStep(
        "What one projection would do to it",
        [
            "We take away the queries: every word now asks with its own key, k instead of q. All else stays.",
            f"With queries of their own, words keep {with_queries:.2f} of their weight for themselves (mean "
            "of all heads and layers).",
        ],
        ChoiceQuestion(
            "And when they ask with their keys?",
            ["less for themselves", "about the same", "more for themselves"],
            0 if single < with_queries - 0.02 else 2 if single > with_queries + 0.02 else 1,
        ),
        f"{single:.2f}. The product of a vector with itself is its length squared, which is never negative "
        "and hard to beat: a word that asks with its own key finds itself first.",
        after=table(
            "Weight on oneself",
            ["", "q · k, as learned", "k · k, one projection"],
            [[name, *pair] for name, *pair in zip(names, real, alike)],
            2,
        ),
    )


def value(given: Given, ledger: Ledger) -> LessonStep | None:
    trace = given.trace(ledger)
    where = self_attentions(trace)
    if not where:
        return None
    parts = [head_of(trace, each) for each in where]
    cosines = [ledger(likeness, k, v) for _, k, v, _ in parts]
    mean = sum(cosines) / len(cosines)
    chance = ledger(likeness, *torch.randn(2, 2000, parts[0][1].shape[-1], generator=seeded(SEED)))
    return LessonStep(
        "And the value",
        [
            "The key says by what a word is found. The value says what it then gives. A library finds a book "
            "by the label on its back; you do not want to read the label.",
            f"Two random vectors of this size have a cosine of about ±{chance:.2f}. Equal vectors have 1.",
        ],
        ChoiceQuestion(
            "How alike are key and value of the same word in this model? (mean size of their cosine)",
            ["above 0.7: nearly the same", "between 0.3 and 0.7", "below 0.3: as good as unrelated"],
            0 if mean > 0.7 else 1 if mean > 0.3 else 2,
        ),
        f"{mean:.2f}: what a word is found by and what it gives are different numbers.",
        after=bars("Cosine of key and value", where, cosines),
    )


def columns(_: Given, ledger: Ledger) -> LessonStep:
    x, w_q, w_k = toy()
    q, k, v = x @ w_q, x @ w_k, x
    rows = ledger(attend, q[None, None], k[None, None], v[None, None], all_visible(3, 3)[None, None])[0, 0]
    turned = ledger(attention_columns, q.T, k.T, v.T)
    return LessonStep(
        "The whole formula, in both forms",
        "With words in columns the same is written A = softmax(Kᵀ Q / √d) and H = V A. There a query has a "
        "column of weights, not a row.",
        NumberQuestion(
            "What is the largest difference between the two results on our three words?",
            float((rows - turned.T).abs().max()),
            1e-4,
            8,
        ),
        "It is 0 but for rounding: a matter of how it is written down.",
        before=formula("rows:  softmax(Q Kᵀ / √d) V        columns:  V softmax(Kᵀ Q / √d)"),
        after=table(
            "First number of each new vector",
            ["word", "rows", "columns"],
            [[word, *pair] for word, *pair in zip(WORDS, rows[:, 0].tolist(), turned[0].tolist())],
            6,
        ),
    )


LESSONS = [
    Lesson(
        "queries",
        "Queries, keys and values",
        "Why a word has three projections and not one, measured on random numbers and in the loaded model.",
        (one_projection, two_projections, in_the_model, looking_at_oneself, value, columns),
        ("model", "text"),
    )
]
