"""The decoding cache: a value that the caller holds. Nothing is cached on modules.

The same class serves every family. It contains three kinds of tensors, by name:
- `rows`: one entry per row of the running batch, of fixed size (an RNN's hidden state, the next position);
- `growing`: one entry per row with a time axis (-2; -1 for positions), filled from column 0 on: the KV cache;
- `sources`: one entry per source sentence, shared by its `beams` adjacent rows.

Rows of one batch may have different lengths. Each is filled from the left, so that its columns do not depend
on the other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

# Sums over keys have equal bits for any padding if the keys come in blocks of 16 columns, and if a matmul of
# the attention is not so small that another kernel is used (measured as for `Linear`).
BLOCK = 16
SMALLEST_PRODUCT = 512  # columns times channels of a head
Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of new tokens: the same in every row, or those after the last token of each row."""

    together: slice
    positions: Tensor | None = None  # [R,T], if rows differ in length

    def write(self, buffer: Tensor, new: Tensor) -> None:
        """Keys or values [R,H,T,C] into [R,H,S,C]."""
        if self.positions is None:
            buffer[:, :, self.together] = new
        else:
            rows = torch.arange(len(buffer), device=buffer.device)[:, None]
            buffer[rows, :, self.positions] = new.transpose(1, 2)

    def write_positions(self, buffer: Tensor, new: Tensor) -> None:
        """[R,T] into [R,S]."""
        if self.positions is None:
            buffer[:, self.together] = new
        else:
            buffer.scatter_(1, self.positions, new)


@dataclass(frozen=True, slots=True)
class Past:
    """The KV cache of one layer; keys and values of this step are written to `columns`."""

    key: Tensor  # [R,H,S,C]
    value: Tensor  # [R,H,S,C]
    columns: Columns

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.columns.write(self.key, k)
        self.columns.write(self.value, v)
        return self.key, self.value


@dataclass
class _Tip:
    """Number of written columns of `growing`; shared by the states that share these buffers."""

    column: int


