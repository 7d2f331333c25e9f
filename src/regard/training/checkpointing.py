"""Gradient checkpointing (Chen et al. 2016): what is inside of a block is computed again for its gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from regard.config import Config
from regard.errors import UsageError
from regard.models.lora import add_adapters
from regard.models.transformer import Block


def add_parts(model: nn.Module, config: Config) -> None:
    """What a run puts into a model: adapters, and blocks that are computed again."""
    if (lora := config.init.lora) is not None:
        add_adapters(model, lora.rank, lora.alpha, lora.on)
    if config.train.gradient_checkpointing:
        checkpoint_blocks(model)


def checkpoint_blocks(model: nn.Module) -> None:
    """Keep only what enters each block of a Transformer. Dropout draws the same numbers twice: gradients have
    the same bits."""
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    if not blocks:
        raise UsageError(
            "train.gradient_checkpointing: this model has no blocks of a Transformer", code="E_CHECKPOINTING"
        )
    for block in blocks:
        block.forward = partial(run, block.forward)  # type: ignore[method-assign]


def run(forward: Callable[..., Any], *inputs: Any, **more: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **more)
    return checkpoint(forward, *inputs, use_reentrant=False, **more)
