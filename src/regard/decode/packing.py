"""Weights made ready once: laid out for the processor, in the precision that was chosen.

Bytes need to know how far the numbers reach that a product reads. `measure` finds it on texts; where nobody
did, each row is scaled by its own largest number, which is as right and takes longer. Neither lets a sentence
change its neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regard.data import Batch
from regard.decode.kernels import (
    byte_linear,
    byte_linear_by_row,
    byte_linear_relu,
    can_pack,
    can_quantize,
    pack,
    packed_linear,
    quantize,
)
from regard.errors import UsageError
from regard.model.layers import steady_linear

Precision = Literal["auto", "float32", "bfloat16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
Reach = tuple[float, float]  # the smallest and the largest number that a product reads
Reaches = Mapping[str, Reach]
WORTH_PACKING = 1 << 17  # numbers in a weight; for smaller ones the call costs more than the product


class Packing:
    """Makes linear maps of a model's own ones."""

    def __init__(self, model: nn.Module, precision: str = "float32", reaches: Reaches | None = None) -> None:
        self.names = {module: name for name, module in model.named_modules()}
        self.precision, self.reaches = precision, reaches or {}

    def __call__(self, *parts: nn.Linear) -> nn.Module:
        """Several linear maps of the same input as one."""
        weight = torch.cat([part.weight.detach() for part in parts])
        biases = [part.bias.detach() for part in parts if part.bias is not None]
        bias = torch.cat(biases) if biases else None
        if self.precision == "int8":
            return ByteLinear(weight, bias, self.reaches.get(self.names[parts[0]]))
        return PackedLinear(weight, bias, getattr(torch, self.precision))


class PackedLinear(nn.Module):
    """y = W x + b, with W in the processor's order."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        packs = weight.numel() >= WORTH_PACKING
        self.dtype = dtype if packs else torch.float32
        self.weight = pack(weight.to(self.dtype)) if packs else weight
        self.bias = None if bias is None else bias.to(self.dtype)
        self.multiply = packed_linear if packs else steady_linear

    def forward(self, x: Tensor) -> Tensor:
        if self.dtype == torch.float32:
            return self.multiply(x, self.weight, self.bias)
        return self.multiply(x.to(self.dtype), self.weight, self.bias).float()


class ByteLinear(nn.Module):
    """y = W x + b in bytes: a scale for each output, and for the input a measured one or each row's own."""

    def __init__(self, weight: Tensor, bias: Tensor | None, reach: Reach | None) -> None:
        super().__init__()
        self.weight = quantize(weight, bias if reach else None)
        self.bias = None if reach else bias
        self.scale, self.zero = scale_of(reach) if reach else (0.0, 0)

    def forward(self, x: Tensor) -> Tensor:
        if self.scale:
            return byte_linear(x, self.weight, self.scale, self.zero)
        y = byte_linear_by_row(x, self.weight)
        return y if self.bias is None else y.add_(self.bias)

    def rectified(self, x: Tensor) -> Tensor:
        """max(0, W x + b)."""
        if self.scale:
            return byte_linear_relu(x, self.weight, self.scale, self.zero)
        return self.forward(x).relu_()


def scale_of(reach: Reach) -> tuple[float, int]:
    """256 steps from the smallest to the largest number; zero is one of them, as masks and ReLU make many."""
    low, high = min(reach[0], 0.0), max(reach[1], 0.0)
    scale = max(high - low, 1e-6) / 255
    return scale, round(-low / scale)


def choose_precision(wish: str, model: nn.Module, reaches: Reaches | None) -> str:
    """`auto` is int8 where a folder says how far its numbers reach, as somebody measured; else float32."""
    if wish not in PRECISIONS:
        raise UsageError(f'precision "{wish}" is unknown; use {", ".join(PRECISIONS)}')
    device = next(model.parameters()).device
    bytes_here = device.type == "cpu" and can_quantize()
    if wish == "auto":
        return "int8" if reaches and bytes_here else "float32"
    if wish == "int8" and not bytes_here:
        raise UsageError("precision int8 needs a CPU for which torch has FBGEMM; use float32")
    if wish == "bfloat16" and not can_pack(torch.empty(0, dtype=torch.bfloat16, device=device)):
        raise UsageError("precision bfloat16 needs a CPU for which torch has oneDNN; use float32")
    return wish


def pack_linears(model: nn.Module, packing: Packing) -> None:
    """Every linear map of a model, each by itself, in place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, packing(child))


@torch.no_grad()
def measure(model: nn.Module, batches: Iterable[Batch]) -> dict[str, Reach]:
    """How far the numbers reach that each linear map of a model reads on these texts."""
    found: dict[str, Reach] = {}

    def look(name: str, x: Tensor) -> None:
        low, high = (float(each) for each in x.aminmax())
        before = found.get(name, (low, high))
        found[name] = (min(before[0], low), max(before[1], high))

    hooks = [
        module.register_forward_pre_hook(lambda _, args, name=name: look(name, args[0]))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        for batch in batches:
            model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return found
