"""The header of a GGUF file: metadata, and the name, shape, type and place of each tensor.

A file may come from anywhere. The `gguf` package takes counts as they are, and one of 2^60 keeps it busy for
ever; so the header is read here, and each count is compared with what is left of the file before it is used.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config.reading import LARGE, shown
from regard.errors import UsageError, extra
from regard.inputs.text.checks import MAX_TOKENS
from regard.mapped import map_file

REFUSED = "E_GGUF"
MAGIC, VERSIONS = b"GGUF", (2, 3)
ALIGNMENT = "general.alignment"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
MAX_ENTRIES, MAX_TENSORS, MAX_AXES = 10_000, 100_000, 4
MAX_SIZE = 1 << 40  # numbers of a tensor


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies, and how its numbers are stored."""

    shape: tuple[int, ...]  # as in torch: the last axis is contiguous
    kind: int  # of gguf's GGMLQuantizationType
    offset: int
    size: int  # bytes


@dataclass(frozen=True)
class GGUFFile:
    """A file whose header was read and fits its size."""

    path: Path
    content: Tensor  # uint8, mapped
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    def read(self, name: str) -> Tensor:
        """The numbers of a tensor: as they are stored, or dequantized to float32."""
        import numpy as np
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        info = self.tensors[name]
        raw = self.content[info.offset : info.offset + info.size]
        plain = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}.get(info.kind)
        if plain is not None:
            return raw.clone().view(plain).view(info.shape)
        kind = GGMLQuantizationType(info.kind)
        rows = raw.numpy().reshape(*info.shape[:-1], -1)
        try:
            with np.errstate(all="ignore"):  # of scales that are not finite
                numbers = np.array(dequantize(rows, kind))
        except NotImplementedError:
            raise self.damaged(f"{shown(name)} is stored as {kind.name}, which is not read") from None
        return torch.from_numpy(numbers).view(info.shape)

    def damaged(self, reason: str) -> UsageError:
        return damaged(self.path, reason)


def damaged(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path}: not a GGUF file that Regard reads ({reason})", code=REFUSED)


class Header:
    """A place in the first bytes of a file."""

    def __init__(self, path: Path, content: memoryview) -> None:
        self.path, self.content, self.place = path, content, 0

    def take(self, size: int) -> memoryview:
        if size > len(self.content) - self.place:
            raise damaged(self.path, "it ends too early")
        self.place += size
        return self.content[self.place - size : self.place]

    def numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def text(self) -> str:
        (size,) = self.numbers("Q")
        try:
            return bytes(self.take(size)).decode()
        except UnicodeDecodeError:
            raise damaged(self.path, "a text is not UTF-8") from None

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind in SCALARS:
            return self.numbers(SCALARS[kind])[0]
        if kind != ARRAY:
            raise damaged(self.path, f"a value of type {kind}")
        item, count = self.numbers("IQ")
        if count > MAX_TOKENS:
            raise damaged(self.path, f"a list of {count:,} values")
        if item in SCALARS:
            return list(self.numbers(f"{count}{SCALARS[item]}"))
        if item != TEXT:
            raise damaged(self.path, "a list of lists")
        return [self.text() for _ in range(count)]

    def tensor(self, sizes: Mapping[int, tuple[int, int]]) -> tuple[str, TensorInfo]:
        name = self.text()
        (axes,) = self.numbers("I")
        if not 1 <= axes <= MAX_AXES:
            raise damaged(self.path, f"{shown(name)} has {axes} axes")
        shape = self.numbers(f"{axes}Q")[::-1]
        kind, offset = self.numbers("IQ")
        if kind not in sizes:
            raise damaged(self.path, f"{shown(name)} is stored as type {kind}, which is unknown")
        block, size = sizes[kind]
        count = math.prod(shape)
        if not 0 < count <= MAX_SIZE or shape[-1] % block:
            raise damaged(self.path, f"{shown(name)} has the shape {list(shape)}")
        return name, TensorInfo(shape, kind, offset, count // block * size)


def read_header(path: Path) -> GGUFFile:
    """Open a file; nothing of it is in memory but the header."""
    with extra("gguf"):
        from gguf.constants import GGML_QUANT_SIZES
    if not path.is_file() or path.stat().st_size < len(MAGIC):
        raise damaged(path, "empty, or not an ordinary file")
    with path.open("rb") as file:
        content = map_file(file)
    begin: Any = content[: min(len(content), 4 * LARGE)].numpy()
    header = Header(path, memoryview(begin))
    if bytes(header.take(len(MAGIC))) != MAGIC:
        raise damaged(path, "it does not begin with GGUF")
    version, tensor_count, entry_count = header.numbers("IQQ")
    if version not in VERSIONS:
        raise damaged(path, f"version {version} of the format")
    if entry_count > MAX_ENTRIES or tensor_count > MAX_TENSORS:
        raise damaged(path, f"{entry_count:,} entries and {tensor_count:,} tensors")
    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        name = header.text()
        metadata[name] = header.value(header.numbers("I")[0])
    sizes = {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}
    tensors = dict(header.tensor(sizes) for _ in range(tensor_count))
    if len(metadata) != entry_count or len(tensors) != tensor_count:
        raise damaged(path, "a name occurs twice")
    placed = with_places(path, tensors, header.place, metadata.get(ALIGNMENT, 32), len(content))
    return GGUFFile(path, content, metadata, placed)


def with_places(
    path: Path, tensors: Mapping[str, TensorInfo], end: int, alignment: object, size: int
) -> dict[str, TensorInfo]:
    """Tensors with offsets from the beginning of the file; none lies outside of it, and no two overlap."""
    if type(alignment) is not int or not 0 < alignment <= 1 << 16 or alignment & (alignment - 1):
        raise damaged(path, f"an alignment of {shown(alignment)}")
    first = -(-end // alignment) * alignment
    placed, free = dict[str, TensorInfo](), first
    for name, info in sorted(tensors.items(), key=lambda each: each[1].offset):
        begin = first + info.offset
        if begin < free or info.offset % alignment or begin + info.size > size:
            raise damaged(path, f"{shown(name)} lies outside of the file, or on another tensor")
        free = begin + info.size
        placed[name] = TensorInfo(info.shape, info.kind, begin, info.size)
    return placed
