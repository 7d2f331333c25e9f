"""model.bin of CTranslate2: a list of variables with name, shape, type and numbers, all little-endian.

A file may come from anywhere, so each count is compared with what is left of the file before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from regard.config.reading import shown
from regard.errors import UsageError
from regard.mapped import map_file

MODEL, REFUSED = "model.bin", "E_IMPORT"
VERSIONS = range(4, 7)  # of the binary format
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
MOST_VARIABLES, MOST_AXES = 100_000, 8
Variables = dict[str, Tensor]


@dataclass
class Cursor:
    """A place in the bytes of a file."""

    content: Tensor  # uint8
    path: Path
    place: int = 0

    def take(self, size: int) -> Tensor:
        if size > len(self.content) - self.place:
            raise self.damaged("it ends too early")
        self.place += size
        return self.content[self.place - size : self.place]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", bytes(self.take(struct.calcsize(f"<{form}")).tolist()))

    def name(self) -> str:
        (size,) = self.numbers("H")  # the zero behind the characters included
        try:
            return bytes(self.take(size).tolist()).rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise self.damaged("a name is not UTF-8") from None

    def variable(self) -> tuple[str, Tensor]:
        name = self.name()
        (axes,) = self.numbers("B")
        if axes > MOST_AXES:
            raise self.damaged(f"{shown(name)} has {axes} axes")
        shape = self.numbers(f"{axes}I")
        kind, size = self.numbers("BI")
        if kind >= len(TYPES) or size != prod(shape) * TYPES[kind].itemsize:
            raise self.damaged(f"{shown(name)} of shape {list(shape)} and type {kind} has {size} bytes")
        data = self.take(size)
        aligned = data if (self.place - size) % TYPES[kind].itemsize == 0 else data.clone()
        return name, aligned.view(TYPES[kind]).view(shape)

    def damaged(self, reason: str) -> UsageError:
        return UsageError(f"{self.path}: not a model of CTranslate2 ({reason})", code=REFUSED)


def read_variables(path: Path, kinds: Container[str]) -> tuple[str, Variables]:
    """The kind of a model, which must be one of `kinds`, and its variables: mapped into memory, or if they
    are quantized as float32."""
    if not path.stat().st_size:
        raise UsageError(f"{path}: empty", code=REFUSED)
    with path.open("rb") as file:
        cursor = Cursor(map_file(file), path)
    (version,) = cursor.numbers("I")
    if version not in VERSIONS:
        raise cursor.damaged(f"version {version} of the format")
    kind = cursor.name()
    if kind not in kinds:
        message = f"{path}: a model of kind {shown(kind)}, which is not imported"
        raise UsageError(message, code=REFUSED)
    _, count = cursor.numbers("II")
    if count > MOST_VARIABLES:
        raise cursor.damaged(f"{count} variables")
    stored = dict(cursor.variable() for _ in range(count))
    names = [name for name in stored if not name.endswith("_scale")]
    variables = {name: dequantized(name, stored, cursor) for name in names}
    (count,) = cursor.numbers("I")
    for _ in range(min(count, MOST_VARIABLES)):
        alias, name = cursor.name(), cursor.name()
        if name not in stored:
            raise cursor.damaged(f"{shown(alias)} is another name of {shown(name)}, which is missing")
        if name in variables:
            variables[alias] = variables[name]
    return kind, variables


def dequantized(name: str, variables: Mapping[str, Tensor], cursor: Cursor) -> Tensor:
    """weight = integers / scale, with a scale for each output (int8) or one for all (int16)."""
    tensor, scale = variables[name], variables.get(f"{name}_scale")
    if scale is None:
        return tensor
    if tensor.dim() < 1 or scale.numel() not in (1, len(tensor)):
        raise cursor.damaged(f"{shown(name)} has {scale.numel()} scales")
    return tensor.float() / scale.float().reshape(-1, *[1] * (tensor.dim() - 1))


# several projections of one input are one matrix
JOINT: dict[tuple[str, str], Sequence[str]] = {
    ("self_attention", "linear_0"): ("query", "key", "value"),
    ("self_attention", "linear_1"): ("output",),
    ("attention", "linear_0"): ("query",),
    ("attention", "linear_1"): ("key", "value"),
    ("attention", "linear_2"): ("output",),
}
KINDS = {"gamma": "weight", "beta": "bias", "encodings": "weight"}


def parts_of(variables: Variables, path: Path) -> Iterator[tuple[str, str, str, str, Tensor]]:
    """Variable, layer ("" for none), module and parameter of each tensor:

    decoder/layer_3/attention/linear_1/bias -> "decoder", "3", "attention.key", "bias", and the same of value.
    """
    for name, tensor in variables.items():
        if not tensor.dim():  # a setting
            continue
        side, *middle, kind = name.split("/")
        kind = KINDS.get(kind, kind)
        match middle:
            case [module]:
                yield side, "", module, kind, tensor
            case [layer, "ffn", module]:
                yield side, layer.removeprefix("layer_"), f"ffn.{module}", kind, tensor
            case [layer, "self_attention" | "attention" as attention, module]:
                projections = JOINT.get((attention, module), (module,))
                if len(tensor) % len(projections):
                    raise UsageError(f"{path}: {shown(name)} does not fit", code=REFUSED)
                for projection, each in zip(projections, tensor.chunk(len(projections))):
                    yield side, layer.removeprefix("layer_"), f"{attention}.{projection}", kind, each
            case _:
                raise UsageError(f"{path}: {shown(name)} is unknown", code=REFUSED)


def scalar(variables: Variables, name: str) -> float | None:
    """A setting of the model, None if it is absent."""
    tensor = variables.get(name)
    return None if tensor is None or tensor.numel() != 1 else float(tensor.flatten()[0])
