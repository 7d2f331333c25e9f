"""The files of Marian: .npz, and .bin (version 1): tensors by name, and the options of the model as YAML.

A file may come from anywhere: counts and sizes are compared with what is there before they are used, and a
.npz with anything but numbers (pickles) is refused.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from regard.config.reading import shown
from regard.errors import UsageError
from regard.mapped import map_file
from regard.storage.archive import open_zip

REFUSED = "E_MARIAN"
OPTIONS = "special:model.yml"
VERSION, MAX_TENSORS, MAX_AXES, MAX_NAME, MAX_OPTIONS = 1, 100_000, 8, 4096, 1 << 16
FLOAT32, INT8, BYTES = 0x0404, 0x4101, 0x0101  # numbers of Marian's types: float32, intgemm8, int8
SIZES = {FLOAT32: 4, INT8: 1, BYTES: 1}
NOT_TRANSPOSED = "Wemb"  # other matrices of bytes lie transposed, as products read them
_OPTION = re.compile(r"([A-Za-z0-9_-]+):(?:\s+(.*))?")


@dataclass(frozen=True)
class MarianFile:
    """Tensors of float32, and the options of the model."""

    path: Path
    tensors: Mapping[str, Tensor]
    options: Mapping[str, str]

    def refused(self, reason: str) -> UsageError:
        return refused(self.path, reason)


def refused(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path}: not a model of Marian that Regard reads ({reason})", code=REFUSED)


def find_model(place: Path) -> Path | None:
    """The model of Marian in a folder, or the file itself; None if there is none."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    models = [file for file in files if is_model(file)]
    if len(models) > 1:
        names = ", ".join(file.name for file in models)
        raise UsageError(f"{place} has several models ({names}); name one of these files", code=REFUSED)
    return models[0] if models else None


def is_model(file: Path) -> bool:
    if file.suffix == ".npz":
        return file.is_file()
    if file.suffix != ".bin" or not file.is_file():
        return False
    with file.open("rb") as content:
        version, count = struct.unpack("<QQ", content.read(16).ljust(16, b"\xff"))
    return bool(version == VERSION and count <= 1 << 32)


def read_model(path: Path) -> MarianFile:
    tensors, options = read_npz(path) if path.suffix == ".npz" else read_binary(path)
    return MarianFile(path, tensors, read_options(path, options))


def read_options(path: Path, content: bytes | None) -> dict[str, str]:
    """`name: value` of each line; lists are left out. Nothing else is written by Marian there."""
    if content is None:
        raise refused(path, f"it has no {OPTIONS}")
    try:
        lines = content.rstrip(b"\0").decode().split("\n")
    except UnicodeDecodeError:
        raise refused(path, f"{OPTIONS} is not UTF-8") from None
    matches = (_OPTION.fullmatch(line.rstrip()) for line in lines)
    return {match[1]: (match[2] or "").strip("\"'") for match in matches if match}


# --- .bin


class BinaryHeader:
    """A place in the bytes of a file."""

    def __init__(self, path: Path, content: Tensor) -> None:
        self.path, self.content, self.place = path, content, 0

    def take(self, size: int) -> Tensor:
        if size > len(self.content) - self.place:
            raise refused(self.path, "it ends too early")
        self.place += size
        return self.content[self.place - size : self.place]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")).numpy().tobytes())


def read_binary(path: Path) -> tuple[dict[str, Tensor], bytes | None]:
    """Version, count, for each tensor (length of name, type, axes, bytes); names; shapes; gap; data."""
    with path.open("rb") as file:
        header = BinaryHeader(path, map_file(file))
    version, count = header.numbers("QQ")
    if version != VERSION or count > MAX_TENSORS:
        raise refused(path, f"version {version} with {count:,} tensors")
    rows = [header.numbers("QQQQ") for _ in range(count)]
    if wrong := [row for row in rows if row[0] > MAX_NAME or row[2] > MAX_AXES]:
        raise refused(path, f"a name of {wrong[0][0]:,} bytes, or a tensor of {wrong[0][2]:,} axes")
    try:
        names = [header.take(row[0]).numpy().tobytes().rstrip(b"\0").decode() for row in rows]
    except UnicodeDecodeError:
        raise refused(path, "a name is not UTF-8") from None
    shapes = [header.numbers(f"{row[2]}i") for row in rows]
    (gap,) = header.numbers("Q")
    header.take(gap)
    tensors, options = dict[str, Tensor](), None
    for name, (_, kind, _, size), shape in zip(names, rows, shapes):
        data = header.take(size)
        count = math.prod(shape)
        if name == OPTIONS:
            options = bytes(data[:MAX_OPTIONS].tolist())
            continue
        if kind not in SIZES:
            raise refused(path, f"{shown(name)} is stored as type {kind:#x}, which is not read")
        scale = 4 if kind == INT8 else 0  # the factor follows the bytes
        if name in tensors or min(shape, default=1) < 0 or count * SIZES[kind] + scale > size:
            raise refused(path, f"{shown(name)} of shape {list(shape)} has {size:,} bytes, or occurs twice")
        if kind == FLOAT32:
            tensors[name] = data[: 4 * count].clone().view(torch.float32).view(shape)
        elif kind == INT8:
            tensors[name] = dequantized(path, name, data, shape)
    return tensors, options


def dequantized(path: Path, name: str, data: Tensor, shape: tuple[int, ...]) -> Tensor:
    """weight = byte / factor."""
    count = math.prod(shape)
    factor = data[count : count + 4].clone().view(torch.float32)
    if len(shape) != 2 or not bool(factor.isfinite() & (factor != 0)):
        raise refused(
            path, f"{shown(name)} of bytes has the shape {list(shape)} and the factor {float(factor):g}"
        )
    numbers = data[:count].view(torch.int8).float() / factor
    return numbers.view(shape) if name.endswith(NOT_TRANSPOSED) else numbers.view(shape[1], shape[0]).mT


# --- .npz


def read_npz(path: Path) -> tuple[dict[str, Tensor], bytes | None]:
    tensors, options = dict[str, Tensor](), None
    with open_zip(path, lambda reason: refused(path, reason)) as (archive, files):
        for file, info in files.items():
            name = file.removesuffix(".npy")
            with archive.open(info) as stream:
                try:
                    version = npy.read_magic(stream)
                    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                    shape, is_fortran, kind = read(stream)
                except ValueError:
                    raise refused(path, f"{shown(name)} is no array") from None
                if (
                    kind.hasobject
                    or kind.kind not in "fiub"
                    or math.prod(shape) * kind.itemsize > info.file_size
                ):
                    raise refused(path, f"{shown(name)} of shape {list(shape)} has the type {kind}")
                content = stream.read(math.prod(shape) * kind.itemsize)
            if name == OPTIONS:
                options = content[:MAX_OPTIONS]
                continue
            if len(content) != math.prod(shape) * kind.itemsize:
                raise refused(path, f"{shown(name)} ends too early")
            numbers = np.frombuffer(content, kind).reshape(shape, order="F" if is_fortran else "C")
            tensors[name] = torch.from_numpy(numbers.astype(np.float32))
    return tensors, options
