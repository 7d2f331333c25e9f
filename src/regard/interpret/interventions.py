"""Changes to a run, to see what they do: a head switched off, the scale or the positions dropped ...

An intervention is a plain dictionary, such as {"type": "zero_head", "where": "decoder.3.cross", "head": 5}:
from Python, the command line, a web page or a file. What is wrong with one is said in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from regard.batch import Batch
from regard.errors import UsageError, near_miss
from regard.interpret.parts import Look, causal_side, has_positions, looks, stacks
from regard.models import Model, State, Tap

Plain = Mapping[str, Any]
Edit = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Change:
    """What happens to the tensors of these names (patterns with `*`), in every run and at every step."""

    names: tuple[str, ...]
    edit: Edit

    def of(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.names)


@dataclass(frozen=True)
class TokenChange:
    """Another piece, or several, in the place of one."""

    side: str  # source or target
    position: int
    text: str


Changes = list[Change | TokenChange]


@dataclass(frozen=True)
class Intervening:
    """A tap that replaces tensors, before the next tap sees them."""

    changes: Sequence[Change]
    then: Tap | None = None
    path: str = ""

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        full = f"{self.path}{name}".partition("@")[0]
        for change in self.changes:
            if change.of(full):
                tensor = change.edit(tensor)
        return tensor if self.then is None else self.then(name, tensor)

    def within(self, name: str) -> Intervening:
        then = None if self.then is None else self.then.within(name)
        return Intervening(self.changes, then, f"{self.path}{name}.")


@dataclass(frozen=True)
class Changed:
    """A model that decodes with changes, through the door of every search."""

    model: Any  # with `start` and `step` that take a tap
    tap: Tap

    @property
    def longest_target(self) -> int | None:
        limit: int | None = self.model.longest_target
        return limit

    @property
    def reads_prompts(self) -> bool:
        return bool(getattr(self.model, "reads_prompts", False))

    def start(self, batch: Batch, beams: int = 1) -> State:
        state: State = self.model.start(batch, beams, self.tap)
        return state

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        found: tuple[Tensor, State] = self.model.step(state, tokens, self.tap)
        return found


def parse(given: Sequence[Plain], model: Model) -> Changes:
    """The changes that dictionaries ask for; they must fit the model."""
    if isinstance(given, Mapping | str) or not isinstance(given, Sequence):
        raise UsageError('interventions: write a list of objects, each with a "type"')
    return [
        change
        for number, each in enumerate(given)
        for change in _parse(each, f"interventions[{number}]", model)
    ]


def _parse(given: Any, place: str, model: Model) -> Changes:
    if not isinstance(given, Mapping):
        raise UsageError(f'{place}: write an object with a "type", such as {{"type": "drop_scale"}}')
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        near = near_miss(str(kind), KINDS)
        raise UsageError(f'{place}: "{kind}" is no type of intervention: {", ".join(KINDS)}{near}')
    make, allowed = KINDS[kind]
    for name in given:
        if name not in ("type", *allowed):
            fields = ", ".join(allowed) or "nothing else"
            raise UsageError(f'{place}: {kind} takes {fields}, not "{name}"')
    changes: Changes = make(given, place, model)
    return changes


def _where(given: Plain, place: str, model: Model, needed: bool = True) -> dict[str, Look]:
    """The attentions that are meant: one by its name, or all."""
    known, where = looks(model), given.get("where")
    if not known:
        raise UsageError(f"{place}: this model has no attention")
    if where is None and not needed:
        return known
    if not isinstance(where, str) or where not in known:
        raise UsageError(f'{place}: there is no attention "{where}": {_told(model)}')
    return {where: known[where]}


def _told(model: Model) -> str:
    """What exists, in words."""
    found = []
    for side, stack in stacks(model).items():
        number = len(stack)
        kinds = "self and cross" if any(block.cross is not None for block in stack) else "self"
        layers = f"{number} layer{'s' if number != 1 else ''}"
        found.append(f"the {side} has {layers} ({side}.0 to {side}.{number - 1}, {kinds})")
    return ", ".join(found) or "there is decoder.cross alone"


def _head(given: Plain, place: str, found: Mapping[str, Look], needed: bool = True) -> int | None:
    head = given.get("head")
    if head is None and not needed:
        return None
    for name, look in found.items():
        if not isinstance(head, int) or isinstance(head, bool) or not 0 <= head < look.heads:
            raise UsageError(f"{place}: head = {head}: {name} has {counted(look.heads)}")
    return int(head)  # type: ignore[arg-type]


def counted(heads: int) -> str:
    return "one head, 0" if heads == 1 else f"{heads} heads, 0 to {heads - 1}"


def zero_head(given: Plain, place: str, model: Model) -> Changes:
    """A head says nothing: its mix of values is zero."""
    found = _where(given, place, model)
    head, where = _head(given, place, found), next(iter(found))
    assert head is not None
    if where == "decoder.cross":  # one head, whose mix is the context
        return [Change(("decoder.cross.context",), torch.zeros_like)]
    return [Change((f"{where}.mixed",), lambda mixed: replaced(mixed, head, 0.0))]


def uniform(given: Plain, place: str, model: Model) -> Changes:
    """A head, or all of an attention, looks at all visible keys alike: equal scores."""
    found = _where(given, place, model, needed=False)
    head = _head(given, place, found, needed=False)
    if "decoder.cross" in found:  # Bahdanau's one head: its scores are [B,K,S], hypotheses and not heads
        head = None
    names = tuple(f"{where}.scores" for where in found)
    return [Change(names, lambda scores: replaced(scores, head, 0.0))]


def drop_scale(given: Plain, place: str, model: Model) -> Changes:
    """q . k without / sqrt(C)."""
    found = _where(given, place, model, needed=False)
    scales = {look.scale for look in found.values()}
    if None in scales:
        raise UsageError(f"{place}: the scores of this model are not scaled, so there is no scale to drop")
    scale = next(iter(scales)) or 1.0
    return [Change(tuple(f"{where}.scores" for where in found), lambda scores: scores / scale)]


def drop_positions(given: Plain, place: str, model: Model) -> Changes:
    """Words without order: nothing is added, turned or biased."""
    if not has_positions(model):
        raise UsageError(f"{place}: this model has no positions: it reads word after word")
    side = given.get("side")
    sides = list(stacks(model))
    if side is not None and side not in sides:
        raise UsageError(f'{place}: side = "{side}": this model has {" and ".join(sides)}')
    own = sides if side is None else [side]
    nothing = tuple(
        f"{each}.{name}"
        for each in own
        for name in ("embedding.positions", "positions.bias", "positions.sine")
    )
    return [
        Change(nothing, torch.zeros_like),
        Change(tuple(f"{each}.positions.cosine" for each in own), torch.ones_like),
    ]


def unmask_future(given: Plain, place: str, model: Model) -> Changes:
    """Every word sees those after it too. While decoding there are none yet."""
    side = causal_side(model)
    if side is None:
        raise UsageError(f"{place}: nothing hides the future in this model")
    return [Change((f"{side}.*.self.mask",), lambda mask: mask.any(dim=-2, keepdim=True).expand_as(mask))]


def replace_token(given: Plain, place: str, model: Model) -> Changes:
    """Another piece is read."""
    side, position, text = given.get("side", "source"), given.get("position"), given.get("text")
    if side not in ("source", "target"):
        raise UsageError(f'{place}: side = "{side}": write source or target')
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise UsageError(f"{place}: position = {position}: write the number of a piece, from 0")
    if not isinstance(text, str) or not text:
        raise UsageError(f'{place}: text: write what is read instead, such as {{..., "text": "cat"}}')
    return [TokenChange(side, position, text)]


def replaced(x: Tensor, head: int | None, value: float) -> Tensor:
    """One head's numbers, or all: [B,H,...]."""
    if head is None:
        return torch.full_like(x, value)
    x = x.clone()
    x[:, head] = value
    return x


def spoken(given: Sequence[Plain]) -> str:
    """Changes in words: "without head 3 of decoder.1.cross, without positions"."""
    return ", ".join(_spoken(each) for each in given)


def _spoken(given: Plain) -> str:
    where, head = given.get("where"), given.get("head")
    of = f" of {where}" if where else ""
    match given.get("type"):
        case "zero_head":
            return f"without head {head}{of}"
        case "uniform":
            whose = f"head {head}" if head is not None else "every head"
            return f"with equal scores in {whose}{of}"
        case "drop_scale":
            return f"without the scale{of}"
        case "drop_positions":
            return f"without positions{' in the ' + given['side'] if given.get('side') else ''}"
        case "unmask_future":
            return "with the future unmasked"
    side, position = given.get("side", "source"), given.get("position")
    return f'with "{given.get("text")}" as piece {position} of the {side}'


KINDS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "zero_head": (zero_head, ("where", "head")),
    "uniform": (uniform, ("where", "head")),
    "drop_scale": (drop_scale, ("where",)),
    "drop_positions": (drop_positions, ("side",)),
    "unmask_future": (unmask_future, ()),
    "replace_token": (replace_token, ("side", "position", "text")),
}
