"""The one file that touches kernels outside the documented API; where they are missing, nothing is packed.

oneDNN multiplies by weights that it has laid out for the processor beforehand. Measured (float32, 2 cores
with AVX512, torch 2.13; microseconds, plain / packed): 512x512 with 4 rows 59 / 32, 512x10000 with 4 rows
3028 / 247, with 32 rows 4809 / 1775. From two rows on, a row's bits do not depend on how many there are.
"""

from __future__ import annotations

import torch
from torch import Tensor

FEWEST_ROWS = 2


def can_pack(weight: Tensor) -> bool:
    """Whether this machine packs this weight; if not, the model's own layers serve."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def pack(weight: Tensor) -> Tensor:
    """[N,K] in the order in which the processor reads it; only `packed_linear` understands it."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
    return packed


def packed_linear(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """y = W x + b: [...,K] -> [...,N]."""
    rows = x.shape[:-1].numel()
    if rows >= FEWEST_ROWS:
        return _multiply(x, packed, bias)
    if rows == 0:
        return x.new_zeros((*x.shape[:-1], packed.shape[0]))
    return _multiply(x.reshape(1, -1).expand(FEWEST_ROWS, -1), packed, bias)[:1].view(*x.shape[:-1], -1)


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "none", [], "")
    return y
