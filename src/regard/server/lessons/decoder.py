"""The decoder: it looks at what it wrote and at the source; then the final linear layer and the softmax."""

from __future__ import annotations

import math

from regard.interpret import Trace
from regard.interpret.predictions import steps as chosen_words
from regard.server.lessons.given import Given, LessonUnavailable, Values, cell, distance, distinct

MOST_OPTIONS = 6
NO_CROSS = (
    "This lesson needs a model whose writer looks at a source (a translator with attention). This "
    "one has no cross-attention; choose another above."
)
NO_WORDS = "This model points at the beginning and end of an answer; choose one that says words or labels."


def crossing(given: Given) -> Trace:
    """A run with attention to a source."""
    trace = given.trace()
    if not any(name.endswith("cross") for name in trace.attentions):
        raise LessonUnavailable(NO_CROSS)
    if not trace.tokens["output"].word_texts:
        raise LessonUnavailable("The model says nothing about this text; type another one above.")
    return trace


@cell
def cross(given: Given) -> Values:
    """The first head of the attention to the source."""
    trace = crossing(given)
    where = trace.cross()
    weights = given(trace.weights, where, 0)
    target, source = trace.tokens["target"], trace.tokens["source"]
    layers = sum(name.endswith("cross") for name in trace.attentions)
    sizes = {"where": where, "layers": layers, "recurrent": where == "decoder.cross", "output": trace.output}
    lengths = {"source": len(source), "target": len(target), "width": weights.shape[1]}
    return {**sizes, **lengths, "values": weights, "rows": trace.query_labels(where), "columns": source.shown}


@cell
def alignment(given: Given) -> Values:
    """Where the decoder looks while it says its longest word."""
    trace = crossing(given)
    shares = given(trace.alignment_weights)
    output, read = trace.tokens["output"].word_texts, trace.tokens["source"].word_texts
    place = max(range(len(output)), key=lambda each: len(output[each]))
    order = shares[place].argsort(descending=True)[:MOST_OPTIONS].tolist()
    options, best = sorted(order), order[0]
    question = {"options": [distinct(read)[each] for each in options], "answer": options.index(best)}
    words = {"word": output[place], "best": read[best], "weight": shares[place, best]}
    return {**question, **words, "values": shares, "rows": output, "columns": read}


@cell
def source_keys(given: Given) -> Values:
    """Keys of the source, after the whole output and after its first word."""
    trace = crossing(given)
    first = trace.tokens["output"].word_texts[0]
    name = "decoder.cross.key" if "decoder.cross.key" in trace else "decoder.0.cross.key"
    return {"first": first, "difference": distance(trace[name], given.trace(target=first)[name])}


@cell
def last_token(given: Given) -> Values:
    """Logits before the last token of the target, when this is replaced."""
    trace = crossing(given)
    original = given.trace(target=trace.output)
    last = len(original.tokens["target"]) - 1
    change = {"type": "replace_token", "side": "target", "position": last, "text": "a"}
    other = given.trace(target=trace.output, interventions=[change])
    before = original["logits"][:last]
    difference = distance(before, other["logits"][:last])
    return {"tokens": last + 1, "logits": before.numel(), "difference": difference}


def first_choice(given: Given, trace: Trace) -> int:
    """The first place where the model chose something: behind a prompt, at a gap, else the first."""
    mask = given.task.folder.source.mask
    if "output" in trace.tokens:
        return max(0, int(trace.meta.get("prompt") or 1) - 1)
    ids = trace.tokens["source"].ids
    return ids.index(mask) if trace.meta.get("head") in (None, "words") and mask in ids else 0


@cell
def answers(given: Given) -> Values:
    """Logits and probabilities where the model first chooses, and the best two at every place."""
    trace = given.trace()
    if trace.meta.get("head") == "span":
        raise LessonUnavailable(NO_WORDS)
    rows, place = given(chosen_words, trace), first_choice(given, trace)
    best, logits, width = rows[place]["best"], trace["logits"][place], given.task.folder.config.width
    length, many = trace["logits"].shape
    counts = sorted({length, width, many, 10_000})
    question = {"counts": [f"{each:,}" for each in counts], "answer": counts.index(many)}
    high, low = (float(logits[each["id"]]) for each in best[:2])
    times = best[0]["p"] / best[1]["p"] if trace.meta.get("many") else math.exp(high - low)
    sizes = {"width": width, "many": many, "product": width * many, **question, "first": best[0]["shown"]}
    two = {"second": best[1]["shown"], "high": high, "low": low, "difference": high - low, "times": times}
    five = sum(each["p"] for each in best[:5])
    total = logits.softmax(dim=-1).double().sum()
    sums = {"five": five, "rest": max(0.0, 1 - five), "others": max(0, many - 5), "total": total}
    names, p = ([each[key] for each in best[:8]] for key in ("shown", "p"))
    table = {
        "logits": [[each["shown"], float(logits[each["id"]])] for each in best[:5]],
        "names": names,
        "p": p,
    }
    table |= {"five_names": [*names[:5], "all others"], "five_p": [*p[:5], sums["rest"]]}
    return {**sizes, **two, **sums, **table, **every_place(trace, rows[place:])}


def every_place(trace: Trace, rows: list[Values]) -> Values:
    """The best two at each place, and where the best is least probable."""
    sure = [each["best"][0]["p"] for each in rows]
    least = min(range(len(rows)), key=sure.__getitem__)
    options = sorted({least, *range(0, len(rows), max(1, len(rows) // MOST_OPTIONS))})
    names = [f"{place + 1}: {rows[place]['shown']}" for place in options]
    steps = [
        [place + 1, *(each["best"][rank][key] for rank in range(2) for key in ("shown", "p"))]
        for place, each in enumerate(rows[:30])
    ]
    question = {"options": names, "unsure": options.index(least), "lowest": sure[least]}
    return {**question, "writes": "output" in trace.tokens, "output": trace.output, "steps": steps}
