"""A `model_type` of Hugging Face as tables for both directions: fields of config.json, and weights.

A row of the weights says which of our tensors one of theirs holds, and how: as it is, transposed, fused or
permuted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.config.reading import shown
from regard.errors import UsageError
from regard.mapped import is_view, release_pages
from regard.storage.files import Json

Tensors = dict[str, Tensor]
Fields = Mapping[str, str | tuple[str, Any]]  # theirs -> ours; with a default if a file may lack it
TOLERANCE = 5e-3  # of values up to one that were stored in half precision
MISMATCH, UNSUPPORTED = "E_MODEL_WEIGHTS", "E_MODEL_UNSUPPORTED"
_OLD_NAMES = {"gamma": "weight", "beta": "bias"}  # of the first released BERTs


@dataclass(frozen=True)
class Layout:
    """How one tensor of Hugging Face holds one or several of ours."""

    split: Callable[[Tensor], Sequence[Tensor]]  # theirs -> ours
    join: Callable[[Sequence[Tensor]], Tensor]  # ours -> theirs


SAME = Layout(lambda theirs: [theirs], lambda ours: ours[0])
# GPT-2 stores W as [in, out], and query, key and value side by side.
TRANSPOSED = Layout(lambda theirs: [theirs.mT], lambda ours: ours[0].mT)
FUSED = Layout(lambda theirs: theirs.chunk(3, dim=-1), lambda ours: torch.cat(list(ours), dim=-1))
FUSED_TRANSPOSED = Layout(
    lambda theirs: [part.mT for part in theirs.chunk(3, dim=-1)],
    lambda ours: torch.cat([part.mT for part in ours], dim=-1),
)


def permuted(axis: int, order: Tensor) -> Layout:
    """Along one axis theirs are ours[order]."""
    inverse = order.argsort()

    def select(tensor: Tensor, indices: Tensor) -> Tensor:
        if tensor.shape[axis : axis + 1] != indices.shape:
            raise ValueError(f"shape {list(tensor.shape)}, but the width of the model is {len(indices)}")
        return tensor.index_select(axis, indices.to(tensor.device))

    return Layout(lambda theirs: [select(theirs, inverse)], lambda ours: select(ours[0], order))


@dataclass(frozen=True)
class Row:
    theirs: str
    ours: tuple[str, ...]
    layout: Layout = SAME
    fallback: str | None = None  # their tensor to use where a file lacks `theirs`
    absent: Callable[[Mapping[str, Tensor]], Tensor | None] = lambda theirs: (
        None
    )  # or computed from the others


@dataclass(frozen=True)
class Table:
    """All tensors of one model: those that are used, and those that a file may hold besides."""

    rows: list[Row]
    prefix: str = ""  # of the base model inside a class with a head; a file without a head omits it
    tied: Mapping[str, str] = field(default_factory=dict)  # second name of a shared tensor -> its first
    zero: Mapping[str, Tensor] = field(default_factory=dict)  # theirs, which we do not have: must be zeros
    # theirs, which we compute: number of rows -> the tensor
    fixed: Mapping[str, Callable[[int], Tensor]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()  # patterns of tensors that do not change the result


def same(
    ours: str, theirs: str, parts: Iterable[str] = ("weight", "bias"), layout: Layout = SAME
) -> list[Row]:
    return [Row(f"{theirs}.{part}", (f"{ours}.{part}",), layout) for part in parts]


def tensors_to_hf(tensors: Mapping[str, Tensor], table: Table) -> Tensors:
    """Our weights under their names."""
    written = {}
    for row in table.rows:
        if missing := [name for name in row.ours if name not in tensors]:
            raise UsageError(f'the weights lack "{missing[0]}"', code=MISMATCH)
        written[row.theirs] = row.layout.join([tensors[name] for name in row.ours])
    if unknown := tensors.keys() - {name for row in table.rows for name in row.ours}:
        message = f'the weights hold "{min(unknown)}", which this architecture does not have'
        raise UsageError(message, code=MISMATCH)
    return {**written, **table.zero}


def tensors_from_hf(tensors: Mapping[str, Tensor], table: Table) -> Tensors:
    """Their weights under our names; an unknown, missing or misshapen tensor is an error that names it.

    The file's pages of tensors that were copied are released, so that a model is not in memory twice.
    """
    theirs = _with_prefix(table, tensors)
    weights: Tensors = {}
    for row in table.rows:
        tensor = theirs.get(row.theirs, theirs.get(row.fallback or ""))
        if tensor is None and (tensor := row.absent(theirs)) is None:
            raise UsageError(f'the tensor "{row.theirs}" is missing', code=MISMATCH)
        try:
            parts = row.layout.split(tensor)
        except (ValueError, IndexError, RuntimeError) as error:
            raise UsageError(f'the tensor "{row.theirs}" does not fit: {error}', code=MISMATCH) from None
        if len(parts) != len(row.ours):
            message = f'the tensor "{row.theirs}" has shape {list(tensor.shape)}, which does not fit'
            raise UsageError(message, code=MISMATCH)
        computed = [as_computed(part) for part in parts]
        weights |= zip(row.ours, computed, strict=True)
        if not any(is_view(part, tensor) for part in computed):
            release_pages(tensor)
    names = {row.theirs for row in table.rows}
    for name in sorted(theirs.keys() - names):
        _check_unused(name, theirs, table)
        release_pages(theirs[name])
    return weights


def _with_prefix(table: Table, tensors: Mapping[str, Tensor]) -> Tensors:
    """With the prefix of the base model, which a file that was saved without a head omits."""
    names = {row.theirs for row in table.rows} | table.tied.keys() | table.fixed.keys()
    named = {}
    for name, tensor in tensors.items():
        name = re.sub(r"LayerNorm\.(gamma|beta)$", lambda old: f"LayerNorm.{_OLD_NAMES[old[1]]}", name)
        named[table.prefix + name if name not in names and table.prefix + name in names else name] = tensor
    return named


def _check_unused(name: str, theirs: Tensors, table: Table) -> None:
    """Refuse a tensor without a row, unless it does not change the result."""
    wrong = None
    if name in table.tied:
        if not torch.equal(theirs[name], theirs.get(table.tied[name], theirs[name])):
            wrong = f'the tensor "{name}" should be tied to "{table.tied[name]}" but is not equal'
    elif name in table.zero:
        if bool(theirs[name].any()):
            wrong = f"{name} is not zero, which Regard does not support"
    elif name in table.fixed:
        expected = table.fixed[name](len(theirs[name]) if theirs[name].dim() else 0)
        fits = theirs[name].shape == expected.shape
        if not fits or not torch.allclose(theirs[name].float(), expected, atol=TOLERANCE):
            wrong = f'the tensor "{name}" is not what this architecture computes there'
    elif not any(re.fullmatch(f"(?:{re.escape(table.prefix)})?{each}", name) for each in table.unused):
        wrong = f'the tensor "{name}" is unknown: this architecture does not have it'
    if wrong:
        raise UsageError(wrong, code=MISMATCH)


def as_computed(tensor: Tensor) -> Tensor:
    """Half precision is a storage format; Regard computes in float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


