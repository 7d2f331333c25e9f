"""The one file that touches kernels outside torch's documented API.

Each is tried once on a small product: where it is missing, or gives something else than `F.linear`, nothing
is packed and the model's own layers serve.

oneDNN multiplies by weights that it has laid out for the processor beforehand. Measured (float32, 2 cores
with AVX512, torch 2.13; microseconds, plain / packed): 512x512 with 4 rows 59 / 32, 512x10000 with 4 rows
3028 / 247, with 32 rows 4809 / 1775. From two rows on, a row's bits do not depend on how many there are.

In int8, FBGEMM multiplies bytes by bytes and sums whole numbers, so that a row's bits depend on nothing else.
Measured there (float32 packed / int8): 512x2048 with 1 row 51 / 25, with 4 rows 69 / 33; 2048x512 with 128
rows 1289 / 439. oneDNN's own product of bytes is a plain loop on some processors (11 ms for 512x512).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.layers import keep_control_flow


def can_pack(weight: Tensor) -> bool:
    """Whether this machine packs this weight; if not, the model's own layers serve."""
    is_float = weight.dtype in (torch.float32, torch.bfloat16)
    return weight.device.type == "cpu" and is_float and packing_works(weight.dtype)


@cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether this build of torch has oneDNN's packed product, and it agrees with the plain one."""
    return _agrees(lambda weight, bias, x: packed_product(x, pack(weight), bias, "none", ""), dtype)


@cache
def can_quantize() -> bool:
    """Whether this build of torch multiplies bytes, and the product agrees with the plain one."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        return False
    products = (
        lambda weight, bias, x: Int8Product(weight, bias, 0.0, 0)(x),
        lambda weight, bias, x: Int8Product(weight, bias, 1 / 127, 128)(x),
        lambda weight, bias, x: Int8Product(weight, bias, 1 / 127, 128, relu=True)(x),
    )
    return all(map(_agrees, products))


def _agrees(product: Callable[[Tensor, Tensor, Tensor], Tensor], dtype: torch.dtype = torch.float32) -> bool:
    """Compare a kernel with `F.linear`; where it is missing or is called otherwise, it does not agree."""
    numbers = torch.arange(-1.0, 1.0, 1 / 128, device="cpu").cos().to(dtype)  # 256, all positive
    weight, bias, x = numbers.view(16, 16), numbers[:16], numbers[64:192].view(8, 16)
    try:
        with torch.inference_mode(False), torch.no_grad():
            return torch.allclose(product(weight, bias, x), F.linear(x, weight, bias), rtol=0.05)
    except Exception:  # of many kinds: no such operator, other arguments, not for this processor
        return False


def pack(weight: Tensor) -> Tensor:
    """[N,K] in the order in which the processor reads it; only `packed_product` understands it."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
    return packed


# TorchScript has no way to write an empty list of numbers, so oneDNN's product is given to it as a graph.
_PRODUCT = """graph(%x : Tensor, %weight : Tensor, %bias : Tensor?, %function : str, %form : str):
  %numbers : Scalar?[] = prim::ListConstruct()
  %y : Tensor = mkldnn::_linear_pointwise(%x, %weight, %bias, %function, %numbers, %form)
  return (%y)"""


PackedProduct = Callable[[Tensor, Tensor, Tensor | None, str, str], Tensor]
# oneDNN's names of the activations that a product can end with: the function and its form
POINTWISE = {
    "none": ("none", ""),
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
}


def _packed_product() -> PackedProduct:
    """act(W x + b) for W as `pack` laid it out, of two rows at least; if possible, for TorchScript, too."""
    try:
        graph = torch._C.parse_ir(_PRODUCT)
        made: PackedProduct = torch._C._create_function_from_graph("packed_product", graph)
        return made
    except (AttributeError, RuntimeError):
        return lambda x, weight, bias, function, form: torch.ops.mkldnn._linear_pointwise.default(
            x, weight, bias, function, [], form
        )


packed_product = _packed_product()


@keep_control_flow
def packed_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, width: int, function: str, form: str
) -> Tensor:
    """y = act(W x + b), whose result for a row does not depend on the number of rows: [...,K] -> [...,N]."""
    rows = x.numel() // x.shape[-1]
    if rows == 0:
        return x.new_zeros(list(x.shape[:-1]) + [width])  # noqa: RUF005  (TorchScript)
    if rows == 1:  # from two on, a row's bits do not depend on how many there are
        return packed_product(torch.cat([x, x]), weight, bias, function, form)[:1]
    return packed_product(x, weight, bias, function, form)


def trace(module: nn.Module, inputs: Sequence[Tensor]) -> Callable[..., Tensor] | None:
    """The operators that a module calls, recorded by TorchScript; None where it cannot or is not there."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated; shapes in Python values are constant
            traced: Callable[..., Tensor] = torch.jit.trace(module, tuple(inputs), check_trace=False)  # type: ignore[no-untyped-call]
            return traced
    except Exception:  # of many kinds: no TorchScript in this build, an operator that it does not know
        return None


def replay(traced: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Tensor:
    """Run recorded operators. Without TorchScript's optimiser, which gains nothing here and takes its time
    during the first calls with each new type of input."""
    with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        return traced(*inputs)


def quantize(weight: Tensor, bias: Tensor | None) -> object:
    """[N,K] as bytes with a scale for each of the N outputs, in FBGEMM's order; for `Int8Product` alone."""
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


class Int8Product(nn.Module):
    """y = W x + b, or max(0, y), in bytes: a scale for each output, and for the input a measured one or each
    row's own."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, scale: float, zero: int, relu: bool = False
    ) -> None:
        """x ~ scale * (byte - zero) for all rows; with scale 0 each row by its own largest number."""
        super().__init__()
        self.weight = quantize(weight, bias if scale else None)
        self.bias = None if scale else bias
        self.scale, self.zero, self.relu = scale, zero, relu
        self.tiny = torch.finfo(torch.float32).tiny

    def forward(self, x: Tensor) -> Tensor:
        if self.scale > 0 and self.relu:
            y: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_relu_output_fp32(
                x, self.scale, self.zero, self.weight
            )
            return y
        if self.scale > 0:
            y = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
                x, self.scale, self.zero, self.weight
            )
            return y
        largest = x.abs().amax(dim=-1, keepdim=True).clamp_min_(self.tiny)  # [...,1]
        y = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / largest, 1 / 127, 128, self.weight
        )
        y = y.mul_(largest) if self.bias is None else torch.addcmul(self.bias, y, largest, out=y)
        return y.relu_() if self.relu else y
