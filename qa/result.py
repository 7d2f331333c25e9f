"""What a trial found: one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Result:
    """`failures` counts what is wrong on any machine; times and sizes that a busy machine spoils are in
    `figure`, and make no trial fail unless it says so."""

    name: str
    n: int
    failures: int
    figure: Any  # in words, or numbers by name
    seed: int
    more: Mapping[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)  # what failed, each in a line

    def line(self) -> str:
        content = {"name": self.name, "n": self.n, "failures": self.failures, "figure": self.figure}
        return json.dumps({**content, "seed": self.seed, **self.more}, ensure_ascii=False)


def above(**figures: tuple[float, float]) -> dict[str, float]:
    """The figures that are above their limit, as (figure, limit)."""
    return {name: round(value, 3) for name, (value, limit) in figures.items() if value > limit}
