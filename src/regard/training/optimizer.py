"""Adam and AdamW from torch, and their state as named tensors (no pickle is ever written)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.config import Train
from regard.errors import UsageError
from regard.training.parallel import crew


def make_optimizer(
    model: nn.Module, config: Train, rates: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """Only matrices decay: shrinking biases and norms has no use.

    `rates` are shares of the learning rate by parameter, 1 where it says nothing.
    """
    kinds: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = config.weight_decay if parameter.dim() >= 2 else 0.0
            kinds.setdefault(((rates or {}).get(name, 1.0), decay), []).append(parameter)
    groups = [{"params": own, "share": share, "weight_decay": decay} for (share, decay), own in kinds.items()]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
    made: torch.optim.Optimizer = kind(groups, lr=0.0, betas=config.betas, eps=config.epsilon, fused=True)
    return made


def in_proportion(model: nn.Module, rates: Mapping[str, float]) -> dict[str, float]:
    """`rates` times the sizes at which a family's drawn weights begin (`model.lr_multipliers`, by the end of a name).

    A step of Adam is about as long as the rate, however large the weight. T5's words of unit size, which are
    its output layer too, would learn sqrt(D) times too slowly, its small queries sqrt(C) times too fast; its
    own optimiser, Adafactor, makes steps in proportion to the weight.
    """
    sizes: Mapping[str, float] = getattr(model, "lr_multipliers", {})
    return {
        name: rate * math.prod(size for end, size in sizes.items() if name.endswith(end))
        for name, rate in rates.items()
    }


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """`name/exp_avg`, `name/exp_avg_sq` and `name/step` for every learned tensor."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    named = dict(model.named_parameters())
    for entry, tensor in tensors.items():
        name, _, key = entry.rpartition("/")
        if name not in named:
            raise UsageError(f'the checkpoint holds the state of "{name}", which the model does not have')
        parameter = named[name]
        there = tensor.to(parameter.device)  # the step too: a fused update counts on the device
        own = there if key == "step" else crew().own(there, parameter)
        optimizer.state[parameter][key] = own.clone()
