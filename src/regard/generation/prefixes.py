"""Prompts that begin alike: keys and values of the beginning are computed once and kept.

A system prompt that many chats share, or a conversation that grows, is cut into portions of 128 tokens. The
cache of a portion is kept under a hash of all tokens up to its end, as it follows from them alone. Attention
of prompts is computed in the same portions (`attend_by_row`), so outputs have the same bits.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from regard.batch import Batch, Tokens, collate
from regard.generation.engine import Engine
from regard.models.attention import BLOCK, LONG_ROW, round_up
from regard.models.cache import Cache
from regard.sample import Sample

PREFIX_BYTES = 128 << 20


@dataclass(frozen=True)
class Portion:
    """The cache of some tokens: two of [L,G,128,C]."""

    keys: Tensor
    values: Tensor

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


class PrefixEngine:
    """The engine of a language model, which keeps the beginnings of prompts: at most `limit` bytes of them,
    the latest. Several threads may use it."""

    reads_prompts = True

    def __init__(self, engine: Engine, limit: int = PREFIX_BYTES) -> None:
        self.engine, self.limit = engine, limit
        self.portions: OrderedDict[tuple[bytes, torch.dtype], Portion] = OrderedDict()
        self.nbytes = 0
        self.computed = self.reused = 0  # tokens of prompts
        self.lock = Lock()

    @property
    def longest_target(self) -> int | None:
        return self.engine.longest_target

    def step(self, cache: Cache, tokens: Tensor) -> tuple[Tensor, Cache]:
        return self.engine.step(cache, tokens)

    @torch.no_grad()
    def start(self, batch: Batch, beams: int = 1) -> Cache:
        if not isinstance(batch.source, Tokens):
            raise ValueError("a language model needs a prompt, at least the start token")
        lengths = (batch.source.positions >= 0).sum(dim=1).tolist()
        prompts = [ids[:length] for ids, length in zip(batch.source.ids.tolist(), lengths)]
        dtype = self.engine.dtype(beams)
        names = [[(name, dtype) for name in portion_names(prompt)] for prompt in prompts]
        with self.lock:
            kept = [self.find(each) for each in names]
        starts = [LONG_ROW * len(each) for each in kept]
        past = self.cache_of(kept, dtype) if any(kept) else None
        rest = [Sample(source=prompt[start:]) for prompt, start in zip(prompts, starts)]
        cache = self.engine.start(collate(rest, BLOCK) if any(kept) else batch, beams, past)
        with self.lock:
            self.reused += sum(starts)
            self.computed += sum(lengths) - sum(starts)
            for row, (each, parts) in enumerate(zip(names, kept)):
                for number in range(len(parts), len(each)):
                    self.keep(each[number], cache, row, number)
        return cache

    def find(self, names: Sequence[tuple[bytes, torch.dtype]]) -> list[Portion]:
        """The portions that are kept, up to the first that is not."""
        parts: list[Portion] = []
        for name in names:
            if name not in self.portions:
                break
            self.portions.move_to_end(name)
            parts.append(self.portions[name])
        return parts

    def keep(self, name: tuple[bytes, torch.dtype], cache: Cache, row: int, number: int) -> None:
        if name in self.portions:  # of a row before
            return
        here = slice(number * LONG_ROW, (number + 1) * LONG_ROW)
        keys, values = (torch.stack([x[row, :, here] for x in each]) for each in (cache.keys, cache.values))
        self.portions[name] = Portion(keys, values)
        self.nbytes += self.portions[name].nbytes
        while self.nbytes > self.limit:
            self.nbytes -= self.portions.popitem(last=False)[1].nbytes

    def cache_of(self, rows: Sequence[Sequence[Portion]], dtype: torch.dtype) -> Cache:
        """A cache whose rows begin with these portions."""
        cache = self.engine.model.empty_cache(len(rows), dtype)
        lengths = [LONG_ROW * len(parts) for parts in rows]
        cache.reserve(round_up(max(lengths), cache.block))
        for row, parts in enumerate(rows):
            for number, part in enumerate(parts):
                here = slice(number * LONG_ROW, (number + 1) * LONG_ROW)
                for layer, (keys, values) in enumerate(zip(part.keys, part.values)):
                    cache.keys[layer][row, :, here], cache.values[layer][row, :, here] = keys, values
            cache.positions[row, : lengths[row]] = torch.arange(lengths[row])
        cache.next = torch.tensor(lengths)
        cache.truncate(cache.next)
        return cache


def portion_names(prompt: Sequence[int]) -> list[bytes]:
    """A hash for each whole portion of a prompt, of all tokens up to its end; the last token is not read."""
    digest, names = hashlib.blake2b(digest_size=16), []
    for end in range(LONG_ROW, len(prompt), LONG_ROW):
        digest.update(np.array(prompt[end - LONG_ROW : end], dtype=np.int64).tobytes())
        names.append(digest.digest())
    return names


def with_prefixes(engine: object) -> object:
    """An engine that keeps the beginnings of prompts, if its model is a language model without a window."""
    if not isinstance(engine, Engine) or not engine.reads_prompts:
        return engine
    is_whole = engine.model.decoder.window is None  # a window drops columns
    on_cpu = next(engine.model.parameters()).device.type == "cpu"
    return PrefixEngine(engine) if is_whole and on_cpu else engine
