"""The predictions of a run at each step, and how they differ between two runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.errors import UsageError
from regard.interpret.activations import Activations, merge_bytes, visible
from regard.interpret.interventions import describe
from regard.interpret.readings import divergence, multi_label_divergence

COMPARED = 5  # best choices of each run
LISTED = 10  # best choices of each step
CONTEXT = 8  # tokens


# One run


def page_json(trace_id: str, run: Activations) -> dict[str, Any]:
    """A trace as the web page reads it: all but the tensors, texts for display, best choices of each step."""
    content = run.as_json()
    content["tokens"] = {
        side: {**tokens, "shown": list(run.tokens[side].shown)} for side, tokens in content["tokens"].items()
    }
    if {"target", "output"} <= run.tokens.keys():
        content["tokens"]["target"]["labels"] = list(run.query_labels("decoder"))
    content["beam"] = [{**node, "shown": visible(node["text"])} for node in content["beam"]]
    attention = run.attention_name() if run.attentions else None
    return {"id": trace_id, **content, "attention": attention, "steps": steps(run)}


def steps(run: Activations) -> list[dict[str, Any]]:
    """The prediction at each step: the choice made, and the best choices with their probabilities."""
    if "logits" not in run:
        return []
    logits, head = run["logits"], run.meta.get("head")
    texts = {number: visible(text) for number, text in run.vocabulary.items()}
    if "output" in run.tokens:
        output, p = run.tokens["output"], logits.softmax(dim=-1)
        return [step_json(*row, texts) for row in zip(output.shown, output.ids, p)]
    shown = run.tokens["source"].shown
    if head == "span":
        ends = logits.softmax(dim=0).T  # [2, tokens]
        return [step_json(end, None, p, dict(enumerate(shown))) for end, p in zip(("begins", "ends"), ends)]
    if head == "words":
        chosen = dict(run.meta.get("chosen", ()))  # the gaps
        p = logits.softmax(dim=-1)
        return [step_json(text, chosen.get(place), p[place], texts) for place, text in enumerate(shown)]
    labels = dict(enumerate(run.meta.get("labels", ())))
    places = shown if len(logits) == len(shown) else ["the text"] * len(logits)
    probabilities = logits.sigmoid() if run.meta.get("many") else logits.softmax(dim=-1)
    return [step_json(place, int(p.argmax()), p, labels) for place, p in zip(places, probabilities)]


def step_json(shown: str, choice: int | None, p: Tensor, texts: dict[int, str]) -> dict[str, Any]:
    best = p.topk(min(LISTED, len(p)))
    listed = list(zip(best.values.tolist(), best.indices.tolist()))
    if choice is not None and choice not in best.indices:  # drawn, or preferred by the search
        listed.append((float(p[choice]), choice))
    return {
        "shown": shown,
        "id": choice,
        "p": None if choice is None else float(p[choice]),
        "best": [
            {"id": number, "shown": texts.get(number, f"<id {number}>"), "p": value}
            for value, number in listed
        ],
    }


def max_pool(tensor: Tensor, size: int) -> Tensor:
    """[...,T,S] with at most `size` rows and columns: the maximum of each field."""
    if tensor.dim() < 2 or max(tensor.shape[-2:]) <= size:
        return tensor
    height, width = (min(size, length) for length in tensor.shape[-2:])
    flat = tensor.float().reshape(-1, 1, *tensor.shape[-2:])
    return F.adaptive_max_pool2d(flat, (height, width)).reshape(*tensor.shape[:-2], height, width)


# Two runs


@dataclass(frozen=True)
class ProbabilityChange:
    """A token or label, and its probability before and after."""

    text: str
    before: float
    after: float


@dataclass(frozen=True)
class TraceComparison:
    """How the distribution at one step changed, and the output."""

    step: int  # the step with the largest divergence, unless `compare` got one
    behind: str  # the text before that step
    choices: tuple[ProbabilityChange, ...]  # the best before, then the best after that are not among them
    divergences: tuple[float, ...]  # KL(before || after) in nats at each step that both runs share
    before: str  # the outputs
    after: str
    change: str = ""  # the interventions that only the second run has, in words

    @property
    def divergence(self) -> float:
        return self.divergences[self.step]

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def sentence(self) -> str:
        """The change in words."""
        first = self.choices[0]
        top = max(self.choices, key=lambda each: each.after)
        where = f'after "{self.behind}", ' if self.behind else "at the beginning, "
        where = f"{visible(self.change)}: {where}" if self.change else where
        text = f'{where[0].upper()}{where[1:]}p("{first.text}") {first.before:.2f} -> {first.after:.2f}'
        if top is not first:
            text += f', now most probable: "{top.text}" {top.after:.2f}'
        text += f"; KL divergence {self.divergence:.3g} nats."
        if self.changed:
            outputs = f'"{visible(self.before)}" -> "{visible(self.after)}"{end(self.after)}'
            return f"{text} The output changed: {outputs}"
        return f'{text} The output did not change: "{visible(self.before)}"{end(self.before)}'

    def as_json(self) -> dict[str, Any]:
        properties = ("divergence", "changed", "sentence")
        return asdict(self) | {name: getattr(self, name) for name in properties}


def end(quotation: str) -> str:
    """The full stop of a sentence that ends with a quotation, unless that has one."""
    return "" if quotation.rstrip().endswith((".", "!", "?", "\u2026")) else "."


def compare(before: Activations, after: Activations, step: int | None = None) -> TraceComparison:
    """Compare two runs of one model.

    If the outputs differ, only the steps up to the first different token are compared: there both runs have
    read the same tokens. KL(p || q) = sum_x p(x) log(p(x) / q(x)).
    """
    one, two = choice_logits(before), choice_logits(after)
    if one.shape[-1] != two.shape[-1]:
        raise UsageError("these runs have different vocabularies or labels: compare runs of one model")
    shared = min(shared_steps(before, after), len(one), len(two))
    multi_label = bool(before.meta.get("many"))
    divergences = (multi_label_divergence if multi_label else divergence)(one[:shared], two[:shared])
    if step is None:
        step = int(divergences.argmax())
    if not 0 <= step < shared:
        raise UsageError(f"step = {step}: the two runs share {shared} steps, from 0 on")
    p, q = (each[step].sigmoid() if multi_label else each[step].softmax(dim=-1) for each in (one, two))
    count = min(COMPARED, p.shape[-1])
    best = list(dict.fromkeys([*p.topk(count).indices.tolist(), *q.topk(count).indices.tolist()]))
    choices = tuple(
        ProbabilityChange(text, float(p[number]), float(q[number]))
        for text, number in zip(choice_texts(before, after, best), best)
    )
    outputs, change = (before.output, after.output), added_interventions(before, after)
    context = text_before(before, step)
    return TraceComparison(step, context, choices, tuple(divergences.tolist()), *outputs, change)


def added_interventions(before: Activations, after: Activations) -> str:
    one, two = (list(each.meta.get("interventions", ())) for each in (before, after))
    if one and not two:
        return f"back from {describe(one)}"
    return describe([each for each in two if each not in one])


def choice_logits(run: Activations) -> Tensor:
    """Logits as [steps, choices]; extractive question answering has two steps, first and last token."""
    if "logits" not in run:
        raise UsageError("comparing needs the logits of both runs; they are not in this trace (only)")
    logits = run["logits"]
    return logits.T if run.meta.get("head") == "span" else logits


def shared_steps(before: Activations, after: Activations) -> int:
    """Steps at which both runs have read the same target; without a target, all.

    A replaced target token is itself the question: then all steps too.
    """
    length = min(len(choice_logits(before)), len(choice_logits(after)))
    if "target" not in before.tokens or "target" not in after.tokens:
        return length
    for fields in (*before.meta.get("interventions", ()), *after.meta.get("interventions", ())):
        if fields.get("type") == "replace_token" and fields.get("side") == "target":
            return length
    ids = list(zip(before.tokens["target"].ids, after.tokens["target"].ids))
    return max(1, next((step for step, (one, two) in enumerate(ids) if one != two), len(ids)))


def text_before(run: Activations, step: int) -> str:
    """The last tokens before a step."""
    if run.meta.get("head") == "span":
        return "last token" if step else "first token"
    if "target" in run.tokens:
        return visible(merge_bytes("".join(run.tokens["target"].texts[1 : step + 1][-CONTEXT:])))
    shown = run.tokens["source"].shown
    return shown[step] if len(choice_logits(run)) == len(shown) else ""


def choice_texts(run: Activations, other: Activations, numbers: list[int]) -> list[str]:
    """The texts of choices: labels, tokens of the source, or tokens of the vocabulary."""
    head, labels = run.meta.get("head"), run.meta.get("labels") or []
    if head == "span":
        source = run.tokens["source"].shown
        return [source[number] if number < len(source) else f"position {number}" for number in numbers]
    if head in ("sentence", "tokens"):
        return [str(labels[number]) if number < len(labels) else f"label {number}" for number in numbers]
    vocabulary = {**other.vocabulary, **run.vocabulary}
    texts = [vocabulary.get(number, run.word(number)) for number in numbers]
    shown = [visible(text) for text in texts]
    return [  # of two that differ in the leading space alone, one shows it
        f"\u2423{each}" if shown.count(each) > 1 and text.startswith(" ") and text.strip() else each
        for text, each in zip(texts, shown)
    ]
