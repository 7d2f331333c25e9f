"""A corpus as ids: flat arrays and the offsets into them; compact, and the same when mapped from disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regard.data.example import Example
from regard.text import Tokenizer

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
PORTION = 50_000  # texts tokenised at once


@dataclass(frozen=True)
class Side:
    ids: Ids
    offsets: Offsets  # one more than there are sentences

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> Offsets:
        return np.diff(self.offsets)

    def select(self, keep: npt.NDArray[np.bool_]) -> Side:
        lengths = self.lengths
        return Side(self.ids[np.repeat(keep, lengths)], _offsets(lengths[keep]))


@dataclass(frozen=True)
class Dataset:
    source: Side
    target: Side

    def __len__(self) -> int:
        return len(self.source)

    def at_most(self, longest: int) -> Dataset:
        """Without the pairs of which one side has more than `longest` pieces."""
        keep = (self.source.lengths <= longest) & (self.target.lengths <= longest)
        return self if keep.all() else Dataset(self.source.select(keep), self.target.select(keep))


def tokenize(examples: Sequence[Example], source: Tokenizer, target: Tokenizer) -> Dataset:
    return Dataset(
        _tokenize_side([example.source for example in examples], source),
        _tokenize_side([example.target for example in examples], target),
    )


def _tokenize_side(texts: Sequence[str], tokenizer: Tokenizer) -> Side:
    rows: list[list[int]] = []
    for start in range(0, len(texts), PORTION):
        rows += tokenizer.encode_batch(texts[start : start + PORTION])
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.fromiter((piece for row in rows for piece in row), dtype=np.int32, count=int(lengths.sum()))
    return Side(ids, _offsets(lengths))


def _offsets(lengths: Offsets) -> Offsets:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
