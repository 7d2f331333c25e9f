"""Small pictures as SVG: curves, and the matrix of an alignment. Colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from regard.train.report.blocks import Alignment, Chart, Point, Series, printable

WIDTH, HEIGHT = 440, 210  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 26, 24  # its margins
MOST_POINTS = 240  # of a curve; more cannot be told apart
CELL, LETTER = 18, 7  # of a matrix; LETTER is about the width of a sign

Place = Callable[[float, float], Point]  # numbers to a point of the picture


def chart_svg(chart: Chart) -> str:
    """Lines over the updates, with round numbers at the axes."""
    series = [Series(each.name, thinned(each.finite()), each.dots) for each in chart.series]
    series = [each for each in series if each.points]
    title = escape(f"{chart.title}, by update")
    if not series:
        return f"<figure><figcaption>{title}</figcaption><p>not recorded</p></figure>"
    xs = ticks(0.0, max(x for each in series for x, _ in each.points), 5)
    values = [y for each in series for _, y in each.points]
    ys = ticks(min(*values, 0.0) if chart.from_zero else min(values), max(values), 4)
    place = scale(xs, ys)
    names = series if len(series) > 1 else []
    parts = [*axes(xs, ys, place), *legend(names)]
    for number, each in enumerate(series):
        parts += line(each, number, [place(*point) for point in each.points])
    label = f'role="img" aria-label="{title}"'
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" {label}>{"".join(parts)}</svg>'
    return f"<figure><figcaption>{title}</figcaption>{picture}</figure>"


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most MOST_POINTS, each the mean of its neighbours."""
    size = -(-len(points) // MOST_POINTS)
    portions = [points[start : start + size] for start in range(0, len(points), max(1, size))]
    return [(sum(x for x, _ in own) / len(own), sum(y for _, y in own) / len(own)) for own in portions]


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers, 1, 2 or 5 times a power of ten apart, from below `low` to above `high`."""
    span = max(high - low, 1e-6 * max(abs(low), abs(high))) or 1.0  # numbers nearer than that are one
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * count >= span * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def scale(xs: Sequence[float], ys: Sequence[float]) -> Place:
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> Point:
        return (
            round(LEFT + wide * (x - xs[0]) / (xs[-1] - xs[0]), 1),
            round(TOP + high * (ys[-1] - y) / (ys[-1] - ys[0]), 1),
        )

    return place


def axes(xs: Sequence[float], ys: Sequence[float], place: Place) -> list[str]:
    parts = []
    for value in ys:
        x, y = place(xs[0], value)
        parts.append(f'<line class="grid" x1="{x}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{short(value)}</text>')
    for value in xs:
        x, y = place(value, ys[0])
        anchor = "end" if value == xs[-1] else "middle"
        parts.append(f'<text x="{x}" y="{y + 16}" text-anchor="{anchor}">{short(value)}</text>')
    return parts


def legend(series: Sequence[Series]) -> list[str]:
    parts, x = [], LEFT
    for number, each in enumerate(series):
        parts.append(f'<line class="s{number % 2}" x1="{x}" x2="{x + 16}" y1="11" y2="11"/>')
        parts.append(f'<text x="{x + 21}" y="15">{escape(each.name)}</text>')
        x += 40 + LETTER * len(each.name)
    return parts


def line(series: Series, number: int, places: Sequence[Point]) -> list[str]:
    parts = [f'<polyline class="s{number % 2}" points="{" ".join(f"{x},{y}" for x, y in places)}"/>']
    if series.dots or len(places) == 1:
        parts += [f'<circle class="d{number % 2}" cx="{x}" cy="{y}" r="2.2"/>' for x, y in places]
    return parts


def short(value: float) -> str:
    """A number at an axis: 0.002, 1.5, 20k."""
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{float(f'{value:.4g}'):g}"


def alignment_svg(block: Alignment) -> str:
    """A matrix: source words above, output words at the left, a square where a word looked at most."""
    columns, rows = [shown(word) for word in block.source], [shown(word) for word in block.output]
    left = 14 + LETTER * max((wide(word) for word in rows), default=0)
    top = 14 + round(LETTER * 0.8 * max((wide(word) for word in columns), default=0))
    end = left + CELL * len(columns)
    parts = []
    for number, word in enumerate(columns):
        x = left + CELL * number + CELL // 2 + 4
        turn = f'transform="rotate(-55 {x} {top - 6})"'
        parts.append(f'<text class="word" x="{x}" y="{top - 6}" {turn}>{escape(word)}</text>')
    seen = set(block.links)
    for down, word in enumerate(rows):
        y = top + CELL * down
        parts.append(
            f'<text class="word" x="{left - 7}" y="{y + 13}" text-anchor="end">{escape(word)}</text>'
        )
        for across in range(len(columns)):
            x = left + CELL * across
            mark = f"{x + 3}" if (across, down) in seen else ""
            parts.append(f'<rect class="cell" x="{x}" y="{y}" width="{CELL}" height="{CELL}"/>')
            parts.append(
                f'<rect class="link" x="{mark}" y="{y + 3}" width="12" height="12" rx="2"/>' if mark else ""
            )
    across = end + round(LETTER * 0.6 * max((wide(word) for word in columns[-3:]), default=0)) + 8
    size = f'viewBox="0 0 {across} {top + CELL * len(rows) + 2}" width="{across}"'
    told = escape(" ".join(rows))
    return f'<figure><svg {size} role="img" aria-label="alignment: {told}">{"".join(parts)}</svg></figure>'


def shown(word: str) -> str:
    word = printable(word)
    return word if len(word) <= 22 else word[:21] + "…"


def wide(word: str) -> int:
    """About how many letters wide a word is; the signs of Chinese and their like count twice."""
    return sum(2 if ord(sign) >= 0x1100 else 1 for sign in word)
