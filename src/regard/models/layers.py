"""Parts of a block: linear maps, feed-forward, dropout, residual connections (post-norm or pre-norm)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A tap is a hook that receives the intermediate tensors of one run by name, and may replace them. Code with
# hooks takes `tap: Tap | None = None`. Without a tap the fused path runs and nothing is recorded; with one
# each intermediate tensor passes through `tap(name, tensor)`.


class Tap(Protocol):
    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """Receive a tensor; the model continues with the returned one."""
        ...

    def within(self, name: str) -> Tap:
        """The same tap with the prefix `name.` before all names."""
        ...


@dataclass(frozen=True, slots=True)
class AtStep:
    """The tap at one step of a recurrence: `hidden@3` is the fourth step of `hidden`."""

    tap: Tap
    step: int

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        return self.tap(f"{name}@{self.step}", tensor)

    def within(self, name: str) -> AtStep:
        return AtStep(self.tap.within(name), self.step)


def at_step(tap: Tap | None, step: int) -> Tap | None:
    return None if tap is None else AtStep(tap, step)


def within(tap: Tap | None, name: str) -> Tap | None:
    return None if tap is None else tap.within(name)


def tapped(tap: Tap | None, name: str, tensor: Tensor) -> Tensor:
    return tensor if tap is None else tap(name, tensor)


def to_float64(tensor: Tensor) -> Tensor:
    """The tensor in float64, on the CPU where the device has no float64 (Metal)."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


# Matmul kernels for few rows sum in a different order: the last bits of a row would depend on the batch size.
# Measured (float32, CPU, torch 2.13): 4, 8 and every count from 12 on give equal bits. Others are padded.


Function = TypeVar("Function", bound=Callable[..., Tensor])


def keep_control_flow(function: Function) -> Function:
    """For functions that branch on shapes: where a step is traced, TorchScript compiles them instead of
    recording the branches that were taken."""
    return cast(Function, torch.jit.script_if_tracing(function))  # type: ignore[no-untyped-call]


@keep_control_flow
def batch_invariant_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """y = W x + b, whose result for a row does not depend on the number of rows: [...,K] -> [...,N]."""
    return unpad_rows(F.linear(pad_rows(x), weight, bias), x)


def pad_rows(x: Tensor) -> Tensor:
    """The rows with some more if their number changes the bits: [...,K] -> [...,K] or [rows,K]."""
    rows = x.numel() // x.shape[-1]
    if rows >= 12 or rows == 8 or rows == 4 or rows == 0:
        return x
    enough = 4 if rows < 4 else 8 if rows < 8 else 12
    flat = x.reshape(rows, x.shape[-1])
    return flat.expand(enough, -1) if rows == 1 else F.pad(flat, [0, 0, 0, enough - rows])


def unpad_rows(y: Tensor, x: Tensor) -> Tensor:
    """The results of the rows of x, without those that `pad_rows` added."""
    rows, all_rows = x.numel() // x.shape[-1], y.numel() // max(1, y.shape[-1])
    if rows == all_rows:
        return y
    return y[:rows] if x.dim() == 2 else y[:rows].view(list(x.shape[:-1]) + [y.shape[-1]])  # noqa: RUF005


class Linear(nn.Linear):
    """y = W x + b; batch-invariant at inference on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or x.device.type != "cpu":
            return F.linear(x, self.weight, self.bias)
        return batch_invariant_linear(x, self.weight, self.bias)


def is_plain(module: nn.Module) -> bool:
    """True if a module computes W x + b from its weight and bias alone, without subclass or hooks."""
    return type(module) is Linear and not (module._forward_hooks or module._forward_pre_hooks)


Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position  (paper, equation 2)."""

    def __init__(self, width: int, hidden: int, activation: Activation, bias: bool = True) -> None:
        super().__init__()
        self.up = Linear(width, hidden, bias)
        self.down = Linear(hidden, width, bias)
        self.activation = activation

    def forward(self, x: Tensor, tap: Tap | None = None) -> Tensor:
        hidden = tapped(tap, "hidden", self.activation(self.up(x)))  # [B,T,D] -> [B,T,F]
        return tapped(tap, "output", self.down(hidden))  # [B,T,F] -> [B,T,D]


class GatedFeedForward(nn.Module):
    """FFN(x) = (act(x W_g) * x W_1) W_2  (Shazeer 2020): Llama's with swish, T5 v1.1's with GELU."""

    def __init__(self, width: int, hidden: int, activation: Activation, bias: bool = False) -> None:
        super().__init__()
        self.gate = Linear(width, hidden, bias)
        self.up = Linear(width, hidden, bias)
        self.down = Linear(hidden, width, bias)
        self.activation = activation

    def forward(self, x: Tensor, tap: Tap | None = None) -> Tensor:
        hidden = tapped(tap, "hidden", self.hidden(x))  # [B,T,F]
        return tapped(tap, "output", self.down(hidden))  # [B,T,F] -> [B,T,D]

    def hidden(self, x: Tensor) -> Tensor:
        """act(x W_g) * x W_1: [B,T,D] -> [B,T,F]."""
        up: Tensor = self.up(x)
        return self.activation(self.gate(x)) * up


class RMSNorm(nn.RMSNorm):
    """g * x / sqrt(mean(x^2) + epsilon)  (Zhang & Sennrich 2019); in float32, as T5 and Llama do."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        return super().forward(wide).to(x.dtype)


class Scale(nn.Module):
    """x times a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Dropout(nn.Dropout):
    """x * noise, noise being 0 with probability p and else 1 / (1 - p)  (Srivastava et al. 2014).

    On a CPU, torch's dropout takes a tenth of an update: one random number for each element. Here 64 random
    bits serve four elements, and p is rounded to 1/65536.
    """

    def forward(self, x: Tensor) -> Tensor:
        noise = self.noise(x)
        return x if noise is None else x * noise

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + Dropout(y), in one pass."""
        noise = self.noise(y)
        return x + y if noise is None else torch.addcmul(x, y.to(x.dtype), noise.to(x.dtype))

    def noise(self, like: Tensor) -> Tensor | None:
        if not self.training or self.p == 0.0:
            return None
        if like.device.type != "cpu":
            return F.dropout(torch.ones_like(like), self.p)
        bits = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        sixteen = bits.view(torch.int16)[: like.numel()].view(like.shape)
        kept = sixteen >= round(self.p * 2**16) - 2**15  # 16 bits as a signed number
        return kept.to(like.dtype).mul_(1.0 / (1.0 - self.p))


class PostNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), as in the paper (5.4)."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    def enter(self, x: Tensor, tap: Tap | None = None) -> Tensor:
        """The input of the sub-layer."""
        return x

    def leave(self, x: Tensor, y: Tensor, tap: Tap | None = None) -> Tensor:
        """The residual stream after the sub-layer, whose output is y."""
        out: Tensor = self.norm(tapped(tap, "sum", self.dropout.add(x, y)))
        return out


class PreNorm(PostNorm):
    """x + Dropout(Sublayer(LayerNorm(x))): NOT the paper's placement, but more stable in deep stacks."""

    def enter(self, x: Tensor, tap: Tap | None = None) -> Tensor:
        return tapped(tap, "norm", self.norm(x))

    def leave(self, x: Tensor, y: Tensor, tap: Tap | None = None) -> Tensor:
        return self.dropout.add(x, y)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU with the tanh approximation (GPT-2, T5)."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "swish": F.silu,
}
RESIDUALS: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm}
