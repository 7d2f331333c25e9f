"""Attention before anything is learned: given weights, weights from the words alone, and why these differ."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from regard.models.attention import self_attention_columns, self_attention_rows, weights
from regard.server.lessons.content import fmt, formula, lines, matrix, table
from regard.server.lessons.given import Given, Ledger, all_visible, seeded
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion

WORDS = ("Python", "executes", "quickly")
GIVEN_WEIGHTS = torch.tensor([[0.4, 0.4, 0.2], [0.3, 0.6, 0.1], [0.1, 0.1, 0.8]])
EMBEDDINGS = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0], [2.0, 1.0, 0.0]])  # small, to reckon by hand
VISIBLE = all_visible(3, 3)
FITTING_STEPS = 250
SEED = 1


def mix(shares: Tensor, x: Tensor) -> Tensor:
    """z_i = sum_j a_ij x_j: [T,S], [S,D] -> [T,D]."""
    return shares @ x


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
    w_q = torch.randn(3, 3, generator=generator).requires_grad_()
    w_k = torch.randn(3, 3, generator=generator).requires_grad_()
    return fit([w_q, w_k], lambda: weights(x @ w_q, x @ w_k, VISIBLE), wanted, steps)


def fit(parameters: list[Tensor], shares: object, wanted: Tensor, steps: int) -> tuple[Tensor, list[float]]:
    """Adam on the divergence sum_ij a_ij log(a_ij / b_ij) of the wanted rows a from the found rows b."""
    assert callable(shares)
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    errors: list[float] = []
    for _ in range(steps):
        current = shares()
        loss = (wanted * (wanted / current).log()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append(float((current.detach() - wanted).abs().max()))
    return shares().detach(), errors


def solve(wanted: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """W_q and W_k without any search: q_i . k_j = sqrt(d_k) log a_ij, with k_j the j-th unit vector."""
    d_k = len(wanted)
    queries = d_k**0.5 * wanted.log()
    return torch.linalg.solve(x, queries), torch.linalg.solve(x, torch.eye(d_k))


def given_weights(_: Given, ledger: Ledger) -> LessonStep:
    z = ledger(mix, GIVEN_WEIGHTS, EMBEDDINGS)
    return LessonStep(
        "A new vector is a mixture",
        [
            "Attention gives every word a new vector: a mixture of the vectors of all words. For “Python "
            "executes quickly” the weights are given. Each row says how much of every word goes into "
            "one new vector, and adds up to 1.",
            "The vectors here have only three numbers, so that you can reckon by hand.",
        ],
        NumberQuestion("What is the first number of the new vector of “Python”?", float(z[0, 0]), 0.005),
        "0.4 · 1 + 0.4 · 0 + 0.2 · 2 = 0.80: the weights of the first row times the first number of each "
        "word.",
        before=[
            formula("zᵢ = Σⱼ aᵢⱼ xⱼ"),
            matrix("The given weights a", GIVEN_WEIGHTS, WORDS, WORDS),
            vectors("The vectors x", EMBEDDINGS),
        ],
        after=vectors("The new vectors z", z),
    )


def vectors(caption: str, x: Tensor, digits: int = 2) -> dict[str, object]:
    columns = ["word", *(f"number {place + 1}" for place in range(x.shape[1]))]
    return table(caption, columns, [[word, *row.tolist()] for word, row in zip(WORDS, x)], digits)


def weights_from_words(_: Given, ledger: Ledger) -> LessonStep:
    scores = EMBEDDINGS @ EMBEDDINGS.T
    shares = ledger(weights, EMBEDDINGS, EMBEDDINGS, VISIBLE, scale=1.0)
    z = ledger(self_attention_rows, EMBEDDINGS)
    return LessonStep(
        "Weights from the words themselves",
        "Where do weights come from? The simplest way has no parameters: the score of two words is the "
        "product of their vectors. Softmax turns a row of scores into weights: e to the power of each, "
        "divided by their sum.",
        ChoiceQuestion(
            "To which word does “Python” give the most weight now?", WORDS, int(shares[0].argmax())
        ),
        "Its score with itself is its length squared, 1·1 + 0·0 + 2·2 = 5; the others have 2. "
        f"Softmax makes {float(shares[0, 0]):.2f} of it.",
        before=[
            formula("eᵢⱼ = xᵢ · xⱼ      aᵢⱼ = softmaxⱼ(eᵢⱼ)      zᵢ = Σⱼ aᵢⱼ xⱼ"),
            vectors("The vectors x", EMBEDDINGS, 0),
            matrix("The scores e = X Xᵀ", scores, WORDS, WORDS, signed=True),
        ],
        after=[
            matrix("The weights a = softmax(X Xᵀ)", shares, WORDS, WORDS),
            vectors("The new vectors z", z),
        ],
        then="Look at the matrix of scores: it is its own mirror image. That will matter in a moment.",
    )


def two_forms(_: Given, ledger: Ledger) -> LessonStep:
    rows = ledger(self_attention_rows, EMBEDDINGS)
    columns = ledger(self_attention_columns, EMBEDDINGS.T)
    shares = ledger(weights, EMBEDDINGS, EMBEDDINGS, VISIBLE, scale=1.0).T
    apart = float((rows - columns.T).abs().max())
    return LessonStep(
        "Words in rows or words in columns",
        "Some books write one word in each row of X, others one word in each column. Both are common. In "
        "columns, X is in ℝⁿˣᵐ: n numbers for each of m words. The formulas look different; the numbers are "
        "the same, turned on their side.",
        ChoiceQuestion(
            "In the form with columns, A = softmax(Xᵀ X) and H = X A, what must add up to 1?",
            ["each row of A", "each column of A", "all numbers of A together"],
            1,
        ),
        "Column i of H is made with column i of A, so the weights of one word now stand below each other.",
        before=formula("rows:  Z = softmax(X Xᵀ) X        columns:  H = X softmax(Xᵀ X)"),
        after=[
            matrix("A in columns", shares, WORDS, WORDS),
            table("Both forms", ["largest difference between Z and Hᵀ"], [[apart]], 9),
        ],
    )


def cycle(_: Given, ledger: Ledger) -> LessonStep:
    given = ledger(cycle_products, GIVEN_WEIGHTS)
    parameter_free = ledger(cycle_products, ledger(weights, EMBEDDINGS, EMBEDDINGS, VISIBLE, scale=1.0))
    return LessonStep(
        "Can the given weights come from the words alone?",
        [
            "Without parameters, word i scores word j exactly as j scores i. Now go around the triangle of "
            "three words and multiply the weights: a₁₂ · a₂₃ · a₃₁. Then go the other way: a₂₁ · a₃₂ · a₁₃. "
            "Each path has one weight of every row, so what softmax divides by is the same. The scores are "
            "the same too. So both products must be equal.",
            "In the given rows the first product is a₁₂ · a₂₃ · a₃₁ = 0.4 · 0.1 · 0.1 = 0.004.",
        ],
        NumberQuestion("What is the other one, a₂₁ · a₃₂ · a₁₃?", given[1], 0.0001, 4),
        "0.3 · 0.1 · 0.2 = 0.006, and that is not 0.004. So no vectors at all give these rows by softmax(X "
        "Xᵀ).",
        before=matrix("The given weights a", GIVEN_WEIGHTS, WORDS, WORDS),
        after=table(
            "Around the triangle",
            ["weights", "a₁₂ a₂₃ a₃₁", "a₂₁ a₃₂ a₁₃"],
            [["given", *given], ["softmax(X Xᵀ) of the step before", *parameter_free]],
            6,
        ),
        then="The example is a valid mixture. It only cannot be made without parameters.",
    )


def search(_: Given, ledger: Ledger) -> LessonStep:
    alone, errors_alone = ledger(fit_vectors, GIVEN_WEIGHTS)
    learned, errors_learned = ledger(fit_projections, GIVEN_WEIGHTS, EMBEDDINGS)
    off, exact = errors_alone[-1], errors_learned[-1]
    shown = range(0, FITTING_STEPS, 15)
    return LessonStep(
        "Let the machine search",
        f"Perhaps you do not trust the proof. So we let gradient descent search, {FITTING_STEPS} steps "
        f"each, with the random start of seed {SEED}. First it may choose all nine numbers of X freely. "
        "Then X stays as it was, and it may learn two matrices: queries q = x W_q and keys k = x W_k.",
        ChoiceQuestion(
            "How near does softmax(X Xᵀ) come to the given rows, with the best X?",
            [
                "It reaches them",
                "It comes near, but an error stays",
                "No weight is within 0.2 of what it should be",
            ],
            1 if 1e-3 < off < 0.2 else 0 if off <= 1e-3 else 2,
        ),
        f"With X alone one weight stays wrong by {off:.3f}. With learned queries and keys the largest error "
        f"is {fmt(exact)}.",
        before=matrix("The given weights", GIVEN_WEIGHTS, WORDS, WORDS),
        after=[
            lines(
                "Largest error of a weight",
                "step",
                list(shown),
                {
                    "X alone": [errors_alone[place] for place in shown],
                    "learned q and k": [errors_learned[place] for place in shown],
                },
                log=True,
                digits=6,
            ),
            matrix("The best rows with X alone", alone, WORDS, WORDS),
            matrix("The rows with learned q and k", learned, WORDS, WORDS),
        ],
    )


def exactly(_: Given, ledger: Ledger) -> LessonStep:
    w_q, w_k = ledger(solve, GIVEN_WEIGHTS, EMBEDDINGS)
    shares = ledger(weights, EMBEDDINGS @ w_q, EMBEDDINGS @ w_k, VISIBLE)
    return LessonStep(
        "Learned queries and keys reach them",
        [
            "It can even be solved without a search. We want the score of word i for word j to be log aᵢⱼ. "
            "Queries and keys are free to do that, because q of one word and k of another need not agree "
            "with k of the one and q of the other.",
            "The first row of scores is then log 0.4, log 0.4, log 0.2.",
        ],
        NumberQuestion("What is the first weight, after softmax?", float(shares[0, 0]), 0.005),
        "Softmax undoes the logarithm: e^(log 0.4) / (0.4 + 0.4 + 0.2) = 0.4. The given rows add up to 1, so "
        "they come back as they were.",
        before=formula("aᵢⱼ = softmaxⱼ(qᵢ · kⱼ / √dₖ)      qᵢ = xᵢ W_q      kⱼ = xⱼ W_k"),
        after=[
            matrix("W_q, solved", w_q, ["x 1", "x 2", "x 3"], ["q 1", "q 2", "q 3"], signed=True),
            matrix("W_k, solved", w_k, ["x 1", "x 2", "x 3"], ["k 1", "k 2", "k 3"], signed=True),
            matrix("The weights that they give", shares, WORDS, WORDS),
        ],
    )


LESSONS = [
    Lesson(
        "mixing",
        "Attention as a mixture",
        "“Python executes quickly”: given weights, weights without parameters, and why these are not those.",
        (given_weights, weights_from_words, two_forms, cycle, search, exactly),
    )
]
