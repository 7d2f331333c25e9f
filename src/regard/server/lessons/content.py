"""Texts and figures of a lesson as plain values, which the page draws."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

Figure = dict[str, Any]
TOKEN = re.compile("\x02([^\x03]*)\x03")


def token(text: str) -> str:
    """A word of the user's text within a sentence of the lesson; the page highlights it."""
    return "\x02" + text.replace("\x02", "").replace("\x03", "") + "\x03"


def text_json(text: str) -> str | list[str | dict[str, str]]:
    """A sentence as JSON: in parts if there are tokens in it, {"token": text}."""
    parts = TOKEN.split(text)  # every second one is a token
    if len(parts) == 1:
        return text
    both = [{"token": part} if place % 2 else part for place, part in enumerate(parts)]
    return [part for part in both if part]


def distinct(words: Sequence[str]) -> list[str]:
    """Options to choose from; repeated words are numbered."""
    twice = {word for word in words if list(words).count(word) > 1}
    return [f"{word} (word {place + 1})" if word in twice else word for place, word in enumerate(words)]


def fmt(value: float, digits: int = 2) -> str:
    """A number for a sentence: with a minus sign, and in scientific notation if it is too small."""
    if value == 0:
        return "0"
    small = abs(value) < 0.5 * 10.0**-digits
    return (f"{value:.0e}" if small else f"{value:.{digits}f}").replace("-", "−")


# Figures


def figure(kind: str, **content: Any) -> Figure:
    return {"kind": kind, **{name: plain(each) for name, each in content.items()}}


def plain(value: Any) -> Any:
    """Tensors and sequences as lists."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value


def matrix(
    caption: str,
    values: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    signed: bool = False,
    mask: Any = None,
) -> Figure:
    """A heat map of values in [0, 1], or signed; `mask` is false where a cell is hidden."""
    texts = {"caption": caption, "rows": rows, "columns": columns}
    return figure("matrix", **texts, values=values, signed=signed, mask=mask)


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], digits: int = 3) -> Figure:
    return figure("table", caption=caption, columns=columns, rows=rows, digits=digits)


def bars(
    caption: str, names: Sequence[str], values: Sequence[float], digits: int = 2, unit: str = ""
) -> Figure:
    return figure("bars", caption=caption, names=names, values=values, digits=digits, unit=unit)


def lines(
    caption: str,
    across: str,
    places: Sequence[float | str],
    series: Mapping[str, Sequence[float | None]],
    even: bool = False,
    log: bool = False,
    digits: int = 3,
) -> Figure:
    """Curves over `places`; `even`: equal distances on the x axis, `log`: logarithmic y axis."""
    curves = [{"name": name, "values": list(values)} for name, values in series.items()]
    axes = {"across": across, "places": places, "even": even, "log": log}
    return figure("lines", caption=caption, series=curves, **axes, digits=digits)


def formula(text: str) -> Figure:
    return figure("formula", text=text)
