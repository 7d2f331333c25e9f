"""Two runs side by side: what a change did to the next word, in words and numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from regard.errors import UsageError
from regard.trace.pieces import visible, whole
from regard.trace.readings import divergence
from regard.trace.trace import Trace

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
        where = f'After "{self.behind}", ' if self.behind else "At the beginning, "
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
    found = divergence(one[:shared], two[:shared])  # [steps]
    if step is None:
        step = int(found.argmax())
    if not 0 <= step < shared:
        raise UsageError(f"step = {step}: the two runs share {shared} steps, from 0 on")
    p, q = one[step].softmax(dim=-1), two[step].softmax(dim=-1)
    count = min(TOLD, p.shape[-1])
    best = list(dict.fromkeys([*p.topk(count).indices.tolist(), *q.topk(count).indices.tolist()]))
    names = texts(before, after, best)
    told = tuple(Choice(name, float(p[place]), float(q[place])) for name, place in zip(names, best))
    return Comparison(step, behind(before, step), told, tuple(found.tolist()), before.output, after.output)


def choices(trace: Trace) -> Tensor:
    """Logits as [steps, choices]; of an answer in a text two steps, its first and last piece."""
    if "logits" not in trace:
        raise UsageError("comparing needs the logits of both runs; they are not in this trace (only)")
    logits = trace["logits"]
    return logits.T if trace.meta.get("head") == "span" else logits


def common(before: Trace, after: Trace) -> int:
    """Steps at which both runs had read the same target; a text that is only read has no order."""
    if "target" not in before.tokens or "target" not in after.tokens:
        return len(choices(before))
    one, two = before.tokens["target"].ids, after.tokens["target"].ids
    same = next((at for at, pair in enumerate(zip(one, two)) if pair[0] != pair[1]), min(len(one), len(two)))
    return max(1, same)


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
    return [visible(known.get(number, trace.word(number))) for number in numbers]
