"""Numbers as people read them."""

from __future__ import annotations

import json
from collections.abc import Mapping

MOST_TYPES = 60  # rows of a table that anybody reads
NOT_RECORDED = "The held-out texts were not recorded."


def number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"


def compact(value: float) -> str:
    """1,842,176 as "1.84 M": for small places, and before units."""
    for power, sign in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {sign}"
    return f"{value:g} "


def clock(seconds: float) -> str:
    """Hours, minutes and seconds; below a minute with one decimal."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def plain(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)


def some_of(shown: int, found: int, of: int, words: str) -> str:
    """`31 of 872 texts are wrong; 12 are shown`, and no more of them than there are."""
    told = f"{found:,} of {of:,} {words}"
    return told if found <= shown else f"{told}; {shown} are shown"


def by_type_rows(types: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """Labels or types of entities with their count and scores, the most frequent first."""
    ranked = sorted(types.items(), key=lambda each: -each[1]["count"])
    rows = [
        [name, f"{own['count']:,}", *(f"{100 * own[key]:.2f} %" for key in ("precision", "recall", "f1"))]
        for name, own in ranked[:MOST_TYPES]
    ]
    left = len(ranked) - len(rows)
    return [*rows, [f"and {left:,} more", "", "", "", ""]] if left else rows
