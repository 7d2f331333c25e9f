"""Two runs side by side: what a change did to the next word, in words and numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from regard.errors import UsageError
from regard.interpret.interventions import spoken
from regard.interpret.pieces import visible, whole
from regard.interpret.readings import divergence, divergence_of_labels
from regard.interpret.trace import Trace

TOLD = 5  # words of each distribution


@dataclass(frozen=True)
class Choice:
    """A word or label that could come, and how probable it was before and after."""

    text: str
    before: float
    after: float


@dataclass(frozen=True)
class Comparison:
    """The change of the distribution at one step, and of the output."""

    step: int  # where the distributions are compared: the step that changed most, unless told
    behind: str  # what stood before that step
    choices: tuple[Choice, ...]  # the best before, then those that are best after and were not before
    divergences: tuple[float, ...]  # KL(before || after) in nats at each step that both runs share
    before: str  # the outputs
    after: str
    change: str = ""  # what was done to the second run and not to the first, in words

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
        then = max(self.choices, key=lambda each: each.after)
        where = f'after "{self.behind}", ' if self.behind else "at the beginning, "
        where = f"{visible(self.change)}: {where}" if self.change else where
        where = where[0].upper() + where[1:]
        moved = f'p("{first.text}") {first.before:.2f} -> {first.after:.2f}'
        if then is not first:
            moved += f', now most probable: "{then.text}" {then.after:.2f}'
        told = f"{where}{moved}; KL divergence {self.divergence:.3g} nats."
        if self.changed:
            return f'{told} The output changed: "{visible(self.before)}" -> "{visible(self.after)}".'
        return f'{told} The output did not change: "{visible(self.before)}".'

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "divergence": self.divergence,
            "changed": self.changed,
            "sentence": self.sentence,
        }


def compare(before: Trace, after: Trace, step: int | None = None) -> Comparison:
    """How another run of the same model differs.

    Of two outputs the steps up to and with the first different piece are compared: there both runs had read
    the same. KL(p || q) = sum_x p(x) log(p(x) / q(x)).
    """
    one, two = choices(before), choices(after)
    if one.shape[-1] != two.shape[-1]:
        raise UsageError("these runs choose among different words: compare runs of one model")
    shared = min(common(before, after), len(one), len(two))
    many = bool(before.meta.get("many"))
    measure = divergence_of_labels if many else divergence
    found = measure(one[:shared], two[:shared])  # [steps]
    if step is None:
        step = int(found.argmax())
    if not 0 <= step < shared:
        raise UsageError(f"step = {step}: the two runs share {shared} steps, from 0 on")
    p, q = (each[step].sigmoid() if many else each[step].softmax(dim=-1) for each in (one, two))
    count = min(TOLD, p.shape[-1])
    best = list(dict.fromkeys([*p.topk(count).indices.tolist(), *q.topk(count).indices.tolist()]))
    names = texts(before, after, best)
    told = tuple(Choice(name, float(p[place]), float(q[place])) for name, place in zip(names, best))
    outputs = before.output, after.output
    return Comparison(step, behind(before, step), told, tuple(found.tolist()), *outputs, done(before, after))


def done(before: Trace, after: Trace) -> str:
    """What was done to the second run and not to the first; or taken back."""
    one, two = (list(each.meta.get("interventions", ())) for each in (before, after))
    if one and not two:
        return f"back from {spoken(one)}"
    return spoken([each for each in two if each not in one])


def choices(trace: Trace) -> Tensor:
    """Logits as [steps, choices]; of an answer in a text two steps, its first and last piece."""
    if "logits" not in trace:
        raise UsageError("comparing needs the logits of both runs; they are not in this trace (only)")
    logits = trace["logits"]
    return logits.T if trace.meta.get("head") == "span" else logits


def common(before: Trace, after: Trace) -> int:
    """Steps at which both runs had read the same target; a text that is only read has no order.

    Where a piece of the target was replaced by another, what follows is what is asked about: all steps.
    """
    if "target" not in before.tokens or "target" not in after.tokens:
        return len(choices(before))
    if replaced_target(before) or replaced_target(after):
        return min(len(choices(before)), len(choices(after)))
    one, two = before.tokens["target"].ids, after.tokens["target"].ids
    same = next((at for at, pair in enumerate(zip(one, two)) if pair[0] != pair[1]), min(len(one), len(two)))
    return max(1, same)


def replaced_target(trace: Trace) -> bool:
    return any(
        each.get("type") == "replace_token" and each.get("side") == "target"
        for each in trace.meta.get("interventions", ())
    )


def behind(trace: Trace, step: int) -> str:
    """The text before a step, its last pieces."""
    if trace.meta.get("head") == "span":
        return "last piece" if step else "first piece"
    if "target" in trace.tokens:
        own = trace.tokens["target"].texts[1 : step + 1]
        return visible(whole("".join(own[-8:])))
    pieces = trace.tokens["source"].shown
    return pieces[step] if len(choices(trace)) == len(pieces) else ""


def texts(trace: Trace, other: Trace, numbers: list[int]) -> list[str]:
    """What choices are called: labels, places of a text, or the words of the vocabulary."""
    if trace.meta.get("head") == "span":
        pieces = trace.tokens["source"].shown
        return [pieces[number] if number < len(pieces) else f"place {number}" for number in numbers]
    labels = trace.meta.get("labels") or []
    if trace.meta.get("head") in ("sentence", "tokens"):
        return [str(labels[number]) if number < len(labels) else f"label {number}" for number in numbers]
    known = {**other.vocabulary, **trace.vocabulary}
    return apart([known.get(number, trace.word(number)) for number in numbers])


def apart(pieces: list[str]) -> list[str]:
    """Pieces to look at; of two that differ by the space in front alone, the one with it shows it."""
    shown = [visible(piece) for piece in pieces]
    return [
        f"\u2423{text}" if shown.count(text) > 1 and piece.startswith(" ") and piece.strip() else text
        for piece, text in zip(pieces, shown)
    ]
