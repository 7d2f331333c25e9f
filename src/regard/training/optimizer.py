"""Learning rates by step and by layer; Adam and AdamW from torch, their state as named tensors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.config import Init, Train, usual_warmup
from regard.errors import UsageError
from regard.training.distributed import full_tensor, shard_of

DEFAULT_PEAK = 1e-3
HEAD = ("head.", "output.", "decoder.readout.", "decoder.score.", "bridge.")
_BLOCK = re.compile(r"^(?:encoder|decoder)\.blocks\.(\d+)\.|^(?:encoder|decoder)\.layers\.(\d+)\.")


def learning_rate(step: int, config: Train, width: int) -> float:
    """Of one update, counted from 1.

    "paper": D^-0.5 * min(step^-0.5, step * warmup^-1.5). The others rise linearly to `lr` over `warmup`
    updates and then fall, or stay ("constant").
    """
    if config.schedule == "paper":
        return float(width**-0.5 * min(step**-0.5, step * config.warmup**-1.5))
    peak = config.lr or DEFAULT_PEAK
    if step < config.warmup:
        return peak * step / config.warmup
    if config.schedule == "inverse-sqrt":
        return float(peak * (max(config.warmup, 1) / step) ** 0.5)
    left = max(
        0.0, (config.steps - step) / max(1, config.steps - config.warmup)
    )  # 1 at the peak, 0 at the end
    if config.schedule == "linear":
        return peak * left
    if config.schedule == "cosine":
        return peak * 0.5 * (1 - math.cos(math.pi * left))
    return peak


def epochs_as_steps(train: Train, batches_per_epoch: float) -> Train:
    """`steps` and `warmup` of a run that sets only `epochs`: the schedule needs its number of updates."""
    if train.epochs is None or "steps" in train.model_fields_set:
        return train
    steps = max(1, math.ceil(train.epochs * batches_per_epoch / train.accumulate))
    update = {"steps": steps}
    if "warmup" not in train.model_fields_set:
        update["warmup"] = usual_warmup(steps)
    return train.model_copy(update=update)


def make_optimizer(
    model: nn.Module, config: Train, multipliers: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """Weight decay applies to matrices only, not to biases and norms.

    `multipliers` scale the learning rate by parameter name; 1 where a name is missing.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = config.weight_decay if parameter.dim() >= 2 else 0.0
            groups.setdefault(((multipliers or {}).get(name, 1.0), decay), []).append(parameter)
    settings = [
        {"params": parameters, "multiplier": multiplier, "weight_decay": decay}
        for (multiplier, decay), parameters in groups.items()
    ]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
    optimizer: torch.optim.Optimizer = kind(
        settings, lr=0.0, betas=config.betas, eps=config.epsilon, fused=True
    )
    return optimizer


def freeze(model: nn.Module, init: Init, trains_head: bool = False) -> dict[str, float]:
    """Freeze the lowest layers, or all but the adapters (and the head, if it `trains_head`); returns the
    learning-rate factor of each parameter.

    Layers are counted from the embeddings (0) through the blocks (1 .. N) to the head (N + 1); with
    `layer_decay` d the factor of a layer k below the head is d^k.
    """
    if init.lora is not None:
        from regard.models.lora import is_trained

        for name, parameter in model.named_parameters():
            parameter.requires_grad_(is_trained(name, trains_head))
        return {}
    levels = {name: level(name) for name, _ in model.named_parameters()}
    top = max((each for each in levels.values() if each is not None), default=0) + 1
    first_free = init.freeze + 1 if isinstance(init.freeze, int) and init.freeze else 0
    rates = {}
    for name, parameter in model.named_parameters():
        layer = levels[name]
        height = top if layer is None else layer
        frozen = layer is not None if init.freeze == "body" else height < min(top, first_free)
        parameter.requires_grad_(not frozen)
        rates[name] = init.layer_decay ** (top - height)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(
            f"init.freeze = {json.dumps(init.freeze)}: nothing is left to train; freeze fewer layers",
            code="E_INIT_FREEZE",
        )
    return rates


def level(name: str) -> int | None:
    """0 for embeddings, i + 1 for block i, None for the head and the final norms."""
    if match := _BLOCK.match(name):
        return int(match[1] or match[2] or 0) + 1
    if name.startswith(HEAD) or ".final_norm." in name:
        return None
    return 0


def scale_by_init(model: nn.Module, multipliers: Mapping[str, float]) -> dict[str, float]:
    """`multipliers` times the scale of the family's initial weights (`model.lr_multipliers`, by name suffix).

    A step of Adam is about as long as the learning rate, however large the weight. T5's embeddings of
    unit size, which are its output layer too, would learn sqrt(D) times too slowly, its small queries sqrt(C)
    times too fast; T5's own optimizer, Adafactor, makes steps in proportion to the weight.
    """
    sizes: Mapping[str, float] = getattr(model, "lr_multipliers", {})
    return {
        name: multiplier * math.prod(size for end, size in sizes.items() if name.endswith(end))
        for name, multiplier in multipliers.items()
    }


def clip_gradients(model: nn.Module, max_norm: float) -> float:
    """Scale the gradient down to `max_norm` (0: do not); its norm before that."""
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm or float("inf"))
    return float(full_tensor(norm))


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """`name/exp_avg`, `name/exp_avg_sq` and `name/step` of every trained parameter."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for entry in tensors:
        name, _, key = entry.rpartition("/")
        if name not in parameters:
            raise UsageError(
                f'the checkpoint holds the state of "{name}", which the model does not have',
                code="E_CHECKPOINT_STATE",
            )
        parameter = parameters[name]
        value = shard_of(tensors, entry, parameter)
        # the step too: the fused update counts on the device
        optimizer.state[parameter][key] = value.to(parameter.device).clone()
