"""Interventions change a run: ablate a head, drop the scale, replace a token, edit a number, patch ...

An intervention is a plain dictionary, such as {"type": "zero_head", "where": "decoder.3.cross", "head": 5},
from Python, the command line, HTTP or a file. One that is invalid or does not fit the model is a UsageError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, cast, overload

import torch
from torch import Tensor

from regard.batch import Batch
from regard.errors import UsageError, near_miss
from regard.interpret.activations import head_count
from regard.interpret.names import (
    AttentionShape,
    attention_shapes,
    causal_side,
    has_positions,
    lookup,
    near_name,
    stacks,
)
from regard.models.cache import Cache
from regard.models.families import Model
from regard.models.layers import Tap
from regard.resources import read_data

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class TensorEdit:
    """Replace the tensors of these names (patterns with `*`), in every run and at every step.

    With a position, `edit` gets the row of that position alone: [B,...,T,D] -> [B,...,D].
    """

    names: tuple[str, ...]
    edit: Callable[[Tensor], Tensor]
    position: int | None = None

    def matches(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.names)

    def apply(self, tensor: Tensor, step: int | None) -> Tensor | None:
        """The edited tensor, None if it does not have the position. `step`: of a recurrence, whose tensors
        have no dimension of positions."""
        if self.position is None:
            return self.edit(tensor)
        rows = tensor if step is None else tensor.unsqueeze(-2)
        place = self.position - (step or 0)
        if rows.dim() < 3 or not 0 <= place < rows.shape[-2]:
            return None
        rows = rows.clone()
        rows[..., place, :] = self.edit(rows[..., place, :])
        return rows if step is None else rows.squeeze(-2)


@dataclass(frozen=True)
class TensorPatch:
    """Take a tensor, or one head or position of it, from the run of another text."""

    name: str
    head: int | None
    position: int | None
    text: Any  # or, in Python, the other trace

    def edits(self, other: Tensor) -> list[TensorEdit]:
        """`other`: the tensor in the other run, [T,D] or [H,T,C]."""
        if other.dim() < 2:
            raise UsageError(f"patch: {self.name} has no positions")
        positions = range(other.shape[-2])
        if self.position is not None and self.position not in positions:
            raise UsageError(
                f"patch: position = {self.position}: {self.name} of the other run has {len(positions)}"
            )
        chosen = positions if self.position is None else [self.position]
        return [TensorEdit((self.name,), self.setter(other[..., p, :]), p) for p in chosen]

    def setter(self, row: Tensor) -> Callable[[Tensor], Tensor]:
        """[D] or [H,C] -> what sets it in [B,D] or [B,H,C]."""

        def set_row(rows: Tensor) -> Tensor:
            if row.shape[-1] != rows.shape[-1]:
                sizes = f"{row.shape[-1]} numbers in the other run and {rows.shape[-1]} in this one"
                raise UsageError(f"patch: a row of {self.name} has {sizes}")
            part = of_head(rows, self.head, self.name)
            part[...] = (row if self.head is None else row[self.head]).to(part)
            return rows

        return set_row


@dataclass(frozen=True)
class TokenReplacement:
    """Replace one token by the tokens of a text."""

    side: str  # source or target
    position: int
    text: str


Edits = list[TensorEdit | TokenReplacement | TensorPatch]


@dataclass(frozen=True)
class InterventionTap:
    """A tap that edits tensors before the next tap sees them."""

    edits: Sequence[TensorEdit]
    then: Tap | None = None
    path: str = ""
    applied: set[TensorEdit] = field(default_factory=set)

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        full, _, step = f"{self.path}{name}".partition("@")
        for edit in self.edits:
            if edit.matches(full):
                edited = edit.apply(tensor, int(step) if step else None)
                if edited is not None:
                    tensor = edited
                    self.applied.add(edit)
        return tensor if self.then is None else self.then(name, tensor)

    def within(self, name: str) -> InterventionTap:
        then = None if self.then is None else self.then.within(name)
        return InterventionTap(self.edits, then, f"{self.path}{name}.", self.applied)

    def check(self) -> None:
        """An edit of a position that the run does not have is an error."""
        for edit in self.edits:
            if edit.position is not None and edit not in self.applied:
                place = f"position {edit.position} in {edit.names[0]}"
                raise UsageError(f"interventions: this run has no {place}")


@dataclass(frozen=True)
class IntervenedModel:
    """A model for the search whose steps run with a tap."""

    model: Any  # with `start` and `step` that take a tap
    tap: InterventionTap

    @property
    def step_tap(self) -> Tap:
        """Without changes of masks, which keep apart the beams of a source: they are queries of one row."""
        edits = [each for each in self.tap.edits if not each.names[0].endswith(".mask")]
        return replace(self.tap, edits=edits)

    @property
    def longest_target(self) -> int | None:
        return cast("int | None", self.model.longest_target)

    @property
    def reads_prompts(self) -> bool:
        return bool(getattr(self.model, "reads_prompts", False))

    def start(self, batch: Batch, beams: int = 1) -> Cache:
        return cast(Cache, self.model.start(batch, beams, self.tap))

    def step(self, cache: Cache, tokens: Tensor) -> tuple[Tensor, Cache]:
        return cast("tuple[Tensor, Cache]", self.model.step(cache, tokens, self.step_tap))


def parse(interventions: Sequence[Fields], model: Model) -> Edits:
    """Validate interventions against the model."""
    if isinstance(interventions, Mapping | str) or not isinstance(interventions, Sequence):
        raise UsageError('interventions: write a list of objects, each with a "type"')
    return [
        edit
        for number, fields in enumerate(interventions)
        for edit in _parse(fields, f"interventions[{number}]", model)
    ]


def _parse(fields: Any, at: str, model: Model) -> Edits:
    if not isinstance(fields, Mapping):
        raise UsageError(f'{at}: write an object with a "type", such as {{"type": "drop_scale"}}')
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        near = near_miss(str(kind), KINDS)
        raise UsageError(f'{at}: "{kind}" is not a type of intervention: {", ".join(KINDS)}{near}')
    allowed = KINDS[kind].fields
    for name in fields:
        if name not in ("type", *allowed):
            raise UsageError(f'{at}: {kind} takes {", ".join(allowed) or "no other fields"}, not "{name}"')
    return KINDS[kind].make(fields, at, model)


def _attentions(fields: Fields, at: str, model: Model, required: bool = True) -> dict[str, AttentionShape]:
    """The attention that `where` names; all, if it may be left out."""
    shapes, where = attention_shapes(model), fields.get("where")
    if not shapes:
        raise UsageError(f"{at}: this model has no attention")
    if where is None and not required:
        return shapes
    if not isinstance(where, str) or where not in shapes:
        raise UsageError(f'{at}: there is no attention "{where}": {_layers(model)}')
    return {where: shapes[where]}


def _layers(model: Model) -> str:
    """The attentions of a model, for messages."""
    parts = []
    for side, stack in stacks(model).items():
        number = len(stack)
        kinds = "self and cross" if any(block.cross is not None for block in stack) else "self"
        layers = f"{number} layer{'s' if number != 1 else ''}"
        parts.append(f"the {side} has {layers} ({side}.0 to {side}.{number - 1}, {kinds})")
    return ", ".join(parts) or "the only one is decoder.cross"


def _head(fields: Fields, at: str, shapes: Mapping[str, AttentionShape], required: bool = True) -> int | None:
    head = fields.get("head")
    if head is None and not required:
        return None
    for name, shape in shapes.items():
        if not isinstance(head, int) or isinstance(head, bool) or not 0 <= head < shape.heads:
            raise UsageError(f"{at}: head = {head}: {name} has {head_count(shape.heads)}")
    return int(head)  # type: ignore[arg-type]


def zero_head(fields: Fields, at: str, model: Model) -> Edits:
    """Ablate a head: its weighted sum of values is zero."""
    shapes = _attentions(fields, at, model)
    head, where = _head(fields, at, shapes), next(iter(shapes))
    if where == "decoder.cross":  # one head, whose output is the context
        return [TensorEdit(("decoder.cross.context",), torch.zeros_like)]
    return [TensorEdit((f"{where}.mixed",), lambda mixed: zeroed(mixed, head))]


def uniform(fields: Fields, at: str, model: Model) -> Edits:
    """Equal scores in a head, or in all: it attends to all visible keys equally."""
    shapes = _attentions(fields, at, model, required=False)
    head = _head(fields, at, shapes, required=False)
    if "decoder.cross" in shapes:  # Bahdanau's scores are [B,K,S]: dimension 1 has hypotheses, not heads
        head = None
    names = tuple(f"{where}.scores" for where in shapes)
    return [TensorEdit(names, lambda scores: zeroed(scores, head))]


def drop_scale(fields: Fields, at: str, model: Model) -> Edits:
    """q . k without / sqrt(C)."""
    shapes = _attentions(fields, at, model, required=False)
    scales = {shape.scale for shape in shapes.values()}
    if None in scales:
        raise UsageError(f"{at}: the scores of this model are not scaled, so there is no scale to drop")
    scale = next(iter(scales)) or 1.0
    return [TensorEdit(tuple(f"{where}.scores" for where in shapes), lambda scores: scores / scale)]


def drop_positions(fields: Fields, at: str, model: Model) -> Edits:
    """No position embeddings, rotations or biases."""
    if not has_positions(model):
        raise UsageError(f"{at}: this model has no positions: it is recurrent")
    side, sides = fields.get("side"), list(stacks(model))
    if side is not None and side not in sides:
        raise UsageError(f'{at}: side = "{side}": this model has {" and ".join(sides)}')
    sides = sides if side is None else [side]
    zeros = ("embedding.positions", "positions.bias", "positions.sine")
    return [
        TensorEdit(tuple(f"{each}.{name}" for each in sides for name in zeros), torch.zeros_like),
        TensorEdit(tuple(f"{each}.positions.cosine" for each in sides), torch.ones_like),
    ]


def unmask_future(fields: Fields, at: str, model: Model) -> Edits:
    """No causal mask. During decoding there are no later tokens yet."""
    side = causal_side(model)
    if side is None:
        raise UsageError(f"{at}: this model has no causal mask")
    return [TensorEdit((f"{side}.*.self.mask",), lambda mask: mask.any(dim=-2, keepdim=True).expand_as(mask))]


def replace_token(fields: Fields, at: str, model: Model) -> Edits:
    side, position, text = fields.get("side", "source"), fields.get("position"), fields.get("text")
    if side not in ("source", "target"):
        raise UsageError(f'{at}: side = "{side}": write source or target')
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise UsageError(f"{at}: position = {position}: write the position of a token, from 0")
    if not isinstance(text, str) or not text:
        raise UsageError(f'{at}: text: write the replacement, such as {{..., "text": "cat"}}')
    return [TokenReplacement(side, position, text)]


def edit(fields: Fields, at: str, model: Model) -> Edits:
    """Set one number of a tensor, or add to it."""
    name, head = _tensor(fields, at), _index(fields, "head", at, required=False)
    position, column = (_index(fields, each, at) for each in ("position", "column"))
    value, operation = fields.get("value"), fields.get("operation", "set")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{at}: value = {value}: write a number")
    if operation not in ("set", "add"):
        raise UsageError(f'{at}: operation = "{operation}": write set or add')

    def change(rows: Tensor) -> Tensor:
        part = of_head(rows, head, name)
        if column >= part.shape[-1]:
            raise UsageError(
                f"{at}: column = {column}: a row of {name} has {part.shape[-1]} numbers, from 0 on"
            )
        part[..., column] = value if operation == "set" else part[..., column] + value
        return rows

    return [TensorEdit((name,), change, position)]


def patch(fields: Fields, at: str, model: Model) -> Edits:
    text = fields.get("text")
    if text is None or text == "":
        raise UsageError(
            f'{at}: text: write the text of the other run, such as {{..., "text": "I see a cat."}}'
        )
    head, position = (_index(fields, each, at, required=False) for each in ("head", "position"))
    return [TensorPatch(_tensor(fields, at), head, position, text)]


def _tensor(fields: Fields, at: str) -> str:
    name = fields.get("name")
    if not isinstance(name, str) or lookup(name) is None or name.startswith("lens."):
        raise UsageError(f'{at}: name = "{name}" is not the name of a tensor{near_name(name)}')
    if name.endswith(".value_norms"):
        raise UsageError(f"{at}: {name} is computed from the values: change {name.removesuffix('_norms')}")
    return name


@overload
def _index(fields: Fields, name: str, at: str) -> int: ...
@overload
def _index(fields: Fields, name: str, at: str, required: bool) -> int | None: ...
def _index(fields: Fields, name: str, at: str, required: bool = True) -> int | None:
    value = fields.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f"{at}: {name} = {value}: write a number, from 0")
    return value


def of_head(rows: Tensor, head: int | None, name: str) -> Tensor:
    """The numbers of one head, [B,C] of [B,H,C]; without a head all."""
    if head is None:
        return rows
    if rows.dim() != 3 or head >= rows.shape[1]:
        raise UsageError(
            f"head = {head}: {name} has {head_count(rows.shape[1]) if rows.dim() == 3 else 'no heads'}"
        )
    return rows[:, head]


def zeroed(x: Tensor, head: int | None) -> Tensor:
    """[B,H,...] with zeros in one head, or in all."""
    if head is None:
        return torch.zeros_like(x)
    x = x.clone()
    x[:, head] = 0.0
    return x


def describe(interventions: Sequence[Fields]) -> str:
    """For people: "without head 3 of decoder.1.cross, without positions"."""
    return ", ".join(KINDS[fields["type"]].describe(fields) for fields in interventions)


@dataclass(frozen=True)
class InterventionKind:
    """The fields are explained in builtin/trace.toml."""

    make: Callable[[Fields, str, Model], Edits]
    fields: Sequence[str]
    required: Sequence[str]
    words: str
    label: str
    about: str
    sides: str = ""

    def describe(self, fields: Fields) -> str:
        def part(match: re.Match[str]) -> str:
            name = match[2] or match[4]
            return "" if fields.get(name) is None else f"{match[1] or ''}{fields[name]}{match[3] or ''}"

        return re.sub(r"\[([^]{]*)\{(\w+)\}([^]]*)\]|\{(\w+)\}", part, self.words)

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "make"}


MAKERS = (zero_head, uniform, drop_scale, drop_positions, unmask_future, replace_token, edit, patch)
KINDS = {
    make.__name__: InterventionKind(make, **read_data("trace")["interventions"][make.__name__])
    for make in MAKERS
}
