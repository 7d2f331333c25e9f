"""Masks: future positions to minus infinity, and what happens without."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F

from regard.batch import Batch, Tokens
from regard.config import parse_model
from regard.interpret.interventions import InterventionTap, TensorEdit, parse
from regard.interpret.names import causal_side
from regard.models.attention import masked_softmax, scores, visible
from regard.models.families import build
from regard.server.lessons.content import fmt, formula, lines, matrix, table, token
from regard.server.lessons.given import Given, Ledger, seeded
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion

WORDS = ("The", "cat", "sees", "a", "dog")
SEED = 6
TRAINING_STEPS = 100
VOCABULARY = 8  # of random words
LENGTH = 8


def triangle(_: Given, ledger: Ledger) -> LessonStep:
    places = torch.arange(len(WORDS))[None]
    mask = ledger(visible, places, places, causal=True)[0, 0]
    return LessonStep(
        "Who may see whom",
        "A decoder learns to say the next word at every place at once. If the place of “sees” could look at "
        "the words after it, it would only copy the answer. So each word sees itself and the words before "
        "it.",
        NumberQuestion("Of the 25 cells of this matrix, how many may be seen?", int(mask.sum()), 0.01, 0),
        "1 + 2 + 3 + 4 + 5 = 15: the first word sees one, the last sees all five.",
        before=table("The words", ["place", *(str(place) for place in range(5))], [["word", *WORDS]]),
        after=matrix("1 where a word (row) may see a word (column)", mask.float(), WORDS, WORDS, mask=mask),
    )


def infinity(_: Given, ledger: Ledger) -> LessonStep:
    generator = seeded(SEED)
    q, k = (torch.randn(len(WORDS), 4, generator=generator) for _ in range(2))
    products = ledger(scores, q, k)
    products[1] = torch.tensor([2.0, 1.0, 0.0, 3.0, 1.0])
    places = torch.arange(len(WORDS))[None]
    mask = ledger(visible, places, places, causal=True)[0, 0]
    shares = ledger(masked_softmax, products, mask)
    return LessonStep(
        "Minus infinity before the softmax",
        [
            "What must not be seen gets the score −∞ before the softmax, because e to the power of −∞ is 0. "
            "The rest of the row then shares the whole weight of 1.",
            "The row of “cat” has the scores 2, 1, 0, 3, 1. It may see only the first two.",
        ],
        NumberQuestion(
            "How much weight does “cat” give to “The”? (e is about 2.718)", float(shares[1, 0]), 0.02
        ),
        "e² / (e² + e¹) = e / (e + 1) = 0.73. The 3 would have won, but it lies in the future.",
        before=[
            formula("aᵢⱼ = softmaxⱼ(eᵢⱼ if j ≤ i, else −∞)"),
            matrix("Scores, not yet masked", products, WORDS, WORDS, signed=True),
        ],
        after=matrix("Weights, masked", shares, WORDS, WORDS, mask=mask),
        then="Every row still adds up to 1. Setting weights to 0 after the softmax would not do that.",
    )


@cache
def lottery(masked: bool, steps: int = TRAINING_STEPS, seed: int = SEED) -> tuple[float, ...]:
    """Train a small GPT on random words, with its mask or without; the loss of each step, in nats."""
    generator = seeded(seed)
    settings = {"family": "gpt", "width": 32, "layers": 1, "heads": 2, "feed_forward": 64, "dropout": 0.0}
    with torch.random.fork_rng(devices=[]):  # others' dice stay as they lie
        torch.manual_seed(seed)
        model = build(parse_model({**settings, "max_length": LENGTH}), VOCABULARY)
    changes = [] if masked else parse([{"type": "unmask_future"}], model)
    tap = InterventionTap([each for each in changes if isinstance(each, TensorEdit)]) if changes else None
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    places = torch.arange(LENGTH).expand(32, -1)
    losses = []
    for _ in range(steps):
        text = torch.randint(VOCABULARY, (32, LENGTH + 1), generator=generator)
        logits = model(Batch(target=Tokens(text[:, :-1], places)), tap)  # [B,T,V]
        # the last word's answer lies outside what it reads, so only the others count
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), text[:, 1:-1].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    return tuple(losses)


def cheating(_: Given, ledger: Ledger) -> LessonStep:
    honest, cheat = (ledger(lottery, masked) for masked in (True, False))
    shown = list(range(0, TRAINING_STEPS, 10))
    chance = float(torch.tensor(float(VOCABULARY)).log())
    return LessonStep(
        "What happens without a mask",
        f"We train two small language models on texts of random words, {VOCABULARY} words to choose from. "
        f"Nobody can foretell a random word: the best possible loss is log {VOCABULARY} = {chance:.2f}. One "
        "model has its mask, the other does not, so its answer stands among the words it reads.",
        ChoiceQuestion(
            f"What loss does the model without a mask reach after {TRAINING_STEPS} steps?",
            [f"about {chance:.2f}, like the other", "less, but above 1", "below 1: it knows the unknowable"],
            0 if cheat[-1] > chance - 0.1 else 1 if cheat[-1] > 1 else 2,
        ),
        f"{cheat[-1]:.3f}, against {honest[-1]:.2f} with the mask. It has learned to copy the next word. "
        "When it must write by itself there is no next word yet, and it knows nothing.",
        after=lines(
            "Loss on random words",
            "step",
            shown,
            {"with the mask": [honest[i] for i in shown], "without": [cheat[i] for i in shown]},
        ),
    )


def unmasked(given: Given, ledger: Ledger) -> LessonStep | None:
    if causal_side(given.task.folder.model) is None:
        return None
    trace = given.trace(ledger)
    target = {} if trace.meta["task"] == "generate" else {"target": trace.output}
    if not target:
        target = {"target": trace.output.removeprefix(given.sentence)}
    masked = given.trace(ledger, **target)
    other = given.trace(ledger, interventions=[{"type": "unmask_future"}], **target)
    before, after = (sum(each.log_probabilities()) for each in (masked, other))
    return LessonStep(
        "In a model that learned with a mask",
        f"{token(given.name)} says {token(trace.output)} with log p = {fmt(before)} in all. Now we take the "
        "mask of its decoder away and let it read the same words again: every place may see the words that "
        "come after it.",
        ChoiceQuestion(
            "What happens to log p of its own words?",
            ["it rises: it sees the answers", "it hardly changes", "it falls"],
            0 if after > before + 0.05 * abs(before) else 2 if after < before - 0.05 * abs(before) else 1,
        ),
        f"It is {fmt(after)}. This model never learned to copy from the future; to it, words from there are "
        "only something it has not met before."
        if after <= before
        else f"It is {fmt(after)}.",
        after=table(
            "log p of each token",
            ["token", "with the mask", "without"],
            [
                list(row)
                for row in zip(
                    masked.tokens["output"].shown, masked.log_probabilities(), other.log_probabilities()
                )
            ],
            2,
        ),
    )


LESSONS = [
    Lesson(
        "masks",
        "Hiding the future",
        "Future places get −∞ before the softmax. What a model does that sees the answer.",
        (triangle, infinity, cheating, unmasked),
        ("model", "text"),
    )
]
