"""The state of an engine's run: beams change places without a word of the cache being copied.

The words of all beams of a source stand in one row, in the order in which they were said, and beside them
which of them are on the path of each beam. Changing beams changes these paths alone. Attention sees all words
of the source and hides those that are not on the beam's path. Every few steps words that are on no path any
more leave: beams have most of their history in common, so that little more is kept than for one of them.
Shapes: N sources, K beams, R = N * K rows, S columns, H heads, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.models.state import State, fit, round_up

PATHS = "paths"  # [N,K,S], 1 where the word in this column is on the beam's path
PRUNE_EVERY = 4  # words of a source. Its own count decides, so that its sums never depend on its neighbours


@dataclass(frozen=True)
class BeamCache:
    state: State  # a row for each source; keys and values [N,H,S,C]
    beams: int
    age: int = 0  # of the buffers when this state was made
    buffers: list[int] = field(default_factory=lambda: [0])  # their age now, shared by all who use them

    @classmethod
    def init(cls, state: State, beams: int) -> BeamCache:
        """A state that has said nothing, with so many beams for each of its rows."""
        growing = {name: tensor for name, tensor in state.growing.items() if tensor.dim() == 4}
        growing[PATHS] = state.rows["next"].new_empty((len(state), beams, 0))
        return cls(replace(state, growing=growing), beams)

    def __len__(self) -> int:
        """R, the number of rows."""
        return len(self.state) * self.beams

    @property
    def rows(self) -> Mapping[str, Tensor]:
        return {"next": self.state.rows["next"].repeat_interleave(self.beams)}

    @property
    def width(self) -> int:
        """Columns that matter to anybody."""
        return round_up(self.state.length, self.state.block)

    def extend(self) -> BeamCache:
        """The tree with room for one more word of each beam, on whose path it is."""
        self.refuse_if_moved()
        tree = self.pruned() if self.beams > 1 else self
        state, count = tree.state, self.beams
        state = replace(state.extend(count), rows={"next": state.rows["next"] + 1})
        diagonal = torch.eye(count, dtype=torch.int64, device=state.rows["next"].device)
        new = diagonal[:, :, None].expand(len(state), -1, -1, -1)  # [N,K,K,1]
        state.last(count).write(state.growing[PATHS].unsqueeze(-1), new)
        return replace(tree, state=state) if state.growing is tree.state.growing else BeamCache(state, count)

    def write_positions(self) -> Tensor:
        """Where the last word of each beam goes in keys and values seen as rows of C numbers: [N*H*K]."""
        state, count = self.state, self.beams
        columns = state.last(count)
        buffer = next(tensor for name, tensor in state.growing.items() if name != PATHS)
        heads, length = buffer.shape[1], buffer.shape[2]
        positions = columns.positions
        if positions is None:
            positions = torch.arange(columns.together.start, columns.together.stop, device=buffer.device)[
                None
            ]
        head = torch.arange(len(state) * heads, device=buffer.device).view(-1, heads, 1) * length
        return (head + positions[:, None]).flatten()

    def visible_columns(self) -> Tensor:
        """Which of the words of its source each beam may look at: [N,K,S]."""
        state, paths = self.state, self.state.growing[PATHS][:, :, : self.width]
        on_path = paths > 0
        if state.ages is None and self.width == state.length:
            return on_path
        columns = torch.arange(self.width, device=paths.device)
        ages = state.length if state.ages is None else state.ages[:, None, None]
        return on_path & (columns < ages)

    def pruned(self) -> BeamCache:
        """Without the words that are on no path, in the sources whose turn it is."""
        lengths = self.state.rows["next"]
        turn = ((lengths % PRUNE_EVERY == 0) & (lengths > 0)).nonzero()[:, 0]  # [n]
        if not len(turn):
            return self
        seen = self.visible_columns()[turn]  # [n,K,S]
        living = seen.any(dim=1)  # [n,S]
        counts = living.sum(dim=1)
        order = living.byte().argsort(dim=1, descending=True, stable=True)[:, : int(counts.max())]  # [n,s]
        for name, buffer in self.state.growing.items():
            if name == PATHS:
                moved = seen.gather(2, order[:, None].expand(-1, self.beams, -1)).to(buffer.dtype)
            else:
                moved = gather_columns(buffer, turn, order)
            buffer[turn, :, : order.shape[1]] = moved
        self.buffers[0] += 1
        before = self.state.length if self.state.ages is None else self.state.ages
        ages = (torch.zeros_like(lengths) + before).index_copy(0, turn, counts)
        return replace(self, state=self.state.aged(ages), age=self.buffers[0])

    def refuse_if_moved(self) -> None:
        """A state is a value as long as nobody went on from it; then its words may have moved."""
        if self.age != self.buffers[0]:
            raise ValueError("another state went on from here and moved the words that they had in common")

    def select(self, rows: Tensor) -> BeamCache:
        """The tree of these rows; they may repeat, be left out and change places."""
        self.refuse_if_moved()
        groups = (rows // self.beams).view(-1, self.beams) if len(rows) % self.beams == 0 else None
        if groups is None or not bool((groups == groups[:, :1]).all()):
            return self.expand().select(rows)
        tree = self.of(groups[:, 0])
        if self.beams == 1:
            return tree
        state, paths = tree.state, tree.state.growing[PATHS]
        parents = (rows % self.beams).view(-1, self.beams, 1).expand(-1, -1, paths.shape[2])  # [N,K,S]
        return replace(tree, state=replace(state, growing={**state.growing, PATHS: paths.gather(1, parents)}))

    def of(self, owners: Tensor) -> BeamCache:
        """The tree of these sources: [N']."""
        places = torch.arange(len(owners), device=owners.device)
        holes = (owners != places).nonzero()[:, 0]
        few_move = len(owners) < len(self.state) and 2 * len(holes) <= len(owners)
        if few_move and bool((owners[holes] >= len(owners)).all()):
            return self.compact(owners, holes)
        state = self.state.select(owners)
        return self if state is self.state else BeamCache(state, self.beams)

    def compact(self, owners: Tensor, holes: Tensor) -> BeamCache:
        """The last sources take the places of those that left; nobody else is moved."""
        state, count, taken = self.state, len(owners), owners[holes]
        for tensor in (*state.growing.values(), *state.sources.values()):
            if tensor.dim() == 4 and len(holes):
                tensor[holes] = tensor[taken]
        self.buffers[0] += bool(len(holes))
        there = state.sources["source.positions"][owners]  # [N',S]
        columns = round_up(int((there >= 0).sum(dim=1).max()), state.block)
        small = {"source.positions": there}  # the caller's own, maybe: not to be written
        state = replace(
            state,
            rows={name: tensor[owners] for name, tensor in state.rows.items()},
            growing={
                name: tensor[owners] if name == PATHS else tensor[:count]
                for name, tensor in state.growing.items()
            },
            sources={
                name: fit(name, small.get(name, tensor[:count]), columns)
                for name, tensor in state.sources.items()
            },
        )
        ages = torch.full_like(owners, state.length) if state.ages is None else state.ages[owners]
        return replace(self, state=state.aged(ages), age=self.buffers[0])

    def expand(self) -> BeamCache:
        """Every beam a source of its own, with the words on its path."""
        row = torch.arange(len(self), device=self.state.rows["next"].device)
        tree = BeamCache(self.state.select(row // self.beams), self.beams)
        seen = tree.visible_columns()[row, row % self.beams]  # [R,S]
        order = seen.byte().argsort(dim=1, descending=True, stable=True)
        growing = {
            name: gather_columns(buffer, row, order) if name != PATHS else torch.ones_like(order).unsqueeze(1)
            for name, buffer in tree.state.growing.items()
        }
        return BeamCache(replace(tree.state, growing=growing).aged(seen.sum(dim=1)), 1)

    @classmethod
    def join(cls, trees: Sequence[BeamCache]) -> BeamCache:
        """One tree with the rows of all."""
        if len({tree.beams for tree in trees}) > 1:
            raise ValueError("states with different numbers of beams cannot be joined")
        return cls(State.join([tree.state for tree in trees]), trees[0].beams)


def gather_columns(buffer: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The words in these columns of these rows: [N,H,S,C], [n], [n,s] -> [n,H,s,C]."""
    _, heads, length, channels = buffer.shape
    head = torch.arange(heads, device=rows.device)[:, None]
    place = ((rows[:, None, None] * heads + head) * length + columns[:, None]).flatten()
    return buffer.reshape(-1, channels).index_select(0, place).view(len(rows), heads, -1, channels)
