"""Weight names as a table that is used in both directions: ours to Hugging Face's, theirs to ours.

A row says which of our tensors one of theirs holds, and how: as it is, turned, fused or permuted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.mapped import is_view, let_go

Tensors = dict[str, Tensor]
ROUNDED = 5e-3  # numbers up to one that were stored as halves
_OLD = {"gamma": "weight", "beta": "bias"}  # names of the first released BERTs


@dataclass(frozen=True)
class Form:
    """How one of their tensors holds ours."""

    take: Callable[[Tensor], Sequence[Tensor]]  # theirs -> ours
    give: Callable[[Sequence[Tensor]], Tensor]  # ours -> theirs


SAME = Form(lambda theirs: [theirs], lambda ours: ours[0])
# GPT-2 keeps W as [in, out], and the three maps of an attention side by side.
TURNED = Form(lambda theirs: [theirs.mT], lambda ours: ours[0].mT)
FUSED = Form(lambda theirs: theirs.chunk(3, dim=-1), lambda ours: torch.cat(list(ours), dim=-1))
FUSED_TURNED = Form(
    lambda theirs: [part.mT for part in theirs.chunk(3, dim=-1)],
    lambda ours: torch.cat([part.mT for part in ours], dim=-1),
)


def permuted(axis: int, order: Tensor) -> Form:
    """Along one axis theirs stand as ours[order]."""
    back = order.argsort()

    def along(tensor: Tensor, places: Tensor) -> Tensor:
        if tensor.shape[axis : axis + 1] != places.shape:
            raise ValueError(f"shape {list(tensor.shape)}, but the width of the model is {len(places)}")
        return tensor.index_select(axis, places.to(tensor.device))

    return Form(lambda theirs: [along(theirs, back)], lambda ours: along(ours[0], order))


@dataclass(frozen=True)
class Row:
    theirs: str
    ours: tuple[str, ...]
    form: Form = SAME
    instead: str | None = None  # what serves where a file does not have it
    absent: Callable[[Mapping[str, Tensor]], Tensor | None] = lambda theirs: None  # or this, of the others


@dataclass(frozen=True)
class Table:
    """All tensors of one model: those that count, and those that may be there besides."""

    rows: list[Row]
    prefix: str = ""  # of the body inside a class with a head; a file without a head does not write it
    tied: Mapping[str, str] = field(default_factory=dict)  # their second name of a tensor that is shared
    zero: Mapping[str, Tensor] = field(default_factory=dict)  # theirs, which we have only as zeros
    # theirs, which we compute: so many rows of it
    fixed: Mapping[str, Callable[[int], Tensor]] = field(default_factory=dict)
    spare: tuple[str, ...] = ()  # patterns of what changes no number


def same(ours: str, theirs: str, parts: Iterable[str] = ("weight", "bias"), form: Form = SAME) -> list[Row]:
    return [Row(f"{theirs}.{part}", (f"{ours}.{part}",), form) for part in parts]


def to_theirs(tensors: Mapping[str, Tensor], table: Table) -> Tensors:
    found = {}
    for row in table.rows:
        if missing := [name for name in row.ours if name not in tensors]:
            raise UsageError(f'the weights lack "{missing[0]}"')
        found[row.theirs] = row.form.give([tensors[name] for name in row.ours])
    if unknown := tensors.keys() - {name for row in table.rows for name in row.ours}:
        raise UsageError(f'the weights hold "{min(unknown)}", which this kind of model does not have')
    return {**found, **table.zero}


def to_ours(tensors: Mapping[str, Tensor], table: Table) -> Tensors:
    """Their weights under our names; an unknown, missing or misshapen tensor is an error that names it.

    Of what had to be copied the file's pages are let go, so that a model is not in memory twice.
    """
    theirs = _as_in(table, tensors)
    found: Tensors = {}
    for row in table.rows:
        tensor = theirs.get(row.theirs, theirs.get(row.instead or ""))
        if tensor is None and (tensor := row.absent(theirs)) is None:
            raise UsageError(f'the tensor "{row.theirs}" is missing')
        try:
            parts = row.form.take(tensor)
        except (ValueError, IndexError, RuntimeError) as error:
            raise UsageError(f'the tensor "{row.theirs}" does not fit: {error}') from None
        if len(parts) != len(row.ours):
            raise UsageError(f'the tensor "{row.theirs}" has shape {list(tensor.shape)}, which does not fit')
        own = [as_computed(part) for part in parts]
        found |= zip(row.ours, own, strict=True)
        if not any(is_view(part, tensor) for part in own):
            let_go(tensor)
    known = {row.theirs for row in table.rows}
    for name in sorted(theirs.keys() - known):
        _pass_over(name, theirs, table)
        let_go(theirs[name])
    return found


def _as_in(table: Table, tensors: Mapping[str, Tensor]) -> Tensors:
    """With the prefix of the body, which a file that was saved without a head does not write."""
    known = {row.theirs for row in table.rows} | table.tied.keys() | table.fixed.keys()
    found = {}
    for given, tensor in tensors.items():
        name = re.sub(r"LayerNorm\.(gamma|beta)$", lambda old: f"LayerNorm.{_OLD[old[1]]}", given)
        found[table.prefix + name if name not in known and table.prefix + name in known else name] = tensor
    return found


def _pass_over(name: str, theirs: Tensors, table: Table) -> None:
    """Nothing, if a tensor without a row is one that changes no number; else an error."""
    if name in table.tied:
        if not torch.equal(theirs[name], theirs.get(table.tied[name], theirs[name])):
            raise UsageError(f'the tensor "{name}" should be tied to "{table.tied[name]}" but is not equal')
    elif name in table.zero:
        if bool(theirs[name].any()):
            raise UsageError(f"{name} is not zero, which Regard cannot use")
    elif name in table.fixed:
        expected = table.fixed[name](len(theirs[name]) if theirs[name].dim() else 0)
        fits = theirs[name].shape == expected.shape
        if not fits or not torch.allclose(theirs[name].float(), expected, atol=ROUNDED):
            raise UsageError(f'the tensor "{name}" is not what this kind of model computes there')
    elif not any(re.fullmatch(f"(?:{re.escape(table.prefix)})?{spare}", name) for spare in table.spare):
        raise UsageError(f'the tensor "{name}" is unknown: this kind of model does not have it')


def as_computed(tensor: Tensor) -> Tensor:
    """Halves are a form of storage; we compute with them as float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
