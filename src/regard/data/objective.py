"""What a model is asked: the only place where tasks differ in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.example import Sample


@dataclass(frozen=True)
class Translation:
    """The encoder reads `x_1 .. x_m </s>`; the decoder reads `<s> y_1 .. y_n`, must say `y_1 .. y_n </s>`."""

    start: int
    source_end: int
    target_end: int

    def source(self, ids: Sequence[int]) -> Sample:
        """A source alone, for decoding."""
        return Sample(source=[*ids, self.source_end])

    def pair(self, source: Sequence[int], target: Sequence[int]) -> Sample:
        return Sample(
            source=[*source, self.source_end],
            target=[self.start, *target],
            labels=[*target, self.target_end],
        )
