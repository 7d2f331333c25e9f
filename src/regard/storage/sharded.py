"""Tensors that several ranks write, each its part, in safetensors files that any number of ranks read.

The files are those of torch.distributed.checkpoint (DCP): the header holds where each part begins in its
full tensor, as `HuggingFaceStorageWriter` writes it, and DCP's `HuggingFaceStorageReader` reads them. DCP
itself is not called: its planners exchange pickles among the ranks, its other writers store one, and its
files would not go through `files.py`, which syncs them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from regard.checksums import sha256_of
from regard.errors import CheckpointError
from regard.storage.checkpoint import KINDS
from regard.storage.files import Json, write_new
from regard.storage.weights import open_safetensors, read_safetensors

OFFSETS_KEY = "DCP_SHARDING_INFO"
NAME = re.compile(r"(model|optimizer)-(\d{5})-of-(\d{5})\.safetensors")
Shape = Sequence[int]


@dataclass(frozen=True)
class TensorShard:
    """A part of a tensor, and where it begins in the full one."""

    tensor: Tensor
    offsets: Shape


def shard_name(kind: str, rank: int, world_size: int) -> str:
    return f"{kind}-{rank + 1:05d}-of-{world_size:05d}.safetensors"


def shard_names(names: Sequence[str]) -> list[str] | None:
    """The files of all ranks for the tensors of a checkpoint, if these names are such and none is missing."""
    matches = [match for name in names if (match := NAME.fullmatch(name))]
    if not matches:
        return None
    world_size = int(matches[0][3])
    every = [shard_name(kind, rank, world_size) for kind in KINDS for rank in range(world_size)]
    return every if sorted(match[0] for match in matches) == sorted(every) else None


def write_shard(path: Path, shards: Mapping[str, TensorShard]) -> Json:
    """Write the parts of one rank, durable when this returns; returns the entry of the manifest."""
    tensors = {name: each.tensor.detach().cpu().contiguous() for name, each in shards.items()}
    offsets = {name: {"saved_offsets": list(each.offsets)} for name, each in shards.items()}
    header = {"format": "pt", "DCP_VERSION": "1.0", OFFSETS_KEY: json.dumps(offsets)}
    content = save(tensors, header)
    write_new(path, content)
    return {"bytes": len(content), "sha256": sha256_of(content)}


class ShardedTensors(Mapping[str, Tensor]):
    """The full tensors of such files, each put together on access; the files are mapped into memory."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.shards: dict[str, list[TensorShard]] = {}
        for path in files:
            tensors = read_safetensors(path)
            for name, offsets in read_offsets(path, tensors).items():
                self.shards.setdefault(name, []).append(TensorShard(tensors[name], offsets))
        self.shapes = {name: full_shape(name, shards, files[0]) for name, shards in self.shards.items()}

    def __getitem__(self, name: str) -> Tensor:
        shape = self.shapes[name]
        return self.region(name, [0] * len(shape), shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shards)

    def __len__(self) -> int:
        return len(self.shards)

    def region(self, name: str, offsets: Shape, shape: Shape) -> Tensor:
        """A part of a tensor; of the files only the pages that overlap it are read."""
        shards = self.shards[name]
        result = torch.empty(tuple(shape), dtype=shards[0].tensor.dtype)
        for each in shards:
            starts = [max(pair) for pair in zip(offsets, each.offsets)]
            ends = [
                min(start + size, other + length)
                for start, size, other, length in zip(offsets, shape, each.offsets, each.tensor.shape)
            ]
            if all(start < end for start, end in zip(starts, ends)):
                target, source = (
                    tuple(slice(start - first, end - first) for start, end, first in zip(starts, ends, begin))
                    for begin in (offsets, each.offsets)
                )
                result[target] = each.tensor[source]
        return result


def region(tensors: Mapping[str, Tensor], name: str, offsets: Shape, shape: Shape) -> Tensor:
    """A part of one of some tensors."""
    if isinstance(tensors, ShardedTensors):
        return tensors.region(name, offsets, shape)
    return tensors[name][tuple(slice(start, start + size) for start, size in zip(offsets, shape))]


def read_offsets(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Where each part in a file begins; a file of full tensors has no such entry."""
    with open_safetensors(path) as header:
        text = (header.metadata() or {}).get(OFFSETS_KEY)
    if text is None:
        return {name: [0] * tensor.dim() for name, tensor in tensors.items()}
    try:
        offsets = {name: entry["saved_offsets"] for name, entry in json.loads(text).items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        offsets = {}
    if offsets.keys() != tensors.keys() or not all(
        isinstance(each, list)
        and len(each) == tensors[name].dim()
        and all(type(start) is int and start >= 0 for start in each)
        for name, each in offsets.items()
    ):
        raise CheckpointError(f"{path}: its header does not say where its tensors begin ({OFFSETS_KEY})")
    return offsets


def full_shape(name: str, shards: Sequence[TensorShard], place: Path) -> tuple[int, ...]:
    """Of the tensor that the shards are parts of; all of it must be there once."""
    ends = [[start + size for start, size in zip(each.offsets, each.tensor.shape)] for each in shards]
    shape = tuple(map(max, zip(*ends)))
    dtypes = {each.tensor.dtype for each in shards}
    if sum(each.tensor.numel() for each in shards) != math.prod(shape) or len(dtypes) != 1:
        raise CheckpointError(f'{place.parent}: the parts of the tensor "{name}" do not make a whole')
    return shape
