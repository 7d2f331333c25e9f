"""Positional waves: without them attention is blind to order."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.interpret.names import has_positions
from regard.models.attention import self_attention_rows
from regard.models.positions import sinusoid
from regard.server.lessons.content import fmt, formula, lines, matrix, table, token
from regard.server.lessons.given import Given, Ledger, seeded
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion

WORDS = ("dog", "bites", "man")
OTHER = (2, 1, 0)  # man bites dog
WIDTH = 16
SEED = 9
PLACES = 40
CHANNELS = (0, 4, 8)
CLOSE = 1e-5


def words() -> Tensor:
    return torch.randn(len(WORDS), WIDTH, generator=seeded(SEED))


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference of two numbers at the same place."""
    return float((one - other).abs().max())


def blind(_: Given, ledger: Ledger) -> LessonStep:
    x, order = words(), list(OTHER)
    straight = ledger(self_attention_rows, x)
    turned = ledger(self_attention_rows, x[order])
    difference = ledger(apart, straight[order], turned)
    return LessonStep(
        "A dog bites a man",
        "“dog bites man” and “man bites dog” are the same words in another order. We give each word a "
        f"random vector of {WIDTH} numbers (seed {SEED}) and let attention mix them, once in each order.",
        ChoiceQuestion(
            "Is the new vector of “dog” different in the two sentences?",
            ["yes", "no, it is the same"],
            1 if difference < CLOSE else 0,
        ),
        f"The largest difference is {fmt(difference)}. A sum does not know in which order its terms came: "
        "attention alone sees a bag of words. So do the dense layers, which look at one word at a time.",
        after=table(
            "First numbers of the new vector of “dog”",
            ["in", "1", "2", "3", "4"],
            [["dog bites man", *straight[0, :4].tolist()], ["man bites dog", *turned[2, :4].tolist()]],
            4,
        ),
    )


def waves(_: Given, ledger: Ledger) -> LessonStep:
    table_of = ledger(sinusoid, torch.arange(PLACES), WIDTH)
    return LessonStep(
        "Waves that tell the place",
        [
            "So the place is written into the vector: waves are added to it, fast ones in the first numbers "
            "and slow ones in the last. Even numbers have the sine, odd ones the cosine.",
            "At place 0 all sines are sin 0 = 0.",
        ],
        NumberQuestion("What is number 1 (the first cosine) at place 0?", float(table_of[0, 1]), 0.01),
        "cos 0 = 1, whatever the wave.",
        before=formula("PE(pos, 2i) = sin(pos / 10000^(2i/D))      PE(pos, 2i+1) = cos(pos / 10000^(2i/D))"),
        after=[
            lines(
                f"Some waves for D = {WIDTH}",
                "place",
                list(range(PLACES)),
                {f"number {c}": table_of[:, c].tolist() for c in CHANNELS},
            ),
            matrix(
                "Places 0 to 7, all numbers",
                table_of[:8],
                [f"place {p}" for p in range(8)],
                [str(c) for c in range(WIDTH)],
                signed=True,
            ),
        ],
    )


def seeing(_: Given, ledger: Ledger) -> LessonStep:
    x, order = words(), list(OTHER)
    places = ledger(sinusoid, torch.arange(3), WIDTH)
    straight = ledger(self_attention_rows, x + places)
    turned = ledger(self_attention_rows, x[order] + places)
    difference = ledger(apart, straight[order], turned)
    return LessonStep(
        "The same sentences with waves",
        "Now we add the waves of places 0, 1 and 2 to the words, in both orders, and mix again.",
        ChoiceQuestion(
            "Is the new vector of “dog” different now?",
            ["yes", "no, it is the same"],
            0 if difference > CLOSE else 1,
        ),
        f"The largest difference is {fmt(difference)}. “dog” at place 0 and “dog” at place 2 are no longer "
        "the same.",
        before=formula("xᵢ + PE(i)"),
        after=table(
            "First numbers of the new vector of “dog”",
            ["in", "1", "2", "3", "4"],
            [["dog bites man", *straight[0, :4].tolist()], ["man bites dog", *turned[2, :4].tolist()]],
            4,
        ),
    )


def likeness(places: Tensor, width: int) -> Tensor:
    """PE(p) . PE(q) of all pairs of places: [n,n]."""
    encodings = sinusoid(places, width, torch.float64)
    return encodings @ encodings.T


def distance(_: Given, ledger: Ledger) -> LessonStep:
    products = ledger(likeness, torch.arange(PLACES), WIDTH)
    one, two = float(products[3, 7]), float(products[20, 24])
    return LessonStep(
        "Distance can be read off",
        "The product of the waves of two places says how alike these places are. For places 3 and 7, four "
        f"apart, it is {fmt(one, 3)}.",
        NumberQuestion("What is it for places 20 and 24?", two, 0.02, 3),
        "The same. sin a sin b + cos a cos b = cos(a − b): only the distance counts. So “the word before me” "
        "looks alike everywhere in a text, and attention can learn it once.",
        after=[
            lines("PE(0) · PE(k)", "distance k", list(range(PLACES)), {"product": products[0].tolist()}),
            table(
                "Four apart",
                ["places", "product"],
                [[f"{p} and {p + 4}", float(products[p, p + 4])] for p in (0, 3, 10, 20, 35)],
                6,
            ),
        ],
    )


def dropped(given: Given, ledger: Ledger) -> LessonStep | None:
    if not has_positions(given.task.folder.model):
        return None
    trace = given.trace(ledger)
    other = given.trace(ledger, interventions=[{"type": "drop_positions"}])
    same = trace.output == other.output
    return LessonStep(
        "Take the order away from a model",
        f"{token(given.name)} reads {token(given.sentence)} and says {token(trace.output)} as its answer. "
        "We take all positions away, so that it reads a bag of words.",
        ChoiceQuestion(
            "Does it still say the same?", ["the same, word for word", "something else"], 0 if same else 1
        ),
        "Here it makes no difference."
        if same
        else "It does not: the words are there, but who did what is lost.",
        after=table(
            "What it says", ["", "output"], [["with order", trace.output], ["without", other.output]]
        ),
    )


LESSONS = [
    Lesson(
        "positions",
        "Positional waves",
        "Attention is blind to order: permute and compare. Then sines and cosines tell every place.",
        (blind, waves, seeing, distance, dropped),
        ("model", "text"),
    )
]
