"""Interventions that a model supports, and the comparison of two traces."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any

from regard.errors import UsageError
from regard.interpret import Trace, TracedTokens, compare, parse
from regard.interpret.activations import visible
from regard.interpret.interventions import KINDS
from regard.interpret.names import attention_shapes, stacks
from regard.models.encoder import EncoderOnly
from regard.models.families import Model


def available_interventions(model: Model) -> dict[str, Any]:
    """Interventions that the model supports: types, attentions with their heads, sides."""
    heads = {name: shape.heads for name, shape in attention_shapes(model).items()}
    return {
        "types": [kind for kind in KINDS if possible(example(kind, heads), model)],
        "heads": heads,
        "stacks": list(stacks(model)),
        "sides": ["source"] if isinstance(model, EncoderOnly) else ["source", "target"],
    }


def example(kind: str, heads: dict[str, int]) -> dict[str, Any]:
    """A minimal intervention of a kind, to test whether a model supports it."""
    needed: dict[str, dict[str, Any]] = {
        "zero_head": {"where": next(iter(heads), ""), "head": 0},
        "replace_token": {"position": 0, "text": "a"},
    }
    return {"type": kind, **needed.get(kind, {})}


def possible(given: dict[str, Any], model: Model) -> bool:
    try:
        parse([given], model)
    except UsageError:
        return False
    return True


def compare_traces(before: Trace, after: Trace, step: int | None = None) -> dict[str, Any]:
    """How the second run differs. If the output distributions are not comparable, `reason` says why and only
    the output words are compared."""
    reason = incomparable_reason(before, after)
    comparison = None if reason else compare(before, after, step)
    return {
        "comparison": None if comparison is None else comparison.as_json(),
        "reason": reason,
        "sentence": output_sentence(before, after) if comparison is None else comparison.sentence,
        "words": words(before.output, after.output),
        "pairs": {
            side: pairs(before.tokens[side], after.tokens[side])
            for side in ("source", "target")
            if side in before.tokens and side in after.tokens
        },
    }


def incomparable_reason(before: Trace, after: Trace) -> str | None:
    """Why the output distributions of two runs are not comparable; None if they are."""
    different = (
        "The two models choose among different words, so that their probabilities have no common scale."
    )
    if "logits" not in before or "logits" not in after:
        return "One of the runs recorded no logits."
    if any(before.meta.get(name) != after.meta.get(name) for name in ("head", "labels", "many")):
        return different
    if before.meta.get("head") == "span":
        same = before["logits"].shape == after["logits"].shape
        return None if same else "The answers are places of texts of different lengths."
    if before["logits"].shape[-1] != after["logits"].shape[-1]:
        return different
    shared = before.vocabulary.keys() & after.vocabulary.keys()
    return None if all(before.vocabulary[each] == after.vocabulary[each] for each in shared) else different


def output_sentence(before: Trace, after: Trace) -> str:
    if before.output == after.output:
        return f'Both say "{visible(before.output)}".'
    return f'One says "{visible(before.output)}", the other "{visible(after.output)}".'


def words(before: str, after: str) -> list[dict[str, Any]]:
    """A word diff of two outputs: [{"kind": "same" | "gone" | "new", "shown": text}]."""
    one, two = before.split(), after.split()
    result: list[dict[str, Any]] = []
    for kind, a, b, c, d in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if kind == "equal":
            result.append({"kind": "same", "shown": visible(" ".join(one[a:b]))})
            continue
        for name, part in (("gone", one[a:b]), ("new", two[c:d])):
            if part:
                result.append({"kind": name, "shown": visible(" ".join(part))})
    return result


def pairs(before: TracedTokens, after: TracedTokens) -> list[tuple[int, int]]:
    """Aligned positions: equal tokens, and runs of equal length between them."""
    result: list[tuple[int, int]] = []
    for kind, a, b, c, d in SequenceMatcher(None, before.ids, after.ids, autojunk=False).get_opcodes():
        if kind == "equal" or b - a == d - c:
            result.extend(zip(range(a, b), range(c, d)))
    return result
