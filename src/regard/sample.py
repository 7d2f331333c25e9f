"""`Example`: a row of a corpus as text. `Sample`: the same as token ids. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

IGNORED = -100  # a label that is not asked for


@dataclass(frozen=True, slots=True)
class Example:
    """One unit of a corpus as text. `target` is empty where only a source is known."""

    source: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One example as ids, made by the task's objective.

    `source` is what an encoder reads, `target` what a decoder reads, `labels` what the model must answer: at
    each position of `target` (of `source`, for a model without a decoder), or about the text as a whole.
    """

    source: Sequence[int] = ()
    target: Sequence[int] = ()
    labels: Sequence[int] = ()
    segments: Sequence[int] = ()  # of the source: 0 for its first text, 1 for its second
    positions: Sequence[int] = ()  # of the target, where it holds several texts; else 0, 1, 2 ...
    documents: Sequence[int] = ()  # of the target: to which of its texts each place belongs
