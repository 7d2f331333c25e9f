"""Generation beyond the context window of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.batch import Batch, Tokens, collate
from regard.generation.requests import Steppable
from regard.models.attention import BLOCK
from regard.models.cache import Cache
from regard.sample import Sample


@dataclass(frozen=True)
class WindowCache:
    """The cache of a language model, and the tokens of each row's window."""

    cache: Cache
    read: Tensor  # [R,W]

    @property
    def first(self) -> Tensor | None:
        return self.cache.first

    def __len__(self) -> int:
        return len(self.cache)

    def select(self, rows: Tensor) -> WindowCache:
        return WindowCache(self.cache.select(rows), self.read[rows])

    @classmethod
    def join(cls, caches: Sequence[WindowCache]) -> WindowCache:
        return cls(Cache.join([each.cache for each in caches]), torch.cat([each.read for each in caches]))


class SlidingWindow:
    """A language model without a length limit: when its window is full, its last half becomes the prompt.

    Each row's window moves when that row has filled it.
    """

    longest_target: int | None = None
    reads_prompts = True

    def __init__(self, model: Steppable[Cache], window: int) -> None:
        self.model, self.window = model, window

    def start(self, batch: Batch, beams: int = 1) -> WindowCache:
        if not isinstance(batch.source, Tokens):
            raise ValueError("a language model needs a prompt of at least one token")
        ids = batch.source.ids[:, : self.window].repeat_interleave(beams, dim=0)  # [R,t]
        cache = self.model.start(batch, beams)
        cache.expand()  # the windows of beams move one by one
        return WindowCache(cache, F.pad(ids, (0, self.window - ids.shape[1])))

    def step(self, cache: WindowCache, tokens: Tensor) -> tuple[Tensor, WindowCache]:
        """Feed one more token to each row: [R,1]."""
        full = cache.cache.next_positions >= self.window  # [R]
        if bool(full.any()):
            cache = self.move(cache, tokens, full)
        read = cache.read.scatter(1, cache.cache.next_positions[:, None], tokens)  # [R,W]
        logits, after = self.model.step(cache.cache, tokens)
        return logits, WindowCache(after, read)

    def move(self, cache: WindowCache, tokens: Tensor, full: Tensor) -> WindowCache:
        """The cache after full rows have read the last half of their window and then `tokens`."""
        half = max(1, self.window // 2)
        rows = torch.cat([cache.read, tokens], dim=1)[full, -half:]  # [F,W/2], the token not yet fed
        prompts = collate([Sample(source=row) for row in rows.tolist()], BLOCK).to(tokens.device)
        moved, others = self.start(prompts), (~full).nonzero()[:, 0]
        if not len(others):
            return moved
        joined = WindowCache.join([cache.select(others), moved])
        places = torch.cat([others, full.nonzero()[:, 0]])  # where each row of `joined` belongs
        return joined.select(places.argsort())
