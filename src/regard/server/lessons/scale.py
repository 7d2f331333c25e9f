"""Why scores are divided by sqrt(d_k)."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.interpret import Trace
from regard.interpret.names import attention_shapes
from regard.models.attention import masked_softmax, scores
from regard.server.lessons.content import formula, lines, table, token
from regard.server.lessons.given import Given, Ledger, all_visible, compare_times, race, seeded
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion

SEED = 5
KEYS = 16
QUERIES = 64
SIZES = (4, 16, 64, 256, 1024)
CLAIM = "“divide by √dₖ to optimize computation time”"
OPTIONS = ("clearly less", "about the same, within a fifth", "clearly more")


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


def without_scale(q: Tensor, k: Tensor) -> Tensor:
    """QK^T and no more: [T,C], [S,C] -> [T,S]."""
    return q @ k.transpose(-1, -2)


def spread(products: Tensor) -> float:
    """The standard deviation of scores."""
    return float(products.std())


def sizes(_: Given, ledger: Ledger) -> LessonStep:
    spreads = {d_k: ledger(spread, ledger(random_scores, d_k, 1.0)) for d_k in SIZES}
    return LessonStep(
        "How large a product becomes",
        "Take a query and a key of random numbers with mean 0 and standard deviation 1. Their product is a "
        f"sum of dₖ terms. With dₖ = 4 the standard deviation of {QUERIES * KEYS} such products is "
        f"{spreads[4]:.2f}, with dₖ = 16 it is {spreads[16]:.2f} (seed {SEED}).",
        NumberQuestion("And with dₖ = 64, as in the paper?", spreads[64], 0.8, 2),
        "Variances add up: a sum of 64 terms of variance 1 has variance 64, so standard deviation √64 = 8. "
        "Dividing by √dₖ brings it back to 1.",
        before=formula("q · k = q₁k₁ + q₂k₂ + … + q_d k_d"),
        after=table(
            "Standard deviation of q · k",
            ["dₖ", "measured", "√dₖ"],
            [[d, s, d**0.5] for d, s in spreads.items()],
            2,
        ),
    )


def gradients(_: Given, ledger: Ledger) -> LessonStep:
    rows = []
    for d_k in SIZES:
        plain, scaled = (ledger(random_scores, d_k, scale) for scale in (1.0, None))
        visible = all_visible(QUERIES, KEYS)
        largest = [float(masked_softmax(each, visible).amax(dim=-1).mean()) for each in (plain, scaled)]
        rows.append([d_k, ledger(softmax_gradient, plain), ledger(softmax_gradient, scaled), *largest])
    ratio = rows[-1][1] / rows[-1][2]
    return LessonStep(
        "Large scores starve the softmax",
        [
            "A model learns by gradients: change a score a little and see how the weights change. When one "
            "score is far above the others, its weight is nearly 1, and small changes of scores do nothing. "
            "Then there is nothing to learn from.",
            f"We measure the size of that gradient for {QUERIES} queries over {KEYS} keys, with the division "
            "by √dₖ and without.",
        ],
        ChoiceQuestion(
            "At dₖ = 1024, how large is the gradient without the division, compared to with it?",
            ["larger", "about the same", "about half of it", "less than a quarter of it"],
            0 if ratio > 1.2 else 1 if ratio > 0.8 else 2 if ratio > 0.25 else 3,
        ),
        f"It is {ratio:.2f} of it: the largest weight of a row is {rows[-1][3]:.2f} on average, so hardly "
        "anything moves any more.",
        after=[
            lines(
                "Size of the softmax's gradient",
                "dₖ",
                list(SIZES),
                {
                    "without the division": [row[1] for row in rows],
                    "divided by √dₖ": [row[2] for row in rows],
                },
                even=True,
            ),
            table(
                "The same in numbers",
                [
                    "dₖ",
                    "gradient, not divided",
                    "gradient, divided",
                    "largest weight, not divided",
                    "divided",
                ],
                rows,
                3,
            ),
        ],
        then="With the division the size of dₖ does not matter. That is the paper's reason (section 3.2.1).",
    )


def timing(_: Given, ledger: Ledger) -> LessonStep:
    generator = seeded(SEED)
    q, k = (torch.randn(512, 64, generator=generator) for _ in range(2))
    times = race({"divided": lambda: scores(q, k), "not divided": lambda: without_scale(q, k)}, 0.2)
    for each in (race, scores, without_scale):
        ledger.note(each)
    answer = compare_times(times["divided"], times["not divided"])
    ratio = times["divided"] / times["not divided"]
    why = [
        "It measured faster at this moment, which one more multiplication cannot cause: other programs "
        "disturbed. Load the lesson again.",
        "It does not save time, for it is one multiplication more for each number.",
        "It costs time, if anything: one multiplication more for each number.",
    ][answer]
    return LessonStep(
        "Does it save time?",
        "A common claim gives another reason. We test it: all scores of 512 queries and 512 keys with dₖ = "
        "64, with the division and without, on this machine, now. Each is timed many times in turn, and the "
        "shortest time counts.",
        ChoiceQuestion("How much time do the scores take with the division?", OPTIONS, answer),
        f"{ratio:.2f} times the time without. {why}",
        after=table(
            "Shortest time", ["scores", "milliseconds"], [[n, 1000 * t] for n, t in times.items()], 3
        ),
        then=(
            "What the division does save is training: with gradients that do not vanish, fewer steps are "
            "needed."
        ),
        claim=CLAIM,
    )


def sharpness(trace: Trace) -> float:
    """The largest weight of a row, mean of all attentions."""
    rows = [trace.weights(where).amax(dim=-1).mean() for where in trace.attentions]
    return float(torch.stack(rows).mean())


def dropped(given: Given, ledger: Ledger) -> LessonStep | None:
    scales = [each.scale for each in attention_shapes(given.task.folder.model).values()]
    if not scales or None in scales:  # nothing is scaled in this model
        return None
    trace = given.trace(ledger)
    other = given.trace(ledger, interventions=[{"type": "drop_scale"}])
    before, after = ledger(sharpness, trace), ledger(sharpness, other)
    same = trace.output == other.output
    return LessonStep(
        "Take it away from a model that learned with it",
        [
            f"{token(given.name)} was trained with the division. We leave it out, in all its attentions, "
            f"and let it read {token(given.sentence)} again.",
            f"With the division the largest weight of a row is {before:.2f} on average.",
        ],
        ChoiceQuestion(
            "Does it still say the same?", ["the same, word for word", "something else"], 0 if same else 1
        ),
        f"Without the division the largest weight is {after:.2f} on average: the softmax has become "
        f"{'sharper' if after > before else 'no sharper'}.",
        after=table(
            "What it says", ["", "output"], [["divided", trace.output], ["not divided", other.output]]
        ),
    )


LESSONS = [
    Lesson(
        "scale",
        "Why divide by √dₖ",
        "Large products starve the softmax of gradient. And a common claim, tested.",
        (sizes, gradients, timing, dropped),
        ("model", "text"),
    )
]
