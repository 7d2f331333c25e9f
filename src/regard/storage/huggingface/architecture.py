"""A `model_type` of Hugging Face as tables for both directions: fields of config.json, weight names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.config.reading import shown
from regard.errors import UsageError
from regard.mapped import is_view, release_pages
from regard.storage.files import Json

Tensors = dict[str, Tensor]
Shapes = Mapping[str, Sequence[int]]  # of the parameters of our model
Fields = Mapping[str, str | tuple[str, Any]]  # theirs -> ours; with a default if a file may lack it
TOLERANCE = 5e-3  # of values up to one that were stored in half precision
MISMATCH, UNSUPPORTED = "E_MODEL_WEIGHTS", "E_MODEL_UNSUPPORTED"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # of a layer


@dataclass(frozen=True)
class Layout:
    """How a tensor of theirs is stored."""

    read: Callable[[Tensor], Tensor]  # theirs -> ours
    write: Callable[[Tensor], Tensor]  # ours -> theirs


SAME = Layout(lambda theirs: theirs, lambda ours: ours)
TRANSPOSED = Layout(lambda theirs: theirs.mT, lambda ours: ours.mT)
ONE_ROW = Layout(lambda theirs: theirs.flatten(), lambda ours: ours.unsqueeze(0))  # [1,V] there, [V] here


@dataclass(frozen=True)
class Table:
    """The tensors of one model: those that are used, and those that a file may hold besides.

    `names` has our modules, or single tensors of them, with the name of the same there; `*` is the number of
    the layer. What our model does not have is ignored. Modules with one name there are one tensor there,
    concatenated along the outputs in the order of the table.
    """

    names: Mapping[str, str]
    prefix: str = ""  # of the base model inside a class with a head; a file without a head omits it
    tied: Mapping[str, str] = field(default_factory=dict)  # second name of a shared tensor -> its first
    fallback: Mapping[str, str] = field(default_factory=dict)  # theirs -> the one to use where it is absent
    zero: tuple[str, ...] = ()  # theirs: zeros where it is absent, and where our model does not have it
    # theirs, which we compute: number of rows -> the tensor
    fixed: Mapping[str, Callable[[int], Tensor]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()  # patterns of tensors that do not change the result
    layouts: Mapping[str, Layout] = field(default_factory=dict)  # by a pattern of their names

    def rows(self, ours: Iterable[str]) -> dict[str, list[str]]:
        """Each tensor of theirs, with those of ours that it holds."""
        order = {name: place for place, name in enumerate(self.names)}
        groups: dict[str, list[tuple[int, str]]] = {}
        for name in ours:
            key, part = _NUMBER.sub("*", name), ""
            if key not in self.names:
                key, _, part = key.rpartition(".")
            if key not in self.names:
                message = f'the weights hold "{name}", which this architecture does not have'
                raise UsageError(message, code=MISMATCH)
            number = _NUMBER.search(name)
            theirs = self.names[key].replace("*", number[0] if number else "") + (part and f".{part}")
            groups.setdefault(theirs, []).append((order[key], name))
        return {theirs: [name for _, name in sorted(parts)] for theirs, parts in groups.items()}

    def layout(self, theirs: str) -> Layout:
        return next((each for name, each in self.layouts.items() if re.fullmatch(name, theirs)), SAME)


def modules(ours: str, theirs: str, names: Mapping[str, str]) -> dict[str, str]:
    """Names of a table for the modules inside of one."""
    return {f"{ours}.{our}": f"{theirs}.{their}" for our, their in names.items()}


def attention(ours: str, theirs: str, query: str, key: str, value: str, output: str) -> dict[str, str]:
    """Names of a table for the linear layers of an attention."""
    return modules(ours, theirs, {"query": query, "key": key, "value": value, "output": output})


def tensors_to_hf(tensors: Mapping[str, Tensor], table: Table) -> Tensors:
    """Our weights under their names."""
    written = {}
    for theirs, ours in table.rows(tensors).items():
        parts = [tensors[name] for name in ours]
        written[theirs] = table.layout(theirs).write(torch.cat(parts) if len(parts) > 1 else parts[0])
    return written


def tensors_from_hf(tensors: Mapping[str, Tensor], table: Table, shapes: Shapes) -> Tensors:
    """Their weights under our names; an unknown, missing or misshapen tensor is an error that names it.

    The file's pages of tensors that were copied are released, so that a model is not in memory twice.
    """
    rows = table.rows(shapes)
    theirs = _with_prefix(table, tensors, rows)
    weights: Tensors = {}
    for name, ours in rows.items():
        tensor = theirs.get(name, theirs.get(table.fallback.get(name, "")))
        if tensor is None and name in table.zero:
            weights |= {our: torch.zeros(*shapes[our]) for our in ours}
            continue
        if tensor is None:
            raise UsageError(f'the tensor "{name}" is missing', code=MISMATCH)
        try:
            whole = table.layout(name).read(tensor)
            parts = whole.chunk(len(ours)) if len(ours) > 1 else [whole]
            if len(parts) != len(ours):
                raise ValueError(f"its shape is {list(tensor.shape)}")
        except (ValueError, IndexError, RuntimeError) as error:
            raise UsageError(f'the tensor "{name}" does not fit: {error}', code=MISMATCH) from None
        computed = [as_computed(part) for part in parts]
        weights |= zip(ours, computed, strict=True)
        if not any(is_view(part, tensor) for part in computed):
            release_pages(tensor)
    for name in sorted(theirs.keys() - rows.keys()):
        if wrong := _not_ignorable(name, theirs, table, rows):
            raise UsageError(wrong, code=MISMATCH)
        release_pages(theirs[name])
    return weights


def _with_prefix(table: Table, tensors: Mapping[str, Tensor], rows: Mapping[str, object]) -> Tensors:
    """With the prefix of the base model, which a file that was saved without a head omits."""
    names = rows.keys() | table.tied.keys() | table.fixed.keys()
    named = {}
    for name, tensor in tensors.items():
        # of the first released BERTs
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        named[table.prefix + name if name not in names and table.prefix + name in names else name] = tensor
    return named


def _not_ignorable(name: str, theirs: Tensors, table: Table, rows: Mapping[str, object]) -> str:
    """Why a tensor without a row changes the result, "" if it does not."""
    tensor, first = theirs[name], table.tied.get(name, "")
    if any(re.fullmatch(f"(?:{re.escape(table.prefix)})?{each}", name) for each in table.unused):
        return ""
    if first in rows:
        is_equal = torch.equal(tensor, theirs.get(first, tensor))
        return "" if is_equal else f'the tensor "{name}" should be tied to "{first}" but is not equal'
    if name in table.zero:
        return f"{name} is not zero, which Regard does not support" if bool(tensor.any()) else ""
    if name in table.fixed:
        expected = table.fixed[name](len(tensor) if tensor.dim() else 0)
        is_close = tensor.shape == expected.shape and torch.allclose(tensor.float(), expected, atol=TOLERANCE)
        return "" if is_close else f'the tensor "{name}" is not what this architecture computes there'
    return f'the tensor "{name}" is unknown: this architecture does not have it'


def as_computed(tensor: Tensor) -> Tensor:
    """Half precision is a storage format; Regard computes in float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


