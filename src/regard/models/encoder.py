"""Encoder-only models (BERT, ViT): predictions for each token, or for the whole text or picture."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.batch import Batch
from regard.models.layers import Activation, Dropout, Linear, Tap, tapped
from regard.models.positions import Embedding
from regard.models.transformer import Stack, encode

Pool = Callable[[Tensor, Tensor], Tensor]  # hidden states [B,S,D], mask of real tokens [B,S] -> [B,1,D]


class EncoderOnly(nn.Module):
    """Encoder, pooling, the head of a task, and its output layer."""

    alignment: str | None = None

    def __init__(
        self,
        source: Embedding,
        encoder: Stack,
        head: nn.Module,
        output: Linear,
        pool: Pool | None = None,
    ) -> None:
        super().__init__()
        self.pool = pool  # None: a prediction for every token
        self.source = source
        self.encoder = encoder
        self.head = head
        self.output = output

    def forward(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        """Logits for each token or for the text: [B,S,V], [B,S,labels], [B,1,labels] or [B,S,2]."""
        return tapped(tap, "logits", self.output(self.hidden(batch, tap)))

    def hidden(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        """The last hidden states, the input of the output layer: [B,S,D], or [B,1,D] of a whole text."""
        x, real = self.encode_positions(batch, tap)
        return tapped(tap, "head", self.head(x if self.pool is None else self.pool(x, real)))

    def encode(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        """[B,S] -> [B,S,D]."""
        return self.encode_positions(batch, tap)[0]

    def encode_positions(self, batch: Batch, tap: Tap | None = None) -> tuple[Tensor, Tensor]:
        """Hidden states [B,S,D], and which positions are no padding: bool [B,S]."""
        if batch.source is None:
            raise ValueError("an encoder needs a text, a picture or a sound")
        source = self.source.front(batch.source)
        return encode(self.source, self.encoder, source, tap), source.positions >= 0


def first(x: Tensor, real: Tensor) -> Tensor:
    """Pooling by the first token, [CLS] (Devlin et al. 2019): [B,S,D] -> [B,1,D]."""
    return x[:, :1]


def mean(x: Tensor, real: Tensor) -> Tensor:
    """Mean pooling, as in sentence embeddings: [B,S,D] -> [B,1,D]."""
    total = x.float().masked_fill(~real.unsqueeze(2), 0.0).sum(dim=1, keepdim=True)
    return total / real.sum(dim=1)[:, None, None]


def first_two(x: Tensor, real: Tensor) -> Tensor:
    """Mean of the first two positions, the class and the distillation token of AST: [B,S,D] -> [B,1,D]."""
    return (x[:, :1] + x[:, 1:2]) / 2


POOLS: dict[str, Pool] = {"first": first, "mean": mean, "first_two": first_two}


class WordHead(nn.Module):
    """Head of masked language modelling: norm(act(W x + b))  (Devlin et al. 2019, as released)."""

    def __init__(self, width: int, activation: Activation, norm: nn.Module) -> None:
        super().__init__()
        self.dense = Linear(width, width)
        self.activation = activation
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.activation(self.dense(x)))
        return out


class SentenceHead(nn.Module):
    """Head of text classification (the pooler of BERT): tanh(W x + b), [B,1,D] -> [B,1,D]."""

    def __init__(self, width: int, dropout: float, activation: Activation = torch.tanh) -> None:
        super().__init__()
        self.dense = Linear(width, width)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.activation(self.dense(x)))
        return out


HEAD_ACTIVATIONS: dict[str, Activation] = {"tanh": torch.tanh, "relu": torch.relu}
