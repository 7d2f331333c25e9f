"""Weights made ready once: laid out for the processor, in the precision that was chosen.

Bytes need to know how far the numbers reach that a product reads. `measure` finds it on texts; where nobody
did, each row is scaled by its own largest number, which is as right and takes longer. Neither lets a sentence
change its neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch
from regard.errors import UsageError
from regard.generation.kernels import Int8Product, can_pack, can_quantize, pack, packed_product
from regard.mapped import release_pages
from regard.models.layers import pad_rows, unpad_rows

Precision = Literal["auto", "float32", "bfloat16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
ActivationRange = tuple[float, float]  # the smallest and the largest number that a product reads
Calibration = Mapping[str, ActivationRange]
WORTH_PACKING = 1 << 17  # numbers in a weight; for smaller ones the call costs more than the product


class Packing:
    """Makes linear maps of a model's own ones."""

    def __init__(
        self, model: nn.Module, precision: str = "float32", calibration: Calibration | None = None
    ) -> None:
        # by identity: a module that was packed must not be kept, with its weights, until the last one is
        self.names = {id(module): name for name, module in model.named_modules()}
        self.words = {m.weight.data_ptr() for m in model.modules() if isinstance(m, nn.Embedding)}
        self.precision, self.calibration = precision, calibration or {}

    def __call__(self, *parts: nn.Linear, relu: bool = False) -> nn.Module:
        """Several linear maps of the same input as one, followed by a ReLU if there is one."""
        weights = [part.weight.detach() for part in parts]
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        biases = [part.bias.detach() for part in parts if part.bias is not None]
        bias = torch.cat(biases) if biases else None
        made = self.made(weight, bias, self.names[id(parts[0])], relu)
        for each in weights:
            release_pages(
                each, in_use=each.data_ptr() in self.words
            )  # looked up where they are the output, too
        return made

    def made(self, weight: Tensor, bias: Tensor | None, name: str, relu: bool) -> nn.Module:
        if self.precision == "int8":
            return Int8Linear(weight, bias, self.calibration.get(name), relu)
        return PackedLinear(weight, bias, getattr(torch, self.precision), relu)


class PackedLinear(nn.Module):
    """y = W x + b, or max(0, y), with W in the processor's order."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, relu: bool = False) -> None:
        super().__init__()
        self.relu = relu
        self.packs = weight.numel() >= WORTH_PACKING
        self.dtype = dtype if self.packs else torch.float32
        self.width = len(weight)
        self.weight = pack(weight.to(self.dtype)) if self.packs else weight.clone()  # the file's is let go
        self.bias = None if bias is None else bias.to(self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[...,K] -> [...,N]; what a row gives does not depend on the number of rows."""
        if not self.packs:
            y = unpad_rows(F.linear(pad_rows(x), self.weight, self.bias), x)
            return y.relu_() if self.relu else y
        rows = x.numel() // x.shape[-1]
        if rows == 0:
            return x.new_zeros(list(x.shape[:-1]) + [self.width])  # noqa: RUF005  (TorchScript)
        x = x.to(self.dtype)
        if rows == 1:  # from two on, a row's bits do not depend on how many there are
            y = packed_product(torch.cat([x, x]), self.weight, self.bias)[:1].float()
        else:
            y = packed_product(x, self.weight, self.bias).float()
        return y.relu_() if self.relu else y


class Int8Linear(Int8Product):
    """y = W x + b in bytes, by how far the input reaches."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, reach: ActivationRange | None, relu: bool = False
    ) -> None:
        super().__init__(weight, bias, *(scale_of(reach) if reach else (0.0, 0)), relu)


def scale_of(reach: ActivationRange) -> tuple[float, int]:
    """256 steps from the smallest to the largest number; zero is one of them, as masks and ReLU make many."""
    low, high = min(reach[0], 0.0), max(reach[1], 0.0)
    scale = max(high - low, 1e-6) / 255
    return scale, round(-low / scale)


def choose_precision(requested: str, model: nn.Module, calibration: Calibration | None) -> str:
    """`auto` is int8 where a folder says how far its numbers reach, as somebody measured; else float32."""
    if requested not in PRECISIONS:
        raise UsageError(
            f'precision "{requested}" is unknown; use {", ".join(PRECISIONS)}', code="E_PRECISION"
        )
    device = next(model.parameters()).device
    bytes_here = device.type == "cpu" and can_quantize()
    if requested == "auto":
        return "int8" if calibration and bytes_here else "float32"
    if requested == "int8" and not bytes_here:
        raise UsageError(
            "precision int8 needs a CPU for which torch has FBGEMM; use float32", code="E_PRECISION"
        )
    if requested == "bfloat16" and not can_pack(torch.empty(0, dtype=torch.bfloat16, device=device)):
        raise UsageError(
            "precision bfloat16 needs a CPU for which torch has oneDNN; use float32", code="E_PRECISION"
        )
    return requested


def pack_linears(model: nn.Module, packing: Packing) -> None:
    """Every linear map of a model, each by itself, in place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, packing(child))


@torch.no_grad()
def activation_ranges(model: nn.Module, batches: Iterable[Batch]) -> dict[str, ActivationRange]:
    """How far the numbers reach that each linear map of a model reads on these texts."""
    ranges: dict[str, ActivationRange] = {}

    def look(name: str, x: Tensor) -> None:
        low, high = (float(each) for each in x.aminmax())
        before = ranges.get(name, (low, high))
        ranges[name] = (min(before[0], low), max(before[1], high))

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
    return ranges