# our name -> their names; the first is the one that is written
ACTIVATIONS = {
    "relu": ("relu",),
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh"),
    "swish": ("silu", "swish"),
}


@dataclass(frozen=True)
class Shape:
    """What decides the weights beside the config of the model."""

    joint: bool = True  # one vocabulary for both sides
    vocabulary: int = 0  # of the target
    head: str | None = "words"  # BERT's; None: an encoder without one


@dataclass(frozen=True)
class Architecture:
    """One `model_type`, for one of our families."""

    name: str
    family: str
    tasks: Mapping[str, str | None]  # class in `architectures` -> task; None: an encoder without a head
    fields: Fields
    table: Callable[[Any, Shape], Table]
    constants: Json = field(default_factory=dict)  # further fields that are written
    supported: Json = field(default_factory=dict)  # values that Regard computes with; others are refused
    write_more: Callable[[Any], Json] = lambda model: {}  # our config -> fields that are no copies
    read_more: Callable[[Json], Json] = lambda config: {}  # and back
    two_vocabularies: bool = False  # it can have one for each side

    def write(self, model: Any) -> Json:
        """Their fields of our config."""
        copies = {theirs: getattr(model, self._ours(theirs)) for theirs in self.fields}
        for theirs in copies:
            if self._ours(theirs) == "activation":
                copies[theirs] = ACTIVATIONS[copies[theirs]][0]
        return copies | self.constants | self.write_more(model)

    def read(self, config: Json) -> Json:
        """Our fields of their config; a field that changes the result must be one that Regard supports."""
        for theirs, value in self.supported.items():
            if config.get(theirs, value) not in (value, None):
                raise unsupported(theirs, config[theirs])
        copies: Json = {"family": self.family}
        for theirs, entry in self.fields.items():
            ours = self._ours(theirs)
            value = config[theirs] if isinstance(entry, str) else config.get(theirs, entry[1])
            copies[ours] = activation(value, theirs) if ours == "activation" else value
        return copies | self.read_more(config)

    def _ours(self, theirs: str) -> str:
        entry = self.fields[theirs]
        return entry if isinstance(entry, str) else entry[0]


def activation(name: object, theirs: str) -> str:
    """Our name of an activation."""
    for ours, names in ACTIVATIONS.items():
        if name in names:
            return ours
    raise UsageError(f"{theirs} = {shown(name)} is an activation that Regard does not have", code=UNSUPPORTED)


def unsupported(theirs: str, value: object) -> UsageError:
    return UsageError(f"{theirs} = {shown(value)} is not supported by Regard", code=UNSUPPORTED)
