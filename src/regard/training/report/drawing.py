"""Small pictures as SVG: curves, and the matrix of an alignment. Colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from regard.training.report.blocks import Alignment, Chart, Point, Series, printable
from regard.training.report.style import STYLE

WIDTH, HEIGHT = 440, 210  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 26, 24  # its margins
KEY_LINE = 16  # height of a line of the legend
COLOURS = 6  # of the page's style; a seventh curve has the first one's again
MOST_POINTS = 240  # of a curve; more cannot be told apart
CELL, LETTER = 18, 7  # of a matrix; LETTER is about the width of a sign

Place = Callable[[float, float], Point]  # numbers to a point of the picture


def chart_svg(chart: Chart) -> str:
    """Lines over the updates, with round numbers at the axes, or over places that have names."""
    title = escape(chart_title(chart))
    picture = curves(chart) or "<p>not recorded</p>"
    return f"<figure><figcaption>{title}</figcaption>{picture}</figure>"


def chart_title(chart: Chart) -> str:
    return f"{chart.title}, by {chart.over}"


def chart_file(chart: Chart) -> str:
    """The same picture as a file of its own, its title in it; light or dark as the reader's page is."""
    top = 22
    title = f'<text class="word" x="{LEFT}" y="{6 - top // 2}">{escape(chart_title(chart))}</text>'
    paper = f'<rect class="paper" y="{-top}" width="100%" height="100%"/>'
    picture = curves(chart, f"<style>{STYLE}</style>{paper}{title}", top)
    return picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def curves(chart: Chart, before: str = "", room: int = 0) -> str:
    """An SVG element, empty if there is nothing to draw; `before` stands first, `room` high above."""
    series = [Series(each.name, thinned(each.finite()), each.dots) for each in chart.series]
    series = [each for each in series if each.points]
    if not series:
        return ""
    last = max(x for each in series for x, _ in each.points)
    xs = [float(place) for place in range(max(2, len(chart.names)))] if chart.names else ticks(0.0, last, 5)
    values = [y for each in series for _, y in each.points]
    ys = ticks(min(*values, 0.0) if chart.from_zero else min(values), max(values), 4)
    place = scale(xs, ys)
    key, lower = legend(series if len(series) > 1 else [])
    parts = axes(xs, ys, place, [printable(name) for name in chart.names])
    for number, each in enumerate(series):
        parts += line(each, number, [place(*point) for point in each.points])
    size = f'viewBox="0 {-room} {WIDTH} {HEIGHT + lower + room}" width="{WIDTH}"'
    drawn = f'{before}{"".join(key)}<g transform="translate(0 {lower})">{"".join(parts)}</g>'
    label = f'role="img" aria-label="{escape(chart_title(chart))}"'
    return f"<svg {size} {label}>{drawn}</svg>"


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


def axes(xs: Sequence[float], ys: Sequence[float], place: Place, names: Sequence[str] = ()) -> list[str]:
    parts = []
    for value in ys:
        x, y = place(xs[0], value)
        parts.append(f'<line class="grid" x1="{x}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{short(value)}</text>')
    for value, name in zip(xs, names or map(short, xs)):
        x, y = place(value, ys[0])
        anchor = "end" if value == xs[-1] else "middle"
        parts.append(f'<text x="{x}" y="{y + 16}" text-anchor="{anchor}">{escape(name)}</text>')
    return parts


def legend(series: Sequence[Series]) -> tuple[list[str], int]:
    """What each line is, and by how much the curves stand lower for more than one row of names."""
    parts, x, y = [], LEFT, 11
    for number, each in enumerate(series):
        name = printable(each.name)
        if x > LEFT and x + 21 + LETTER * wide(name) > WIDTH:
            x, y = LEFT, y + KEY_LINE
        parts.append(f'<line class="s{number % COLOURS}" x1="{x}" x2="{x + 16}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{x + 21}" y="{y + 4}">{escape(name)}</text>')
        x += 40 + LETTER * wide(name)
    return parts, y - 11


def line(series: Series, number: int, places: Sequence[Point]) -> list[str]:
    parts = [f'<polyline class="s{number % COLOURS}" points="{" ".join(f"{x},{y}" for x, y in places)}"/>']
    if series.dots or len(places) == 1:
        parts += [f'<circle class="d{number % COLOURS}" cx="{x}" cy="{y}" r="2.2"/>' for x, y in places]
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
