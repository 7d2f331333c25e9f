"""GPT: what a place can see, surprise and perplexity, writing token by token, and prompts."""

from __future__ import annotations

import math
import random
from typing import Any

from regard.interpret import Trace
from regard.server.lessons.given import Given, LessonUnavailable, Values, cell

NO_GPT = (
    "This lesson needs a model that goes on with a text (GPT), such as stories. Choose one above, or start "
    "the page with it (regard explore -m ...)."
)
PLAIN = "The old man went into his house and sat down at the table."
PROMPT = "English: cat. German: Katze. English: house. German: Haus. English: dog. German:"
SEED = 2
SHOWN = 14  # tokens of a figure
WRITTEN = 16


@cell
def about(given: Given) -> Values:
    """The GPT of the lesson."""
    if given.task.folder.task.name != "generate":
        raise LessonUnavailable(NO_GPT)
    return {"name": given.name, "parameters": given.task.folder.parameters}


def read(given: Given, text: str, **changes: Any) -> Trace:
    """The model reads a text to its end and writes one token."""
    options = {"sample": False, "beam": 1, "max_length": 1}
    trace: Trace = given(given.task.trace, text, decode=options, **changes)
    return trace


def changed_places(one: Trace, other: Trace, name: str, count: int) -> int:
    """At how many of the first `count` places a tensor [T,D] differs."""
    difference = (one[name][:count] - other[name][:count]).abs().amax(dim=-1)
    return int((difference > 1e-5).sum())


@cell
def seen(given: Given) -> Values:
    """Weights of the first head, and which vectors change when the last token does."""
    text = given.sentence
    given.check(text)
    trace = read(given, text)
    where, tokens = trace.attentions[0], trace.tokens["target"]
    last = int(trace.meta["prompt"]) - 1
    change = {"type": "replace_token", "side": "target", "position": last, "text": "a"}
    other = read(given, text, interventions=[change])
    changed = changed_places(trace, other, "decoder.out", last)
    size = min(SHOWN, last + 1)
    figure = {
        "where": where,
        "values": trace.weights(where, 0)[:size, :size],
        "mask": trace[f"{where}.mask"][:size, :size],
        "labels": tokens.shown[:size],
    }
    counts = {"count": last + 1, "before": last, "changed": changed}
    return {**figure, **counts, **beside_bert(given)}


def beside_bert(given: Given) -> Values:
    """The same change in a BERT, which sees both sides."""
    if not given.has("english"):
        return {"bert": False}
    given = given.with_model("english")
    text = f"<mask> {PLAIN}"
    trace = given.trace(text)
    last = len(trace.tokens["source"]) - 2  # before the sign of the end
    change = {"type": "replace_token", "side": "source", "position": last, "text": "a"}
    other = given.trace(text, interventions=[change])
    changed = changed_places(trace, other, "encoder.out", last)
    return {"bert": True, "bert_changed": changed, "bert_before": last}


def surprises(given: Given, text: str) -> tuple[list[str], list[float]]:
    """The tokens of a text and -log p of each, given those before it."""
    score = given(given.task.score, text)
    shown = [each.strip() for each in score.tokens]
    return shown, [-each for each in score.token_log_probabilities]


def perplexity(given: Given, text: str) -> float:
    """e^(mean -log p) of the tokens of a text."""
    values = surprises(given, text)[1]
    return math.exp(sum(values) / len(values))


@cell
def surprise(given: Given) -> Values:
    """-log p of each token of a text."""
    text = given.text if len(given.text.split()) > 3 else PLAIN
    names, values = surprises(given, text)
    names, values = names[:-1] or names, values[:-1] or values  # without the end of the text
    most = max(range(len(values)), key=values.__getitem__)
    order = sorted(range(len(values)), key=values.__getitem__, reverse=True)
    places = sorted({most, *order[1:4], order[-1]})
    options = [f"{names[place]} (token {place + 1})" for place in places]
    mean = sum(values) / len(values)
    question = {"options": options, "answer": places.index(most), "most": names[most]}
    numbers = {"nats": values[most], "p": math.exp(-values[most]), "mean": mean, "perplexity": math.exp(mean)}
    return {"text": text, **question, **numbers, "names": names[:40], "values": values[:40]}


@cell
def shuffled(given: Given) -> Values:
    """The perplexity of a sentence and of its words in another order."""
    words = PLAIN.rstrip(".").split()
    random.Random(SEED).shuffle(words)
    other = f"{' '.join(words)}."
    before, after = perplexity(given, PLAIN), perplexity(given, other)
    rows = [[PLAIN, before], [other, after]]
    return {
        "seed": SEED,
        "other": other,
        "before": before,
        "after": after,
        "ratio": after / before,
        "rows": rows,
    }


@cell
def writes(given: Given) -> Values:
    """The first steps of writing."""
    text = given.sentence
    trace = given(given.task.trace, text, decode={"sample": False, "beam": 1, "max_length": WRITTEN})
    p = [math.exp(each) for each in trace.log_probabilities()]
    shown = trace.tokens["output"].shown[-WRITTEN:]
    rows, so_far = [], text
    for token, each in zip(shown[:5], p[-WRITTEN:]):
        rows.append([so_far, token.strip(), each])
        so_far = f"{so_far} {token.strip()}"
    return {"count": len(shown), "rows": rows}


@cell
def prompt(given: Given) -> Values:
    """A task written as a text to go on with."""
    options = {"sample": False, "beam": 1, "max_length": 8}
    output = given(given.task.trace, PROMPT, decode=options).output.removeprefix(PROMPT)
    parameters = given.task.folder.parameters
    return {
        "text": PROMPT,
        "output": output,
        "knows": output.strip().startswith("Hund"),
        "parameters": parameters,
    }
