"""Initial weights, as the families' papers and first implementations have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from regard.models.positions import Learned

if TYPE_CHECKING:
    from regard.config.model import T5Config
    from regard.models.transformer import EncoderDecoder


def init_forget_bias(model: nn.Module) -> None:
    """Forget gates start open, with bias 1 (Jozefowicz et al. 2015)."""
    from regard.models.recurrent import LSTM

    for module in model.modules():
        if isinstance(module, LSTM):
            nn.init.ones_(module.read.bias[module.size : 2 * module.size])


def init_glorot(model: nn.Module) -> None:
    """Glorot for matrices; embeddings N(0, 1/D), which have unit variance after scaling by sqrt(D)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


def init_gpt2_bert(model: nn.Module, layers: int | None = None) -> None:
    """BERT init: N(0, 0.02). GPT-2 (`layers` given): residual projections scaled by 1/sqrt(2N)."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            is_residual = name.endswith((".attention.output", ".feed_forward.down"))
            nn.init.normal_(
                module.weight, std=0.02 * ((2 * layers) ** -0.5 if layers and is_residual else 1.0)
            )
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, Learned):
            nn.init.normal_(module.table, std=0.02)


@torch.no_grad()
def init_t5(model: EncoderDecoder, config: T5Config) -> None:
    """T5 init: the query weights carry the factor 1/sqrt(C) of the scores; embeddings have unit variance.

    Otherwise the first scores are sqrt(C) times too large, and attention saturates on one token. The learning
    rate of these weights is scaled by the same factors (`lr_multipliers`).
    """
    model.lr_multipliers = {"query.weight": config.channels**-0.5, "tokens.weight": config.width**0.5}
    for name, parameter in model.named_parameters():
        for end, size in model.lr_multipliers.items():
            if name.endswith(end):
                parameter.mul_(size)
