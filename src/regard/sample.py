"""`Example`: a row of a corpus as text. `Sample`: the same as token ids, or frames. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

FrameArray = npt.NDArray[np.float32]  # [S,F]
Source = Sequence[int] | FrameArray  # what a model reads: token ids, or frames
IGNORED = -100  # a label that does not count in the loss


@dataclass(frozen=True, slots=True)
class Example:
    """One row of a corpus as text. `target` is empty if there is only a source."""

    source: str  # of pictures and sounds: where the file is
    target: str = ""
    line: int = field(default=0, compare=False)  # in its file, from 1; 0 if it comes from elsewhere


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids of one example, made by the task's objective.

    An encoder reads `source`, a decoder reads `target`, the model predicts `labels`: at each position of
    `target` (of `source`, for a model without a decoder), or for the text as a whole.
    """

    source: Source = ()
    target: Sequence[int] = ()
    labels: Sequence[int] = ()
    segments: Sequence[int] = ()  # of the source: 0 for the first text, 1 for the second
    positions: Sequence[int] = ()  # of the target, if it has several documents; else 0, 1, 2 ...
    documents: Sequence[int] = ()  # of the target: the number of each token's document

    @property
    def source_ids(self) -> Sequence[int]:
        """The source of a model that reads text."""
        if isinstance(self.source, np.ndarray) and self.source.ndim == 2:
            raise ValueError("the source is frames, not token ids")
        return cast(Sequence[int], self.source)
