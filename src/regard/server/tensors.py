"""Parts of a trace as bytes: one head, a small picture of a large matrix, numbers of one byte."""

from __future__ import annotations

import torch
from safetensors.torch import save
from torch import Tensor

from regard.errors import UsageError
from regard.interpret import Trace
from regard.interpret.predictions import max_pool
from regard.server.requests import TensorQuery

SHARES = (".weights", ".probabilities", ".mask")  # what lies between 0 and 1


def to_bytes(trace: Trace, query: TensorQuery) -> bytes:
    """A safetensors file of the named tensors; a pattern such as `*.weights` names several."""
    found = {name: part(trace, name, query) for name in chosen(trace, query.name)}
    return save({name: tensor.contiguous().clone() for name, tensor in found.items()})


def chosen(trace: Trace, patterns: list[str]) -> list[str]:
    names: dict[str, None] = {}
    for pattern in patterns:
        own = trace.names(pattern) if "*" in pattern else []
        if not own:
            _ = trace[pattern]  # an error that names the nearest
        names |= dict.fromkeys(own or [pattern])
    return list(names)


def part(trace: Trace, name: str, query: TensorQuery) -> Tensor:
    tensor = trace[name]
    if query.head is not None and tensor.dim() == 3:
        tensor = of_head(trace, name, tensor, query.head)
    if query.row is not None:
        tensor = one_of(name, tensor, "row", query.row, -2)
    if query.column is not None:
        tensor = one_of(name, tensor, "column", query.column, -1)
    if query.pool is not None:
        tensor = max_pool(tensor, query.pool)
    return in_bytes(name, tensor) if query.dtype == "U8" else tensor


def one_of(name: str, tensor: Tensor, what: str, number: int, dimension: int) -> Tensor:
    """A row of a matrix is what one place has, a column what all places have of one number; it stays one
    of a matrix, so that rows and columns can be asked for together."""
    if tensor.dim() < 2 or number >= tensor.shape[dimension]:
        size = tensor.shape[dimension] if tensor.dim() > 1 else 0
        raise UsageError(f"{what} = {number}: {name} has {size}, from 0 on")
    return tensor.narrow(dimension, number, 1)


def of_head(trace: Trace, name: str, tensor: Tensor, head: int) -> Tensor:
    """Keys and values may serve a group of heads each; a head's are those of its group."""
    queries = f"{name.rpartition('.')[0]}.query"
    heads = len(trace[queries]) if queries in trace and trace[queries].dim() == 3 else len(tensor)
    if head >= heads:
        raise UsageError(f"head = {head}: {name} has {heads} heads, from 0 on")
    return tensor[head * len(tensor) // heads]


def in_bytes(name: str, tensor: Tensor) -> Tensor:
    if not name.endswith(SHARES):
        raise UsageError(f"{name}: only shares (weights, probabilities, masks) fit into a byte; ask for F32")
    return (tensor.float() * 255).round().clamp(0, 255).to(torch.uint8)
