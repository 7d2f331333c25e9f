"""Our models as graphs that ONNX can hold: ids and masks in, numbers out, rows and lengths free.

They are our own modules on their plain path (a tap that does nothing takes it); what chooses its way by the
numbers at hand is exchanged for the same without a choice.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.models import EncoderDecoder, EncoderOnly, LanguageModel
from regard.models import Model as AnyModel
from regard.models.attention import visible
from regard.models.layers import Linear
from regard.models.positions import Learned, Sinusoidal, sinusoid

Axes = dict[int, str]
ROWS: Axes = {0: "batch", 1: "length"}
SOURCE: Axes = {0: "batch", 1: "source_length"}


class Plain:
    """A tap that only takes the plain path."""

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        return tensor

    def within(self, name: str) -> Plain:
        return self


PLAIN = Plain()


class Waves(nn.Module):
    """`Sinusoidal` without a table: each position computed, so that none is too far."""

    def __init__(self, own: Sinusoidal) -> None:
        super().__init__()
        self.width, self.halves = own.width, own.halves

    def forward(self, positions: Tensor) -> Tensor:
        return sinusoid(positions.clamp(min=0), self.width, halves=self.halves)


class Rows(nn.Module):
    """`Learned` without its check, which ONNX makes by itself."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table.detach())

    def forward(self, positions: Tensor) -> Tensor:
        return self.table[positions.clamp(min=0)]


def without_choices(model: AnyModel) -> AnyModel:
    """A copy whose path does not depend on the numbers of a run."""
    copied = copy.deepcopy(model).eval()
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Sinusoidal):
                setattr(parent, name, Waves(child))
            elif isinstance(child, Learned):
                setattr(parent, name, Rows(child.table))
            elif isinstance(child, Linear):
                setattr(parent, name, usual_linear(child))
    return copied


def usual_linear(own: Linear) -> nn.Linear:
    """torch's, with the same weights."""
    made = nn.Linear(own.in_features, own.out_features, own.bias is not None, device="meta")
    made.weight, made.bias = own.weight, own.bias
    return made


def positions_of(mask: Tensor) -> Tensor:
    """0, 1, 2... where the mask is 1, wherever that is; -1 where it is 0."""
    return (mask.cumsum(dim=1) - 1).masked_fill(mask == 0, -1)


class Encoder(nn.Module):
    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[B,S] -> [B,S,D]."""
        return self.model.encode(Tokens(input_ids, positions_of(attention_mask)), PLAIN)


class Decoder(nn.Module):
    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor
    ) -> Tensor:
        """All that was said so far [B,T], the encoder's states [B,S,D] -> logits [B,T,V]."""
        model = self.model
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand(input_ids.shape)
        across = visible(positions, positions_of(encoder_attention_mask), causal=False)  # [B,1,T,S]
        memory = model.cross_keys_values(encoder_hidden_states)
        logits: Tensor = model.output(model.decode(Tokens(input_ids, positions), memory, across, PLAIN))
        return logits


class Language(nn.Module):
    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[B,T] -> [B,T,V]."""
        return self.model.forward(Batch(target=Tokens(input_ids, positions_of(attention_mask))), PLAIN)


class Understanding(nn.Module):
    def __init__(self, model: EncoderOnly) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """[B,S] -> [B,S,V], [B,S,labels], [B,1,labels] or [B,S,2]."""
        source = Tokens(input_ids, positions_of(attention_mask), segments=token_type_ids)
        return self.model.forward(Batch(source=source), PLAIN)


@dataclass(frozen=True)
class Graph:
    """A module with what its inputs are called, which of their axes are free, and an example of each."""

    name: str  # of the file
    module: nn.Module
    inputs: dict[str, tuple[Tensor, Axes]]
    output: str = "logits"


def graphs_of(model: AnyModel) -> list[Graph]:
    own = without_choices(model)
    # sizes apart from one another and from 1, which would be taken for fixed
    ids, said = torch.zeros((3, 7), dtype=torch.int64), torch.zeros((3, 5), dtype=torch.int64)
    mask = torch.ones_like(ids)
    read = {"input_ids": (ids, ROWS), "attention_mask": (mask, ROWS)}
    if isinstance(own, EncoderDecoder):
        states = torch.zeros((*ids.shape, own.source.tokens.embedding_dim))
        written = {
            "input_ids": (said, ROWS),
            "encoder_hidden_states": (states, SOURCE),
            "encoder_attention_mask": (mask, SOURCE),
        }
        return [
            Graph("encoder", Encoder(own), read, "encoder_hidden_states"),
            Graph("decoder", Decoder(own), written),
        ]
    if isinstance(own, LanguageModel):
        return [Graph("model", Language(own), read)]
    if isinstance(own, EncoderOnly):
        kinds = torch.zeros_like(ids)  # of its own: a tensor given twice would be one input
        return [Graph("model", Understanding(own), read | {"token_type_ids": (kinds, ROWS)})]
    raise ValueError(f"no graph for {type(model).__name__}")
