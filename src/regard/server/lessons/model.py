"""Cells about the loaded model that any lesson can use: what it says, its tokens, weights and choices."""

from __future__ import annotations

from regard.interpret import Trace, TracedTokens
from regard.interpret.predictions import choice_logits, choice_texts
from regard.server.lessons.decoder import first_choice
from regard.server.lessons.given import Given, Values, cell


def run_of(given: Given, text: str) -> Trace:
    """The learner's text, or one of the document."""
    if text:
        given.check(text)
    return given.trace(text or None)


@cell
def run(given: Given, text: str = "", change: str = "", where: str = "", head: int = 0) -> Values:
    """What the model says; with a change (drop_positions, zero_head, ...) also what it says then."""
    trace = run_of(given, text)
    rows = [["as it is" if change else given.name, trace.output]]
    if not change:
        return {"output": trace.output, "rows": rows}
    intervention = {"type": change, **({"where": where, "head": head} if where else {})}
    other = given.trace(text or given.sentence, interventions=[intervention]).output
    same = other == trace.output
    return {"output": trace.output, "other": other, "same": same, "rows": [*rows, [change, other]]}


@cell
def tokens(given: Given, text: str = "") -> Values:
    """The tokens of a text and their ids."""
    given.check(text or given.sentence)
    tokenizer = given.task.folder.source
    ids = given(tokenizer.encode, text or given.sentence)
    shown = TracedTokens.of(tokenizer, ids).shown
    return {
        "tokens": shown,
        "ids": ids,
        "count": len(ids),
        "columns": ["token", "id"],
        "rows": list(zip(shown, ids)),
    }


@cell
def attention(given: Given, text: str = "", where: str = "", layer: int = -1, head: int = -1) -> Values:
    """The weights of one attention; without a head, the mean of all."""
    trace = run_of(given, text)
    name = trace.attention_name(where or None, None if layer < 0 else layer)
    weights = given(trace.weights, name, None if head < 0 else head)
    if weights.dim() == 3:  # [H,T,S]
        weights = weights.mean(dim=0)
    labels = {"rows": trace.query_labels(name), "columns": trace.sides(name)[1].shown}
    return {"where": name, "values": weights, **labels}


@cell
def choices(given: Given, text: str = "", count: int = 8, temperature: float = 1.0) -> Values:
    """The most probable answers where the model first chooses: softmax(logits / temperature)."""
    trace = run_of(given, text)
    logits = given(choice_logits, trace)
    place = min(first_choice(given, trace), len(logits) - 1)
    p = (logits[place] / max(temperature, 1e-3)).softmax(dim=-1).topk(min(count, logits.shape[-1]))
    names = choice_texts(trace, trace, p.indices.tolist())
    return {"names": names, "values": p.values, "best": names[0], "p": p.values[0], "many": logits.shape[-1]}


@cell
def facts(given: Given) -> Values:
    """Family, task and sizes of the model."""
    folder = given.task.folder
    sizes = {"parameters": folder.parameters, "vocabulary": len(folder.source), "width": folder.config.width}
    return {"name": given.name, "family": folder.config.family, "task": folder.task.name, **sizes}
