"""What comes next: causal language models on running text (Radford et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.data.dataset import Numbers, Pool, column, narrowest, offsets
from regard.data.objectives.base import Columns, Dice, Loss
from regard.data.rows import Row
from regard.inputs.text import Tokenizer
from regard.sample import Sample

STRETCH = 16  # windows in a row of the column; a long document is several rows


@dataclass
class Continuation:
    """A document is `<s> x_1 .. x_n </s>`, and each of its pieces is to be told from those before.

    Long documents come in several rows of text, so `encode` remembers whether one is still open. Rows of the
    column overlap by one piece: the last of one is the first that the next one reads.
    """

    tokenizer: Tokenizer
    window: int  # pieces that the model reads at once
    loss: Loss = "words"
    open: bool = field(default=False, init=False)  # the last row's document goes on

    @property
    def longest(self) -> int:
        return STRETCH * self.window + 1

    def encode(self, rows: Sequence[Row]) -> Columns:
        stretches = [stretch for _, text, more in rows for stretch in self.stretches(text, bool(more))]
        pieces = column(stretches, narrowest(len(self.tokenizer)))
        return Columns(pieces, column([()] * len(stretches), narrowest(1)))

    def stretches(self, text: str, more: bool) -> Iterator[list[int]]:
        ids = self.pieces(text, more)
        for start in range(0, max(1, len(ids) - 1), self.longest - 1):
            yield ids[start : start + self.longest]

    def pieces(self, text: str, more: bool) -> list[int]:
        begins, self.open = not self.open, more
        own = self.tokenizer.encode(text) if begins else self.tokenizer.encode_inside(text)
        return [*([self.tokenizer.start] if begins else []), *own, *([] if more else [self.tokenizer.end])]

    def too_long(self, rows: Sequence[Row]) -> list[int]:
        return []  # they are cut

    def arrange(self, pool: Pool, dice: Dice) -> Packed:
        """In a drawn order and cut at drawn places, so that no epoch sees the same windows."""
        order, first = dice.permutation(len(pool)), int(dice.integers(1, self.window + 1))
        return Packed.of([pool.source[number].astype(np.int64) for number in order], self.window, first)

    def held(self, rows: Sequence[Row]) -> list[Sample]:
        """Windows one after another, for the loss of held-out text."""
        self.open = False
        stretches = [np.array(s) for _, text, more in rows for s in self.stretches(text, bool(more))]
        packed = Packed.of(stretches, self.window, self.window)
        return [packed.sample(number) for number in range(len(packed.lengths))]


@dataclass(frozen=True)
class Packed:
    """Stretches one after another, cut into windows: no padding, whatever the lengths of the documents.

    A window may hold the end of one document and the beginning of another; `documents` keeps them apart, and
    positions begin anew.
    """

    read: Numbers  # what the model reads
    said: Numbers  # what comes next
    stretch: Numbers  # the number of each piece's stretch
    starts: Numbers  # where each stretch begins
    cuts: Numbers  # where windows begin, and the end

    @classmethod
    def of(cls, stretches: Sequence[Numbers], window: int, first: int) -> Packed:
        """`first` is the length of the first window."""
        lengths = np.array([max(0, len(each) - 1) for each in stretches], dtype=np.int64)
        total = int(lengths.sum())
        none = np.zeros(0, dtype=np.int64)
        return cls(
            read=np.concatenate([none, *(each[:-1] for each in stretches)]),
            said=np.concatenate([none, *(each[1:] for each in stretches)]),
            stretch=np.repeat(np.arange(len(stretches)), lengths),
            starts=offsets(lengths),
            cuts=np.array([0, *range(min(first, total), total, window), total], dtype=np.int64),
        )

    @property
    def lengths(self) -> Numbers:
        return np.diff(self.cuts)[:, None]

    def sample(self, number: int, dice: Dice | None = None) -> Sample:
        first, last = int(self.cuts[number]), int(self.cuts[number + 1])
        own = self.stretch[first:last]
        begins = np.maximum(self.starts[own], first)  # of each piece's text in this window
        return Sample(
            target=self.read[first:last].tolist(),
            labels=self.said[first:last].tolist(),
            positions=(np.arange(first, last) - begins).tolist(),
            documents=(own - own[0]).tolist() if len(own) else [],
        )
