"""The decoder: it looks at what it wrote and at the source; then the final linear layer and the softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.interpret import Trace
from regard.interpret.predictions import steps as chosen_words
from regard.server.lessons.content import bars, distinct, fmt, formula, matrix, table, token
from regard.server.lessons.given import Given, Ledger, LessonUnavailable
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion

MOST_OPTIONS = 6


def crossing(given: Given, ledger: Ledger) -> tuple[Trace, str]:
    trace = given.trace(ledger)
    if not any(name.endswith("cross") for name in trace.attentions):
        raise LessonUnavailable(
            "This lesson needs a model whose writer looks at a source (a translator with attention). This "
            "one has no cross-attention; choose another above."
        )
    if not trace.tokens["output"].word_texts:
        raise LessonUnavailable("The model says nothing about this text; type another one above.")
    return trace, trace.cross()


def shapes(given: Given, ledger: Ledger) -> LessonStep:
    trace, where = crossing(given, ledger)
    weights = ledger(trace.weights, where, 0)
    target, source = trace.tokens["target"], trace.tokens["source"]
    layers = sum(name.endswith("cross") for name in trace.attentions)
    stacked = f"The paper stacks six such layers, this model {layers}."
    if where == "decoder.cross":
        stacked = "This recurrent model has that middle part alone."
    return LessonStep(
        "Queries from below, keys and values from the encoder",
        [
            "A decoder layer has three parts: masked self-attention over what was written so far, attention "
            "to the source, and feed-forward. In the middle one, queries come from the decoder; keys and "
            f"values come from the encoder's output. {stacked}",
            f"The source {token(given.sentence)} has {len(source)} tokens. The decoder reads {len(target)}, "
            f"its start and what it says: {token(trace.output)}",
        ],
        NumberQuestion(
            "How many columns has the matrix of weights of this attention?", weights.shape[1], 0.5, 0
        ),
        f"One row for each of the {len(target)} places of the decoder, one column for each of the "
        f"{len(source)} tokens of the source.",
        before=formula("softmax(Q_decoder K_encoderᵀ / √dₖ) V_encoder"),
        after=matrix(f"Weights of {where}, head 0", weights, trace.query_labels(where), source.shown),
    )


def aligned(given: Given, ledger: Ledger) -> LessonStep:
    trace, _ = crossing(given, ledger)
    shares = ledger(trace.alignment_weights)
    output, read = trace.tokens["output"].word_texts, trace.tokens["source"].word_texts
    place = max(range(len(output)), key=lambda each: len(output[each]))
    order = shares[place].argsort(descending=True)[:MOST_OPTIONS].tolist()
    options = sorted(order)
    return LessonStep(
        "Where it looks while it says a word",
        f"When the decoder says {token(output[place])}, it asks the source with a query. We take the "
        "attention of the layer before the last and average its heads, as one does to link words.",
        ChoiceQuestion(
            "Which word of the source gets the most weight then?",
            [distinct(read)[i] for i in options],
            options.index(order[0]),
        ),
        f"It is {token(read[order[0]])}, with {float(shares[place, order[0]]):.2f}. If that is not the word "
        "you would have chosen: nobody taught the model these links; they are only where it found it useful "
        "to look.",
        after=matrix("Words written (rows) and words read (columns)", shares, output, read),
    )


def cross_key(trace: Trace) -> Tensor:
    name = "decoder.cross.key" if "decoder.cross.key" in trace else "decoder.0.cross.key"
    return trace[name]


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference of two numbers at the same place."""
    return float((one - other).abs().max())


def once(given: Given, ledger: Ledger) -> LessonStep:
    trace, _ = crossing(given, ledger)
    first = trace.tokens["output"].word_texts[0]
    other = given.trace(ledger, target=first)
    difference = ledger(apart, cross_key(trace), cross_key(other))
    return LessonStep(
        "Computed once",
        "The decoder writes one word after the other, and each time it looks at the source anew. We let it "
        f"write only {token(first)} instead of the whole, and compare the keys of the source.",
        ChoiceQuestion(
            "Do the source's keys change with what was written?", ["yes", "no"], 1 if difference < 1e-5 else 0
        ),
        f"Largest difference: {fmt(difference)}. Keys and values of the source depend on the source alone, "
        "so a program computes them once and keeps them.",
    )


def later_words(given: Given, ledger: Ledger) -> LessonStep:
    trace, _ = crossing(given, ledger)
    original = given.trace(ledger, target=trace.output)
    last = len(original.tokens["target"]) - 1
    change = {"type": "replace_token", "side": "target", "position": last, "text": "a"}
    other = given.trace(ledger, target=trace.output, interventions=[change])
    difference = ledger(apart, original["logits"][:last], other["logits"][:last])
    return LessonStep(
        "Later words change nothing before them",
        f"We replace the last token that the decoder reads, {len(original.tokens['target'])} tokens in all, "
        "by another one. Its self-attention is masked.",
        ChoiceQuestion(
            "Do the numbers at the places before it change?",
            ["yes, a little", "no, not at all"],
            1 if difference < 1e-5 else 0,
        ),
        f"Largest difference of all {original['logits'][:last].numel():,} logits before it: {fmt(difference)}"
        ". That is why a whole sentence can be learned in one go: each place behaves as if the rest were not "
        "written yet.",
    )


# The final linear layer and the softmax


