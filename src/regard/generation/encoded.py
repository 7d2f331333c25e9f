"""Search from hidden states: an encoder that takes longer than the decoder runs once for several uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.batch import Batch, Frames, collate
from regard.models.cache import Cache
from regard.sample import FrameArray, Sample


class EncodedSources:
    """An encoder-decoder whose sources are the hidden states of its encoder, [S,D] each."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.model = getattr(engine, "model", engine)

    @property
    def longest_target(self) -> int | None:
        longest: int | None = self.model.longest_target
        return longest

    @torch.no_grad()
    def encode(self, sources: Sequence[FrameArray], device: torch.device) -> list[FrameArray]:
        """[S,F] of each source -> [S',D]."""
        batch = collate([Sample(source) for source in sources]).to(device)
        assert batch.source is not None
        source = self.model.source.front(batch.source)
        lengths = (source.positions >= 0).sum(dim=1).tolist()
        hidden = self.model.encode(source).float().cpu().numpy()  # [B,S',D]
        return [row[:length] for row, length in zip(hidden, lengths)]

    def start(self, batch: Batch, beams: int = 1) -> Cache:
        assert isinstance(batch.source, Frames)
        cache: Cache = self.engine.start_encoded(batch.source, beams)
        return cache

    def step(self, cache: Cache, tokens: Tensor) -> tuple[Tensor, Cache]:
        logits, after = self.engine.step(cache, tokens)
        return logits, after

    def first_logits(self, sources: Sequence[FrameArray], start: int, device: torch.device) -> Tensor:
        """Logits of what follows the start token: [N,V]."""
        cache = self.start(collate([Sample(np.asarray(each)) for each in sources]).to(device))
        tokens = torch.full((len(cache), 1), start, device=device)
        return self.step(cache, tokens)[0][:, -1].float()
