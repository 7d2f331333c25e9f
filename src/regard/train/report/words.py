"""Numbers as people read them."""

from __future__ import annotations

import json


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