def place_of(given: Given, trace: Trace) -> int:
    """The first place where the model chose something: behind a prompt, at a gap, else the first."""
    mask = given.task.folder.source.mask
    if "output" in trace.tokens:
        return max(0, int(trace.meta.get("prompt") or 1) - 1)
    ids = trace.tokens["source"].ids
    return ids.index(mask) if trace.meta.get("head") in (None, "words") and mask in ids else 0


def answers(given: Given, ledger: Ledger) -> tuple[Trace, list[dict[str, Any]], int]:
    trace = given.trace(ledger)
    if trace.meta.get("head") == "span":
        raise LessonUnavailable(
            "This model points at the beginning and end of an answer; choose one that says words or labels."
        )
    return trace, ledger(chosen_words, trace), place_of(given, trace)


def logits(given: Given, ledger: Ledger) -> LessonStep:
    trace, rows, place = answers(given, ledger)
    rest, many = trace["logits"].shape
    width = given.task.folder.config.width
    options = sorted({rest, width, many, 10_000})
    return LessonStep(
        "A number for every word",
        f"{token(given.name)} reads {token(given.sentence)} to its end. At the top, every place has a "
        f"vector of {width} numbers. One last matrix turns it into logits: one number for each answer there "
        f"is. With a common vocabulary these are 10,000 words.",
        ChoiceQuestion(
            "How many logits does this model compute at each place?",
            [f"{each:,}" for each in options],
            options.index(many),
        ),
        f"As many as it has words (or labels) to choose from: {many:,}. The matrix has {width} · {many:,} = "
        f"{width * many:,} numbers.",
        before=formula("logits = x W"),
        after=table(
            "The largest logits at this place",
            ["answer", "logit"],
            [[each["shown"], float(trace["logits"][place, each["id"]])] for each in rows[place]["best"][:5]],
            3,
        ),
    )


def ratio(given: Given, ledger: Ledger) -> LessonStep:
    trace, rows, place = answers(given, ledger)
    one, two = rows[place]["best"][:2]
    high, low = (float(trace["logits"][place, each["id"]]) for each in (one, two))
    many = bool(trace.meta.get("many"))
    times = math.exp(high - low) if not many else one["p"] / two["p"]
    return LessonStep(
        "From logits to probabilities",
        f"The two largest logits are {fmt(high)} for {token(one['shown'])} and {fmt(low)} for "
        f"{token(two['shown'])}. They are {high - low:.2f} apart. Softmax takes e to the power of each, and "
        "divides by the sum of all.",
        NumberQuestion("How many times as probable is the first? (e is about 2.718)", times, 0.2 * times, 2),
        f"e^{high - low:.2f} = {times:.2f}: what softmax divides by is the same for both, so only the "
        "difference counts.",
        before=formula("pᵢ = e^lᵢ / Σⱼ e^lⱼ"),
        after=bars(
            "Probabilities at this place",
            [each["shown"] for each in rows[place]["best"][:8]],
            [each["p"] for each in rows[place]["best"][:8]],
            4,
        ),
    )


def sum_of(given: Given, ledger: Ledger) -> LessonStep:
    trace, rows, place = answers(given, ledger)
    shares = torch.softmax(trace["logits"][place], dim=-1)
    best = sum(each["p"] for each in rows[place]["best"][:5])
    return LessonStep(
        "All of them together",
        f"The five best answers at this place have {best:.3f} of the probability together.",
        NumberQuestion(f"How much have all {len(shares):,} together?", float(shares.double().sum()), 0.01, 4),
        f"1, always. The other {max(0, len(shares) - 5):,} share {max(0.0, 1 - best):.3f}.",
        functions=["torch.softmax"],
        after=bars(
            "The five best and the rest",
            [*(each["shown"] for each in rows[place]["best"][:5]), "all others"],
            [*(each["p"] for each in rows[place]["best"][:5]), max(0.0, 1 - best)],
            4,
        ),
    )


def every_step(given: Given, ledger: Ledger) -> LessonStep:
    trace, rows, first = answers(given, ledger)
    shown = rows[first:]
    sure = [each["best"][0]["p"] for each in shown]
    least = min(range(len(shown)), key=sure.__getitem__)
    options = sorted({least, *range(0, len(shown), max(1, len(shown) // MOST_OPTIONS))})
    names = [f"{place + 1}: {shown[place]['shown']}" for place in options]
    writes = "output" in trace.tokens
    return LessonStep(
        "A word at every time step",
        [
            "At each place one word is chosen, and the decoder goes on from it. This is what came out: "
            f"{token(trace.output)}"
            if writes
            else f"Every place has its own softmax. The answer: {token(trace.output)}",
        ],
        ChoiceQuestion(
            "At which of these places is the model least sure of its best answer?",
            names,
            options.index(least),
        ),
        f"There the best answer has only {sure[least]:.3f}.",
        after=table(
            "The best two at each place",
            ["place", "best", "p", "second", "p of it"],
            [
                [
                    place + 1,
                    each["best"][0]["shown"],
                    each["best"][0]["p"],
                    each["best"][1]["shown"],
                    each["best"][1]["p"],
                ]
                for place, each in enumerate(shown[:30])
            ],
            3,
        ),
    )


LESSONS = [
    Lesson(
        "decoder",
        "The decoder and cross-attention",
        "It looks at what it wrote and at the source. On your sentence, in the loaded model.",
        (shapes, aligned, once, later_words),
        ("model", "text"),
    ),
    Lesson(
        "softmax",
        "The last layer: from numbers to a word",
        "Logits over the vocabulary, probabilities, and a word at every time step.",
        (logits, ratio, sum_of, every_step),
        ("model", "text"),
    ),
]
