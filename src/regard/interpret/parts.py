"""The parts of a model by the names that a trace has for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.models import EncoderDecoder, EncoderOnly, Model, RecurrentEncoderDecoder
from regard.models.attention import MultiHeadAttention
from regard.models.positions import Learned, Sinusoidal
from regard.models.transformer import Stack


@dataclass(frozen=True)
class Look:
    """One attention of a model."""

    heads: int
    channels: int
    scale: float | None  # what the products of queries and keys are multiplied by; None: nothing


def stacks(model: Model) -> dict[str, Stack]:
    """`encoder` and `decoder`, where there are such; an RNN has none."""
    if isinstance(model, RecurrentEncoderDecoder):
        return {}
    if isinstance(model, EncoderOnly):
        return {"encoder": model.encoder}
    if isinstance(model, EncoderDecoder):
        return {"encoder": model.encoder, "decoder": model.decoder}
    return {"decoder": model.decoder}


def attentions(model: Model) -> dict[str, MultiHeadAttention]:
    """By their names: `encoder.0.self`, `decoder.3.cross`."""
    found: dict[str, MultiHeadAttention] = {}
    for side, stack in stacks(model).items():
        for number, block in enumerate(stack):
            found[f"{side}.{number}.self"] = block.attention
            if block.cross is not None:
                found[f"{side}.{number}.cross"] = block.cross
    return found


def looks(model: Model) -> dict[str, Look]:
    """All attentions; Bahdanau's is `decoder.cross`, with one head."""
    if isinstance(model, RecurrentEncoderDecoder):
        return {} if model.decoder.score is None else {"decoder.cross": Look(1, 1, None)}
    return {
        name: Look(each.heads, each.channels, each.channels**-0.5 if each.scale is None else None)
        for name, each in attentions(model).items()
    }


def has_positions(model: Model) -> bool:
    return any(
        isinstance(module, Sinusoidal | Learned)
        or (isinstance(module, Stack) and module.positions is not None)
        for module in model.modules()
    )


def causal_side(model: Model) -> str | None:
    """The stack that must not see the future."""
    return "decoder" if "decoder" in stacks(model) else None


def output_weight(attention: MultiHeadAttention) -> Tensor:
    """W_O as [H*C,D]. An engine's weights can only be multiplied by: then it is W_O applied to I."""
    output: nn.Module = attention.output
    if isinstance(output, nn.Linear):
        return output.weight.detach().T
    width = attention.heads * attention.channels
    rows: Tensor = output(torch.eye(width))
    zero: Tensor = output(torch.zeros(1, width))  # the bias
    return rows - zero


def reader(model: Model) -> tuple[str, Callable[[Tensor], Tensor]]:
    """The side whose stream becomes words, and what reads it: the last norm and the output layer."""
    if isinstance(model, RecurrentEncoderDecoder):
        raise UsageError("a recurrent model has no residual stream to read words from")
    if not isinstance(model, EncoderOnly):
        return "decoder", lambda x: model.output(model.decoder.final_norm(x))
    return "encoder", lambda x: model.output(model.head(model.encoder.final_norm(x)))
