"""The one file that touches kernels outside the documented API; where they are missing, nothing is packed.

oneDNN multiplies by weights that it has laid out for the processor beforehand. Measured (float32, 2 cores
with AVX512, torch 2.13; microseconds, plain / packed): 512x512 with 4 rows 59 / 32, 512x10000 with 4 rows
3028 / 247, with 32 rows 4809 / 1775. From two rows on, a row's bits do not depend on how many there are.

In int8, FBGEMM multiplies bytes by bytes and sums whole numbers, so that a row's bits depend on nothing else.
Measured there (float32 packed / int8): 512x2048 with 1 row 51 / 25, with 4 rows 69 / 33; 2048x512 with 128
rows 1289 / 439. oneDNN's own product of bytes is a plain loop on some processors (11 ms for 512x512).
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

FEWEST_ROWS = 2
ZERO = 128  # the byte of a row's own zero: bytes have no sign


def can_pack(weight: Tensor) -> bool:
    """Whether this machine packs this weight; if not, the model's own layers serve."""
    return (
        weight.device.type == "cpu"
        and weight.dtype in (torch.float32, torch.bfloat16)
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


def can_quantize() -> bool:
    """Whether this machine multiplies bytes."""
    return "fbgemm" in torch.backends.quantized.supported_engines and hasattr(
        torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32"
    )


def quantize(weight: Tensor, bias: Tensor | None) -> object:
    """[N,K] as bytes with a scale for each of the N outputs, in FBGEMM's order; for `byte_linear` alone."""
    scale = weight.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / 127  # [N]
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        in_bytes = _in_bytes(weight, scale)
        return torch.ops.quantized.linear_prepack(in_bytes, bias)
    finally:
        torch.backends.quantized.engine = before


def _in_bytes(weight: Tensor, scale: Tensor) -> Tensor:
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.quantize_per", UserWarning)  # on its way out: `can_quantize`
        return torch.quantize_per_channel(weight.detach().float(), scale.double(), zeros, 0, torch.qint8)


def byte_linear(x: Tensor, packed: object, scale: float, zero: int) -> Tensor:
    """y = W x + b with x rounded to bytes: x ~ scale * (byte - zero), the same for all rows."""
    y: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default(
        x, scale, zero, packed
    )
    return y


def byte_linear_relu(x: Tensor, packed: object, scale: float, zero: int) -> Tensor:
    """max(0, W x + b), while the numbers are at hand."""
    y: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_relu_output_fp32.default(
        x, scale, zero, packed
    )
    return y


def byte_linear_by_row(x: Tensor, packed: object) -> Tensor:
    """y = W x where each row of x is rounded to bytes by its own largest number."""
    largest = x.abs().amax(dim=-1, keepdim=True).clamp_min_(torch.finfo(torch.float32).tiny)  # [...,1]
    return byte_linear(x / largest, packed, 1 / 127, ZERO).mul_(largest)
