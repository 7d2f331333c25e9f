"""`Example`: a row of a corpus as text. `Sample`: the same as token ids. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

IGNORED = -100  # a label that does not count in the loss


@dataclass(frozen=True, slots=True)
class Example:
    """One row of a corpus as text. `target` is empty if there is only a source."""

    source: str
    target: str = ""
    line: int = field(default=0, compare=False)  # in its file, from 1; 0 if it comes from elsewhere


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids of one example, made by the task's objective.

    An encoder reads `source`, a decoder reads `target`, the model predicts `labels`: at each position of
    `target` (of `source`, for a model without a decoder), or for the text as a whole.
    """

    source: Sequence[int] = ()
    target: Sequence[int] = ()
    labels: Sequence[int] = ()
    segments: Sequence[int] = ()  # of the source: 0 for the first text, 1 for the second
    positions: Sequence[int] = ()  # of the target, if it has several documents; else 0, 1, 2 ...
    documents: Sequence[int] = ()  # of the target: the number of each token's document
