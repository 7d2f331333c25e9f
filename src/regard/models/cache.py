"""Decoding caches: what a model keeps of the tokens so far, held by the caller. Nothing is cached on modules.

A cache has one owner. `step`, `select` and `join` may write into its buffers: they consume the cache and
return the one to continue with; a consumed cache is refused. `clone` makes a second one.
Shapes: N sources, K beams, R = N * K rows, S columns, G key heads, C channels per head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.models.attention import BLOCK, kv_block, round_up, step_mask

GROWTH = 1.5  # buffers that are full grow by this factor, so that few tokens are copied
PRUNE_EVERY = 4  # tokens of a source; its own count decides, so that its sums never depend on its neighbours

KeysValues = tuple[Tensor, Tensor]  # two of [N,G,S,C], or of [N,S,D] in a recurrent model


def with_columns(x: Tensor, columns: int, axis: int, value: float = 0) -> Tensor:
    """Pad or truncate an axis to so many columns."""
    missing = columns - x.shape[axis]
    if missing <= 0:
        return x if missing == 0 else x.narrow(axis, 0, columns)
    return F.pad(x, [0, 0] * (-1 - axis) + [0, missing], value=value)


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Keys and values of one layer during a step; those of the new tokens are written to `places`."""

    key: Tensor  # [N,G,S,C]
    value: Tensor  # [N,G,S,C]
    places: Tensor  # [N*G*T]: rows of the buffer seen as [N*G*S,C]
    width: int  # columns in use
    tokens: int = 1  # T, of each beam

    def write_state(self, state: Tensor) -> Tensor:
        """Write states [N,T,D], which a recurrence has instead of keys; return all columns in use [N,S,D]."""
        self.key.view(-1, self.key.shape[3]).index_copy_(0, self.places, state.reshape(-1, self.key.shape[3]))
        return self.key[:, 0, : self.width]

    def append(self, k: Tensor, v: Tensor) -> KeysValues:
        """Write keys and values [N,G,T,C]; return all columns in use."""
        for buffer, new in ((self.key, k), (self.value, v)):
            rows = new.to(buffer.dtype).reshape(-1, buffer.shape[3])
            buffer.view(-1, buffer.shape[3]).index_copy_(0, self.places, rows)
        return self.key[:, :, : self.width], self.value[:, :, : self.width]


@dataclass
class SourceCache:
    """Keys and values of the sources, the same at every step and for all beams of a source."""

    positions: Tensor  # [N,S], -1 where there is no token
    layers: list[KeysValues] = field(default_factory=list)
    block: int = BLOCK
    mask: Tensor | None = None  # for `attend`, made by the first step with these sources

    def select(self, sources: Tensor, moved: Tensor | None = None) -> SourceCache:
        """These sources, with as many columns as the longest of them needs; for `moved` see `take_rows`."""
        positions = self.positions[sources]
        layers = [
            (
                take_rows(k.mT, sources, moved).mT,
                take_rows(v, sources, moved),
            )  # keys keep their order in memory
            for k, v in self.layers
        ]
        columns = round_up(longest((positions >= 0).sum(dim=1)), self.block)
        return replace(self, positions=positions, layers=layers, mask=None).cut(columns)

    def step_mask(self, heads: int, dtype: torch.dtype) -> Tensor:
        """The mask for the queries of one step, the same for all of them: [N*H,1,S]."""
        if self.mask is None:
            self.mask = step_mask((self.positions >= 0)[:, None, None], heads, heads, dtype)
        return self.mask

    def cut(self, columns: int) -> SourceCache:
        """With so many columns: fewer, or more that no query sees."""
        if columns == self.positions.shape[1]:
            return self
        layers = [(with_columns(k, columns, -2), with_columns(v, columns, -2)) for k, v in self.layers]
        return SourceCache(with_columns(self.positions, columns, -1, -1), layers, self.block)

    @classmethod
    def join(cls, parts: Sequence[SourceCache]) -> SourceCache:
        columns = max(part.positions.shape[1] for part in parts)
        parts = [part.cut(columns) for part in parts]
        layers = [
            contiguous(*(torch.cat(tensors) for tensors in zip(*layer)))
            for layer in zip(*(part.layers for part in parts))
        ]
        return SourceCache(torch.cat([part.positions for part in parts]), layers, parts[0].block)


