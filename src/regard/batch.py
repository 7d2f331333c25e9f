"""`Tokens`, `Frames` and `Batch`: samples as padded tensors, the input of a model.

Shapes: B rows, T target tokens, S source tokens or frames, F numbers of a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.sample import IGNORED, Sample


@dataclass(frozen=True, slots=True)
class Tokens:
    """Rows of ids with their positions; position -1 is padding, and its id is ignored."""

    ids: Tensor  # [B,T] int64
    positions: Tensor  # [B,T] int64
    documents: Tensor | None = None  # [B,T]: the number of the token's document in a packed row
    segments: Tensor | None = None  # [B,T]: question or context, first or second sentence
    # where padding stands, known without reading the positions, on which a GPU would have to be waited for;
    # None: unknown, or the positions of a row are not 0, 1, 2 ...
    padding: Literal["none", "right"] | None = None

    def to(self, device: torch.device) -> Tokens:
        return Tokens(
            self.ids.to(device),
            self.positions.to(device),
            None if self.documents is None else self.documents.to(device),
            None if self.segments is None else self.segments.to(device),
            self.padding,
        )

    @property
    def content(self) -> Tensor:
        return self.ids

    @property
    def count(self) -> int:
        return int((self.positions >= 0).sum())


@dataclass(frozen=True, slots=True)
class Frames:
    """Rows of vectors with their positions: patches of pictures, spectra of sounds. Zeros at padding."""

    values: Tensor  # [B,S,F]
    positions: Tensor  # [B,S] int64, -1 is padding
    padding: Literal["none", "right"] | None = None
    documents: ClassVar[None] = None
    segments: ClassVar[None] = None

    def to(self, device: torch.device) -> Frames:
        return Frames(self.values.to(device), self.positions.to(device), self.padding)

    def in_blocks(self, block: int) -> Frames:
        """Padded on the right to whole blocks of columns."""
        more = -self.positions.shape[1] % block
        if not more:
            return self
        positions = torch.nn.functional.pad(self.positions, [0, more], value=-1)
        return Frames(torch.nn.functional.pad(self.values, [0, 0, 0, more]), positions, "right")

    @property
    def content(self) -> Tensor:
        return self.values

    @property
    def count(self) -> int:
        return int((self.positions >= 0).sum())


@dataclass(frozen=True)
class FrameSize:
    """The size of the frames that a model reads, as a vocabulary is the size of its tokens."""

    length: int  # the largest number of frames
    width: int  # F
    # of a picture's patches: rows and columns (of a film: tubelets, rows, columns); None: frames over time
    grid: tuple[int, ...] | None = None
    channels: int = 1  # of a picture; the frames of a picture are its patches, channels first


class Unpadding:
    """The tokens of a padded batch as one row without padding: [B,S,...] <-> [1,T,...], T tokens in all.

    Linear maps and norms then compute no padding; attention needs the rows, with zeros at the padding.
    """

    def __init__(self, rows: int, columns: int, places: Tensor, lengths: Sequence[int] = ()) -> None:
        self.rows, self.columns, self.places, self.lengths = rows, columns, places, lengths  # places [T]

    @classmethod
    def of(cls, positions: Tensor) -> Unpadding:
        """[B,S], -1 where there is no token."""
        real = positions >= 0
        rows, columns = positions.shape
        return cls(rows, columns, real.flatten().nonzero()[:, 0], real.sum(dim=1).tolist())

    def unpad(self, x: Tensor) -> Tensor:
        """[B,S,...] -> [1,T,...]."""
        return x.flatten(0, 1).index_select(0, self.places)[None]

    def pad(self, x: Tensor) -> Tensor:
        """[1,T,D] -> [B,S,D]."""
        padded = x.new_zeros((self.rows * self.columns, x.shape[2]))
        return padded.index_copy_(0, self.places, x[0]).view(self.rows, self.columns, -1)


@dataclass(frozen=True, slots=True)
class Batch:
    source: Tokens | Frames | None = None
    target: Tokens | None = None
    # int64, IGNORED where there is no label: [B,T], or for a text as a whole [B,1], [B,2], [B,L]
    labels: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        return replace(
            self,
            source=self.source.to(device) if self.source else None,
            target=self.target.to(device) if self.target else None,
            labels=None if self.labels is None else self.labels.to(device),
        )


def tokens(rows: Sequence[Sequence[int]], multiple: int = 1) -> Tokens:
    """Pad rows on the right to the longest, rounded up to a multiple of `multiple`."""
    ids = pad(rows, 0, multiple)
    lengths = [len(row) for row in rows]
    is_full = min(lengths, default=0) == ids.shape[1]
    return Tokens(ids, row_positions(lengths, ids.shape[1]), padding="none" if is_full else "right")


def frames(rows: Sequence[npt.NDArray[np.float32]], multiple: int = 1) -> Frames:
    """Pad rows [S,F] on the right to the longest, rounded up to a multiple of `multiple`."""
    lengths = [len(row) for row in rows]
    longest = -(-max(lengths) // multiple) * multiple
    values = np.zeros((len(rows), longest, rows[0].shape[1]), dtype=np.float32)
    for number, row in enumerate(rows):
        values[number, : len(row)] = row
    positions = row_positions(lengths, longest)
    padding: Literal["none", "right"] = "none" if min(lengths) == longest else "right"
    return Frames(torch.from_numpy(values), positions, padding)


def row_positions(lengths: Sequence[int], columns: int) -> Tensor:
    """0, 1, 2 ... in each row, -1 from its length on: [B,columns]."""
    places = torch.arange(columns).expand(len(lengths), -1)
    return places.masked_fill(places >= torch.tensor(lengths, dtype=torch.int64)[:, None], -1)


def source_of(samples: Sequence[Sample], multiple: int) -> Tokens | Frames:
    if isinstance(samples[0].source, np.ndarray) and samples[0].source.ndim == 2:
        return frames([np.asarray(sample.source) for sample in samples], multiple)
    padded = tokens([sample.source_ids for sample in samples], multiple)
    if not any(len(sample.segments) for sample in samples):
        return padded
    return replace(padded, segments=pad([sample.segments for sample in samples], 0, multiple))


def target_tokens(samples: Sequence[Sample], multiple: int) -> Tokens:
    padded = tokens([sample.target for sample in samples], multiple)
    if any(len(sample.positions) for sample in samples):
        positions = pad([sample.positions for sample in samples], -1, multiple)
        padded = replace(padded, positions=positions, padding=None)
    if any(any(sample.documents) for sample in samples):  # else each row has one document
        padded = replace(padded, documents=pad([sample.documents for sample in samples], -1, multiple))
    return padded


def pad(rows: Sequence[Sequence[int]], value: int, multiple: int = 1) -> Tensor:
    longest = max((len(row) for row in rows), default=0)
    table = np.full((len(rows), -(-longest // multiple) * multiple), value, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return torch.from_numpy(table)


def collate(samples: Sequence[Sample], multiple: int = 1) -> Batch:
    """Collate samples into a batch. A side that no sample has is None."""
    has_source = any(len(sample.source) for sample in samples)
    has_target = any(len(sample.target) for sample in samples)
    has_labels = any(len(sample.labels) for sample in samples)
    return Batch(
        source=source_of(samples, multiple) if has_source else None,
        target=target_tokens(samples, multiple) if has_target else None,
        # without `multiple`: they may be for a text as a whole
        labels=pad([sample.labels for sample in samples], IGNORED) if has_labels else None,
    )