@dataclass(frozen=True)
class State:
    rows: Tensors
    growing: Tensors = field(default_factory=dict)
    sources: Tensors = field(default_factory=dict)
    beams: int = 1
    block: int = BLOCK  # the number of columns of `growing` is a multiple of this
    length: int = 0  # columns filled in the longest row
    ages: Tensor | None = None  # [R], columns filled in each row; None if equal in all
    tip: _Tip = field(default_factory=lambda: _Tip(0))

    def __len__(self) -> int:
        """R, the number of rows."""
        return len(next(iter(self.rows.values())))

    def extend(self, columns: int) -> State:
        """The state with `columns` more columns in each row, to be written at `last(columns)`.

        Buffers are written in place unless another state already continued from this one: then they are
        copied, so that a state stays a value. Buffers that must grow are replaced one by one, which limits
        peak memory.
        """
        length = self.length + columns
        ages = None if self.ages is None else self.ages + columns
        room = round_up(length, self.block)
        if self.tip.column != self.length:
            return replace(self, growing=self._columns(room), length=length, ages=ages, tip=_Tip(length))
        for name, tensor in self.growing.items():
            if tensor.shape[_time(name)] < length:
                self.growing[name] = fit(name, tensor, room)
        self.tip.column = length
        return replace(self, length=length, ages=ages)

    def last(self, count: int) -> Columns:
        """The columns of the last `count` tokens of each row."""
        together = slice(self.length - count, self.length)
        if self.ages is None:
            return Columns(together)
        return Columns(together, (self.ages - count)[:, None] + torch.arange(count, device=self.ages.device))

    def aged(self, ages: Tensor) -> State:
        """Set each row's valid length; columns beyond it may be overwritten. [R]."""
        length, differing = _even(ages)
        return replace(self, length=length, ages=differing, tip=_Tip(length))

    def _columns(self, count: int) -> Tensors:
        """`growing` with `count` columns, without columns that another state has written."""
        growing = self.growing
        if self.tip.column != self.length:
            growing = {name: t.narrow(_time(name), 0, self.length) for name, t in growing.items()}
        return {name: fit(name, tensor, count) for name, tensor in growing.items()}

    def select(self, rows: Tensor) -> State:
        """The state of these rows, in this order; rows may repeat."""
        count = len(self)
        if len(rows) == count and torch.equal(rows, torch.arange(count, device=rows.device)):
            return self
        sources, beams = self._select_sources(rows // self.beams)
        length, ages = (self.length, None) if self.ages is None else _even(self.ages[rows])
        return State(
            rows=_take(self.rows, rows),
            growing=_take(self._columns(round_up(length, self.block)), rows),
            sources=sources,
            beams=beams,
            block=self.block,
            length=length,
            ages=ages,
            tip=_Tip(length),
        )

    def _select_sources(self, owner: Tensor) -> tuple[Tensors, int]:
        """Sources for rows that belong to `owner`, shared as long as the rows of a source are adjacent."""
        if not self.sources or len(owner) % self.beams:
            return self._take_sources(owner), 1
        groups = owner.view(-1, self.beams)
        if not bool((groups == groups[:, :1]).all()):
            return self._take_sources(owner), 1
        first = groups[:, 0]
        if torch.equal(first, torch.arange(len(self) // self.beams, device=owner.device)):
            return self.sources, self.beams
        return self._take_sources(first), self.beams

    def _take_sources(self, index: Tensor) -> Tensors:
        """These sources, with as many columns as the longest of them needs."""
        if not self.sources:
            return {}
        there = self.sources["source.positions"][index] >= 0  # [N,S]
        longest = int(there.sum(dim=1).max()) if len(there) else 0
        columns = round_up(longest, self.block)
        return _take({name: fit(name, tensor, columns) for name, tensor in self.sources.items()}, index)

    @classmethod
    def join(cls, states: Sequence[State]) -> State:
        """One state with the rows of all; shorter ones are padded (positions with -1, values with 0)."""
        if states[0].sources and len({state.beams for state in states}) > 1:
            raise ValueError("states with different numbers of beams cannot be joined")
        ages = torch.cat(
            [
                torch.full((len(state),), state.length, device=_device(state))
                if state.ages is None
                else state.ages
                for state in states
            ]
        )
        length, differing = _even(ages)
        room = round_up(length, states[0].block)
        return State(
            rows=_join([state.rows for state in states]),
            growing=_join([state._columns(room) for state in states]),
            sources=_join([state.sources for state in states]),
            beams=states[0].beams if states[0].sources else 1,
            block=states[0].block,
            length=length,
            ages=differing,
            tip=_Tip(length),
        )


def _device(state: State) -> torch.device:
    return next(iter(state.rows.values())).device


def _even(ages: Tensor) -> tuple[int, Tensor | None]:
    """The length of the longest row, and those of all rows if they differ."""
    if not len(ages):
        return 0, None
    youngest, oldest = ages.aminmax()
    length = int(oldest)
    return length, None if int(youngest) == length else ages


def _take(tensors: Tensors, index: Tensor) -> Tensors:
    return {name: tensor.index_select(0, index) for name, tensor in tensors.items()}


def round_up(length: int, block: int) -> int:
    return -(-length // block) * block


def kv_block(channels: int) -> int:
    """The block size of the KV cache for heads of `channels`: 16, more for narrow heads."""
    return round_up(max(BLOCK, -(-SMALLEST_PRODUCT // channels)), BLOCK)


def _time(name: str) -> int:
    return -1 if name.endswith(("positions", "bias", "paths", "turned")) else -2


def fit(name: str, tensor: Tensor, columns: int) -> Tensor:
    """Pad or truncate the time axis to `columns`: positions with -1, biases with -inf, others with 0."""
    axis = _time(name)
    missing = columns - tensor.shape[axis]
    if missing == 0:
        return tensor
    if missing < 0:
        return tensor.narrow(axis, 0, columns)
    if axis == -2:
        return F.pad(tensor, (0, 0, 0, missing))
    nothing = {"bias": float("-inf"), "positions": -1}
    return F.pad(tensor, (0, missing), value=nothing.get(name.rpartition(".")[2], 0))


def _join(parts: Sequence[Tensors]) -> Tensors:
    joined = {}
    for name in parts[0]:
        tensors = [part[name] for part in parts]
        if len({tensor.shape[1:] for tensor in tensors}) > 1:
            longest = max(tensor.shape[_time(name)] for tensor in tensors)
            tensors = [fit(name, tensor, longest) for tensor in tensors]
        joined[name] = torch.cat(tensors)
    return joined