def contiguous(k: Tensor, v: Tensor) -> KeysValues:
    """In the order in which every step reads them: keys [...,S,C] are a view of [...,C,S]."""
    return k.mT.contiguous().mT, v.contiguous()


@dataclass
class Cache:
    """The KV cache of a Transformer decoder. The beams of a source share one row of columns.

    A column holds one token. `paths` says which columns belong to the history of each beam: when beams are
    reordered only the paths change, and no key is copied. Every few steps columns on no path are removed.
    Rows may have different lengths; each is filled from the left and does not depend on the others.
    """

    keys: list[Tensor]  # for each layer [N,G,S,C]
    values: list[Tensor]
    positions: Tensor  # [N,S]: of the token in each column; -1 where there is none
    lengths: Tensor  # [N]: columns in use
    next: Tensor  # [N]: the position of the next token
    beams: int = 1
    paths: Tensor | None = None  # [N,K,S] bool; None for one beam
    memory: SourceCache | None = None
    first: Tensor | None = None  # [R]: the token to feed first, if it is not the start token
    length: int = 0  # columns in use in the longest row
    window: int | None = None  # tokens that a query sees, itself included; None: all
    is_consumed: bool = False

    @classmethod
    def empty(
        cls,
        layers: int,
        like: Tensor,
        shape: tuple[int, int, int],
        memory: SourceCache | None,
        window: int | None = None,
    ) -> Cache:
        """Without tokens; `shape` is (N, G, C)."""
        rows, heads, channels = shape
        numbers = torch.zeros(rows, dtype=torch.int64, device=like.device)
        buffers = [like.new_zeros((rows, heads, 0, channels)) for _ in range(2 * layers)]
        keys, values, positions = buffers[:layers], buffers[layers:], numbers.new_zeros((rows, 0))
        return cls(keys, values, positions, numbers, numbers, memory=memory, window=window)

    def __len__(self) -> int:
        """R, the number of rows."""
        return len(self.next) * self.beams

    @property
    def next_positions(self) -> Tensor:
        """The position of the next token of each row: [R]."""
        return self.next.repeat_interleave(self.beams)

    @property
    def block(self) -> int:
        return kv_block(self.keys[0].shape[3])

    @property
    def width(self) -> int:
        """Columns that attention reads."""
        return round_up(self.length, self.block)

    def take(self) -> Self:
        """Consume this cache: the caller owns the returned one."""
        if self.is_consumed:
            raise ValueError(
                "this cache was consumed by a step or a selection; continue with the one it returned"
            )
        self.is_consumed = True
        return replace(self, keys=list(self.keys), values=list(self.values), is_consumed=False)

    def clone(self) -> Cache:
        """A second cache with the same tokens."""

        def copy(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.clone()

        keys, values = [k.clone() for k in self.keys], [v.clone() for v in self.values]
        return replace(
            self, keys=keys, values=values, positions=self.positions.clone(), paths=copy(self.paths)
        )

    def with_beams(self, beams: int) -> Cache:
        """K beams for each source, all with the same history."""
        cache = self.take()
        if beams > 1:
            cache.paths = (cache.positions >= 0)[:, None].repeat(1, beams, 1)
        if cache.first is not None:
            cache.first = cache.first.repeat_interleave(beams)
        cache.beams = beams
        return cache

    def extend(self, positions: Tensor) -> Tensor:
        """Room for the tokens at these positions [N,K*T], of which -1 is padding; their places [N*G*K*T]."""
        sources, count = positions.shape
        self.prune()
        self.length += count
        self.reserve(self.width)
        columns = self.lengths[:, None] + torch.arange(count, device=positions.device)  # [N,K*T]
        self.positions.scatter_(1, columns, positions)
        self.lengths = self.lengths + count
        if self.paths is not None:
            each = columns.view(sources, self.beams, -1)  # [N,K,T]
            self.paths.scatter_(2, each, True)
        _, heads, capacity, _ = self.keys[0].shape
        head = torch.arange(sources * heads, device=positions.device).view(-1, heads, 1) * capacity
        return (head + columns[:, None]).flatten()

    def reserve(self, columns: int) -> None:
        """Let the buffers have so many columns at least. They grow one by one, which limits peak memory."""
        capacity = self.positions.shape[1]
        if columns <= capacity:
            return
        columns = round_up(max(columns, int(GROWTH * capacity)), self.block)
        for buffers in (self.keys, self.values):
            for number, buffer in enumerate(buffers):
                buffers[number] = with_columns(buffer, columns, -2)
        self.positions = with_columns(self.positions, columns, -1, -1)
        if self.paths is not None:
            self.paths = with_columns(self.paths, columns, -1)

    def truncate(self, lengths: Tensor) -> None:
        """Keep so many columns of each row [N]; those behind are padding and will be overwritten."""
        self.lengths, self.length = lengths, longest(lengths)

    def on_path(self) -> Tensor | None:
        """Which columns are in the history of each beam: [N,K,S]; None for one beam."""
        return None if self.paths is None else self.paths[:, :, : self.width]

    def prune(self) -> None:
        """Remove columns that are on no path or before the window, in the sources whose turn it is."""
        if self.paths is None and (self.window is None or self.length <= self.window):
            return
        every = PRUNE_EVERY if self.paths is not None else max(PRUNE_EVERY, (self.window or 0) // 4)
        turn = ((self.next % every == 0) & (self.next > 0)).nonzero()[:, 0]  # [n]
        if not len(turn):
            return
        alive = self.positions[:, : self.width][turn] >= 0  # [n,S]
        if self.paths is not None:
            paths = self.paths[:, :, : self.width][turn]  # [n,K,S]
            alive = alive & paths.any(dim=1)
        if self.window is not None:
            alive = alive & (self.positions[:, : self.width][turn] > (self.next[turn] - self.window)[:, None])
        counts = alive.sum(dim=1)
        order = alive.byte().argsort(dim=1, descending=True, stable=True)[:, : longest(counts)]  # [n,s]
        count = order.shape[1]
        for buffer in (*self.keys, *self.values):
            buffer[turn, :, :count] = gather_columns(buffer, turn, order)
        kept = alive.gather(1, order)  # [n,s]: rows that keep fewer columns
        positions = self.positions[turn[:, None], order].masked_fill(~kept, -1)
        self.positions[turn] = with_columns(positions, self.positions.shape[1], -1, -1)
        if self.paths is not None:
            paths = paths.gather(2, order[:, None].expand(-1, self.beams, -1)) & kept[:, None]
            self.paths[turn] = with_columns(paths, self.paths.shape[2], -1)
        self.truncate(self.lengths.index_copy(0, turn, counts))

    def select(self, rows: Tensor) -> Cache:
        """The cache of these rows, in this order; rows may repeat."""
        cache = self.take()
        if cache.first is not None:
            cache.first = cache.first[rows]
        if (sources := adjacent_beams(rows, cache.beams)) is None:
            cache.expand()
            sources = rows
        cache.select_sources(sources)
        if cache.paths is not None:
            parents = (rows % cache.beams).view(-1, cache.beams, 1).expand(-1, -1, cache.paths.shape[2])
            cache.paths = cache.paths.gather(1, parents)
        return cache

    def select_sources(self, sources: Tensor) -> None:
        """Continue with these sources: [N']."""
        count, before = len(sources), len(self.next)
        places = torch.arange(count, device=sources.device)
        moved = (sources != places).nonzero()[:, 0]
        if count == before and not len(moved):
            return
        few_move = count < before and 2 * len(moved) <= count and bool((sources[moved] >= count).all())
        which = moved if few_move else None
        self.keys = [take_rows(buffer, sources, which) for buffer in self.keys]
        self.values = [take_rows(buffer, sources, which) for buffer in self.values]
        self.positions, self.next = self.positions[sources], self.next[sources]
        if self.paths is not None:
            self.paths = self.paths[sources]
        if self.memory is not None:
            self.memory = self.memory.select(sources, which)
        self.truncate(self.lengths[sources])

    def expand(self) -> None:
        """Make every beam a source of its own, with the tokens on its path."""
        if self.paths is None:
            return
        paths = self.paths[:, :, : self.width].flatten(0, 1)  # [R,S]
        self.paths, beams, self.beams = None, self.beams, 1
        row = torch.arange(len(paths), device=paths.device)
        self.select_sources(row // beams)
        order = paths.byte().argsort(dim=1, descending=True, stable=True)  # [R,S]
        for buffers in (self.keys, self.values):
            for number, buffer in enumerate(buffers):
                buffers[number] = gather_columns(buffer, row, order)
        positions = self.positions.gather(1, order)
        self.positions = positions.masked_fill(~paths.gather(1, order), -1)
        self.truncate(paths.sum(dim=1))

    @classmethod
    def join(cls, caches: Sequence[Cache]) -> Cache:
        """One cache with the rows of all; if they differ in beams, every beam becomes a source."""
        parts = [cache.take() for cache in caches]
        if len({part.beams for part in parts}) > 1:
            for part in parts:
                part.expand()
        columns = round_up(max(part.length for part in parts), parts[0].block)
        layers = range(len(parts[0].keys))

        def cat(tensors: Sequence[Tensor], axis: int, value: float = 0) -> Tensor:
            return torch.cat([with_columns(each, columns, axis, value) for each in tensors])

        paths = [part.paths for part in parts if part.paths is not None]
        memories = [part.memory for part in parts if part.memory is not None]
        first = [part.first for part in parts if part.first is not None]
        return cls(
            keys=[cat([part.keys[i] for part in parts], -2) for i in layers],
            values=[cat([part.values[i] for part in parts], -2) for i in layers],
            positions=cat([part.positions for part in parts], -1, -1),
            lengths=torch.cat([part.lengths for part in parts]),
            next=torch.cat([part.next for part in parts]),
            beams=parts[0].beams,
            paths=cat(paths, -1) if paths else None,
            memory=SourceCache.join(memories) if memories else None,
            first=torch.cat(first) if first else None,
            length=max(part.length for part in parts),
            window=parts[0].window,
        )


@dataclass(frozen=True)
class RecurrentCache:
    """The hidden states of a recurrent decoder, and what its attention reads; a step makes a new one."""

    hidden: Tensor  # [R,L,D]
    sources: SourceCache  # what attention reads
    beams: int = 1
    first: Tensor | None = None

    def __len__(self) -> int:
        return len(self.hidden)

    def select(self, rows: Tensor) -> RecurrentCache:
        """These rows, in this order; the rows of a source share its memory as long as they are adjacent."""
        owners, beams, sources = rows // self.beams, 1, self.sources
        if (groups := adjacent_beams(rows, self.beams)) is not None:
            owners, beams = groups, self.beams
        if not torch.equal(owners, torch.arange(len(sources.positions), device=rows.device)):
            sources = sources.select(owners)
        return RecurrentCache(self.hidden[rows], sources, beams)

    @classmethod
    def join(cls, caches: Sequence[RecurrentCache]) -> RecurrentCache:
        """One cache with the rows of all; if they differ in beams, every row gets a source of its own."""
        if len({cache.beams for cache in caches}) > 1:
            caches = [cache.expanded() for cache in caches]
        hidden = torch.cat([cache.hidden for cache in caches])
        return cls(hidden, SourceCache.join([cache.sources for cache in caches]), caches[0].beams)

    def expanded(self) -> RecurrentCache:
        owners = torch.arange(len(self), device=self.hidden.device) // self.beams
        return RecurrentCache(self.hidden, self.sources.select(owners))


def adjacent_beams(rows: Tensor, beams: int) -> Tensor | None:
    """The source of each group of K rows [N], if the rows of every group belong to one source."""
    if len(rows) % beams:
        return None
    groups = (rows // beams).view(-1, beams)
    return groups[:, 0] if bool((groups == groups[:, :1]).all()) else None


def longest(lengths: Tensor) -> int:
    return int(lengths.max()) if len(lengths) else 0


def take_rows(buffer: Tensor, rows: Tensor, moved: Tensor | None) -> Tensor:
    """These rows of a buffer; if few have left, the last ones take their places (`moved`) in the buffer."""
    if moved is None:
        return buffer.index_select(0, rows)
    buffer[moved] = buffer[rows[moved]]
    return buffer[: len(rows)]


def gather_columns(buffer: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The tokens in these columns of these rows: [N,G,S,C], [n], [n,s] -> [n,G,s,C]."""
    _, heads, length, channels = buffer.shape
    head = torch.arange(heads, device=rows.device)[:, None]
    place = ((rows[:, None, None] * heads + head) * length + columns[:, None]).flatten()
    return buffer.reshape(-1, channels).index_select(0, place).view(len(rows), heads, -1, channels)