# of config.json, as most types name them
SIZES: dict[str, str] = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feed_forward",
    "max_position_embeddings": "max_length",
}
# our name -> their names; the first is the one that is written
ACTIVATIONS = {
    "relu": ("relu",),
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh"),
    "swish": ("silu", "swish"),
}


@dataclass(frozen=True)
class Architecture:
    """One `model_type`, for one of our families."""

    name: str
    family: str
    tasks: Mapping[str, str | None]  # class in `architectures` -> task; None: an encoder without a head
    fields: Fields
    table: Table | Callable[[Shapes, str | None], Table]  # a function of our parameters and of the head
    constants: Json = field(default_factory=dict)  # further fields that are written
    supported: Json = field(default_factory=dict)  # values that Regard computes with; others are refused
    fixed: Json = field(default_factory=dict)  # both
    write_more: Callable[[Any], Json] = lambda model: {}  # our config -> fields that are no copies
    read_more: Callable[[Json], Json] = lambda config: {}  # and back
    # our weights as this architecture has them, if it computes the same in another way
    converted: Callable[[Any, Mapping[str, Tensor]], Mapping[str, Tensor]] = lambda model, weights: weights
    layouts_of: Callable[[Json], Mapping[str, Layout]] = lambda config: {}  # that depend on their config
    two_vocabularies: bool = False  # it can have one for each side
    # of models that read pictures or sounds
    input: str = "text"  # the kind of [input]
    processor: str = (
        ""  # their class that reads the files: an [input] that it cannot read has no architecture
    )
    write_input: Callable[[Any], Json] = lambda reader: {}  # [input] -> fields of config.json
    computed: Callable[[Any, Any], Tensors] = lambda model, reader: {}  # further tensors that are written
    objects: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of config.json, with fields in them

    def write(self, model: Any) -> Json:
        """Their fields of our config."""
        copies = {theirs: getattr(model, self._ours(theirs)) for theirs in self.fields}
        for theirs in copies:
            if self._ours(theirs) == "activation":
                copies[theirs] = ACTIVATIONS[copies[theirs]][0]
        return copies | self.constants | self.fixed | self.write_more(model)

    def read(self, config: Json) -> Json:
        """Our fields of their config; a field that changes the result must be one that Regard supports."""
        for theirs, value in {**self.supported, **self.fixed}.items():
            if config.get(theirs, value) not in (value, None):
                raise unsupported(theirs, config[theirs])
        copies: Json = {"family": self.family}
        for theirs, entry in self.fields.items():
            ours = self._ours(theirs)
            value = config[theirs] if isinstance(entry, str) else config.get(theirs, entry[1])
            value = activation(value, theirs) if ours == "activation" else value
            if copies.setdefault(ours, value) != value:  # one field of ours for both sides
                other = next(each for each in self.fields if self._ours(each) == ours)
                raise unsupported(f"{other} = {shown(config[other])} with {theirs}", value)
        return copies | self.read_more(config)

    def nested(self, config: Json) -> Json:
        """With the fields that belong into an object of the config."""
        whole = dict(config)
        for name, fields in self.objects.items():
            whole[name] = {**whole[name], **{each: whole.pop(each) for each in fields if each in whole}}
        return whole

    def flat(self, config: Json) -> Json:
        """The same fields beside the others."""
        whole = dict(config)
        for name, fields in self.objects.items():
            if isinstance(inner := config.get(name), dict):
                whole |= {each: inner[each] for each in fields if each in inner}
        return whole

    def _ours(self, theirs: str) -> str:
        entry = self.fields[theirs]
        return entry if isinstance(entry, str) else entry[0]

    def to_hf(self, model: Any, weights: Mapping[str, Tensor], reader: Any = None) -> Tensors:
        weights = self.converted(model, weights)
        shapes = {name: tensor.shape for name, tensor in weights.items()}
        written = tensors_to_hf(weights, self.table_of(shapes, model.head, self.write(model)))
        return written if reader is None else written | self.computed(model, reader)

    def table_of(self, shapes: Shapes, head: str | None, config: Json | None = None) -> Table:
        table = self.table if isinstance(self.table, Table) else self.table(shapes, head)
        more = {} if config is None else self.layouts_of(config)
        return replace(table, layouts={**table.layouts, **more})


def activation(name: object, theirs: str) -> str:
    """Our name of an activation."""
    for ours, names in ACTIVATIONS.items():
        if name in names:
            return ours
    raise UsageError(f"{theirs} = {shown(name)} is an activation that Regard does not have", code=UNSUPPORTED)


def unsupported(theirs: str, value: object) -> UsageError:
    return UsageError(f"{theirs} = {shown(value)} is not supported by Regard", code=UNSUPPORTED)


def read_first_position(config: Json) -> int:
    """Of types whose positions begin behind the one of padding."""
    padding = config.get("pad_token_id", 1)
    if type(padding) is not int or padding < 0:
        raise unsupported("pad_token_id", padding)
    return padding + 1


def write_first_position(model: Any) -> Json:
    return {"pad_token_id": model.first_position - 1}
