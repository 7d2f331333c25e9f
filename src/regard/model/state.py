"""The state of a decoding run: a value that the caller holds. Nothing is cached on modules.

It is the same class for every family. A model keeps three kinds of tensors in it, by name:
- `rows`: one entry per row of the running batch, of fixed size (an RNN's hidden state, the next position);
- `growing`: one entry per row with a time axis (-2; -1 for positions), filled up to column `length`;
- `sources`: one entry per source sentence, shared by its `beams` rows, which stand next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

# Sums over keys have equal bits whatever the padding if the keys come in blocks of 16 columns, and if one
# product of the attention is not so small that another kernel takes it (measured as for `Linear`).
BLOCK = 16
SMALLEST_PRODUCT = 512  # columns times channels of a head
Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Past:
    """One layer's keys and values so far, with room for those of this step in `columns`."""

    key: Tensor  # [R,H,S,C]
    value: Tensor  # [R,H,S,C]
    columns: slice

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.key[:, :, self.columns] = k
        self.value[:, :, self.columns] = v
        return self.key, self.value


@dataclass
class _Tip:
    """How far the buffers of `growing` are written; shared by the states that share the buffers."""

    column: int


@dataclass(frozen=True)
class State:
    rows: Tensors
    growing: Tensors = field(default_factory=dict)
    sources: Tensors = field(default_factory=dict)
    beams: int = 1
    block: int = BLOCK  # `growing` has a multiple of so many columns
    length: int = 0
    tip: _Tip = field(default_factory=lambda: _Tip(0))

    def __len__(self) -> int:
        """R, the number of rows."""
        return len(next(iter(self.rows.values())))

    def extend(self, columns: int) -> State:
        """The state with `columns` more columns, ready to be written at [length - columns, length).

        Buffers are written in place unless another state already went on from here: then they are copied,
        so that a state stays a value.
        """
        length = self.length + columns
        capacity = min((t.shape[_time(name)] for name, t in self.growing.items()), default=0)
        if self.tip.column == self.length and length <= capacity:
            self.tip.column = length
            return replace(self, length=length)
        room = round_up(length, self.block)
        growing = {name: fit(name, tensor, room) for name, tensor in self._own_columns().items()}
        return replace(self, growing=growing, length=length, tip=_Tip(length))

    def _own_columns(self) -> Tensors:
        """`growing` without what another state has written behind this one's last column."""
        if self.tip.column == self.length:
            return self.growing
        return {name: t.narrow(_time(name), 0, self.length) for name, t in self.growing.items()}

    def select(self, rows: Tensor) -> State:
        """The state of these rows; they may repeat, be left out and change places."""
        count = len(self)
        if len(rows) == count and torch.equal(rows, torch.arange(count, device=rows.device)):
            return self
        sources, beams = self._select_sources(rows // self.beams)
        room = round_up(self.length, self.block)
        growing = {name: fit(name, t, room) for name, t in self._own_columns().items()}
        return State(
            rows=_take(self.rows, rows),
            growing=_take(growing, rows),
            sources=sources,
            beams=beams,
            block=self.block,
            length=self.length,
            tip=_Tip(self.length),
        )

    def _select_sources(self, owner: Tensor) -> tuple[Tensors, int]:
        """Sources for rows that belong to `owner`, shared as long as the rows of a source stand together."""
        if not self.sources or len(owner) % self.beams:
            return _take(self.sources, owner), 1
        groups = owner.view(-1, self.beams)
        if not bool((groups == groups[:, :1]).all()):
            return _take(self.sources, owner), 1
        first = groups[:, 0]
        if torch.equal(first, torch.arange(len(self) // self.beams, device=owner.device)):
            return self.sources, self.beams
        return _take(self.sources, first), self.beams

    @staticmethod
    def join(states: Sequence[State]) -> State:
        """One state with the rows of all; what is shorter is padded (positions with -1, values with 0)."""
        if len({state.beams for state in states}) > 1:
            raise ValueError("states with different numbers of beams cannot be joined")
        length = max(state.length for state in states)
        return State(
            rows=_join([state.rows for state in states]),
            growing=_join([state._own_columns() for state in states]),
            sources=_join([state.sources for state in states]),
            beams=states[0].beams,
            block=states[0].block,
            length=length,
            tip=_Tip(length),
        )


def _take(tensors: Tensors, index: Tensor) -> Tensors:
    return {name: tensor.index_select(0, index) for name, tensor in tensors.items()}


def round_up(length: int, block: int) -> int:
    return -(-length // block) * block


def steady_block(channels: int) -> int:
    """Columns of keys that come together, for heads of so many channels: 16, more for narrow heads."""
    return round_up(max(BLOCK, -(-SMALLEST_PRODUCT // channels)), BLOCK)


def _time(name: str) -> int:
    return -1 if name.endswith("positions") else -2


def fit(name: str, tensor: Tensor, columns: int) -> Tensor:
    """Pad the time axis to `columns`."""
    missing = columns - tensor.shape[_time(name)]
    if missing <= 0:
        return tensor
    return F.pad(tensor, (0, missing), value=-1) if _time(name) == -1 else F.pad(tensor, (0, 0, 0, missing))


def _join(parts: Sequence[Tensors]) -> Tensors:
    joined = {}
    for name in parts[0]:
        tensors = [part[name] for part in parts]
        if len({tensor.shape[1:] for tensor in tensors}) > 1:
            longest = max(tensor.shape[_time(name)] for tensor in tensors)
            tensors = [fit(name, tensor, longest) for tensor in tensors]
        joined[name] = torch.cat(tensors)
    return joined
