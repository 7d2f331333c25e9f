"""Decoding without a KV cache: every step runs the model on all tokens so far.

An intervention at a position then finds the tensors as a trace records them: in a cache, the columns of the
beams are no positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.batch import Batch, Frames, Tokens
from regard.interpret.interventions import IntervenedModel


@dataclass(frozen=True)
class ReadTokens:
    """The tokens of each hypothesis so far, in place of a KV cache; all have the same source."""

    source: Tokens | Frames | None  # one row
    ids: Tensor  # [R,t]
    first: Tensor | None = None  # [R]: the token to feed first, if it is not the start token

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Tensor) -> ReadTokens:
        first = None if self.first is None else self.first[rows]
        return ReadTokens(self.source, self.ids[rows], first)

    def batch(self) -> Batch:
        rows, length = self.ids.shape
        positions = torch.arange(length, device=self.ids.device).expand(rows, -1)
        source = self.source
        if isinstance(source, Tokens):
            repeated = source.ids.expand(rows, -1), source.positions.expand(rows, -1)
            source = replace(source, ids=repeated[0], positions=repeated[1])
        elif source is not None:
            values = source.values.expand(rows, -1, -1)
            source = replace(source, values=values, positions=source.positions.expand(rows, -1))
        return Batch(source, Tokens(self.ids, positions, padding="none"))


@dataclass(frozen=True)
class UncachedModel(IntervenedModel):
    """A model for the search of one source."""

    @torch.no_grad()
    def start(self, batch: Batch, beams: int = 1) -> ReadTokens:  # type: ignore[override]
        source, rows = batch.source, torch.zeros(beams, dtype=torch.int64)
        if self.reads_prompts and isinstance(source, Tokens):
            length = source.count
            prompt = source.ids[:, :length]
            return ReadTokens(None, prompt[:, :-1], prompt[:, -1]).select(rows)
        assert source is not None
        return ReadTokens(source, source.positions[:, :0]).select(rows)

    @torch.no_grad()
    def step(self, cache: ReadTokens, tokens: Tensor) -> tuple[Tensor, ReadTokens]:  # type: ignore[override]
        cache = replace(cache, ids=torch.cat([cache.ids, tokens], dim=1))
        logits: Tensor = self.model(cache.batch(), self.tap)
        return logits[:, -tokens.shape[1] :], cache
