"""Low-rank adapters (LoRA, Hu et al. 2021): a frozen matrix W gets a trained difference of rank r."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import UsageError
from regard.models.layers import Linear, batch_invariant_linear

PROJECTIONS = {  # name in [init] lora -> our modules
    "q": r"(attention|cross)\.query",
    "k": r"(attention|cross)\.key",
    "v": r"(attention|cross)\.value",
    "o": r"(attention|cross)\.output",
    "gate": r"feed_forward\.gate",
    "up": r"feed_forward\.up",
    "down": r"feed_forward\.down",
}
HEAD = ("head.", "output.")
DOWN, UP, SCALE = "lora_a", "lora_b", "lora_scale"


class LoRALinear(Linear):
    """y = W x + b + (alpha / r) B A x, with A [r,K] and B [N,r]; B is zero at first (equation 3)."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.lora_a = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.lora_b = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        # a parameter, so that a checkpoint has it; never trained
        self.lora_scale = nn.Parameter(linear.weight.new_tensor(alpha / rank), requires_grad=False)
        if not linear.weight.is_meta:
            nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        multiply = F.linear if torch.is_grad_enabled() or x.device.type != "cpu" else batch_invariant_linear
        low = multiply(x, self.lora_a, None)
        return super().forward(x) + multiply(low, self.lora_b, None) * self.lora_scale


def is_trained(name: str, with_head: bool) -> bool:
    """Whether a parameter is trained: those of adapters, and of a head that is new to the model."""
    return name.endswith((f".{DOWN}", f".{UP}")) or (with_head and name.startswith(HEAD))


def add_adapters(model: nn.Module, rank: int, alpha: float, on: Sequence[str]) -> None:
    """Replace the projections `on` by adapted ones."""
    pattern = re.compile("|".join(rf".*\.({PROJECTIONS[name]})" for name in on))
    targets = [
        name for name, each in model.named_modules() if type(each) is Linear and pattern.fullmatch(name)
    ]
    if not targets:
        raise UsageError(f"init.lora: this model has none of {', '.join(on)}", code="E_INIT_LORA")
    for name in targets:
        parent, _, last = name.rpartition(".")
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        setattr(model.get_submodule(parent), last, LoRALinear(linear, rank, alpha))


@torch.no_grad()
def merge_adapters(model: nn.Module) -> None:
    """Replace adapted projections by plain ones, whose weights have the difference in them."""
    for name, each in list(model.named_modules()):
        if isinstance(each, LoRALinear):
            parent, _, last = name.rpartition(".")
            linear = Linear(each.in_features, each.out_features, each.bias is not None, device="meta")
            difference = each.lora_b @ each.lora_a * each.lora_scale
            linear.weight, linear.bias = nn.Parameter(each.weight + difference), each.bias
            setattr(model.get_submodule(parent), last, linear)


def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a checkpoint with the differences in them."""
    whole = {name: each for name, each in weights.items() if not name.endswith((DOWN, UP, SCALE))}
    for name, down in weights.items():
        if name.endswith(f".{DOWN}"):
            module = name.removesuffix(f".{DOWN}")
            up, scale = weights[f"{module}.{UP}"], weights[f"{module}.{SCALE}"]
            whole[f"{module}.weight"] = whole[f"{module}.weight"] + up @ down * scale
    return whole
