"""Blocks of a report and their rendering: text, tables, examples, line charts.

A page is a title and a list of (heading, blocks); a block is a paragraph, or a dictionary with a `kind`.
Blocks hold plain text, much of it from corpora or models: the templates in `builtin/report/` escape every
value (`finalize` and autoescape). Charts are drawn by matplotlib, which takes a second to import, when the
first one is needed; equal charts give equal bytes.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
import warnings
from collections.abc import Sequence
from html import escape as escape_html
from typing import Any

from markupsafe import Markup, escape

from regard.resources import BUILTIN, render

Chart = dict[str, Any]
Curve = dict[str, Any]

CSS = BUILTIN / "report" / "report.css"
WIDTH, HEIGHT, LINE = 440, 210, 16  # of a chart with a legend of one line; of a line more
MAX_CHARACTERS = 600  # of a text in a report
BIDI_CONTROLS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
CONTROLS = ("Cc", "Cs", "Zl", "Zp")  # controls, lone surrogates, line and paragraph separators
MAX_POINTS = 240  # of a curve; a chart of this size shows no more
# The colours of report.css in light mode. In an SVG they become var(--name), which follows the page.
COLOURS = {
    "ink": "#1c2126", "soft": "#5b6670", "line": "#d9dee3", "first": "#1f5fae", "second": "#b4530a",
    "third": "#1a7a50", "fourth": "#8538a8", "fifth": "#b3234a", "sixth": "#5f6570",
}  # fmt: skip
STYLES = [*zip(list(COLOURS.values())[3:], ("-", "-", "--", ":", "-.", (0, (4, 4))), "os^Dv*")]
SETTINGS: Any = {
    "font.size": 10, "lines.linewidth": 1.6, "lines.markersize": 3.5, "svg.fonttype": "none",
    "text.parse_math": False, "text.color": COLOURS["soft"], "xtick.color": COLOURS["soft"],
    "ytick.color": COLOURS["soft"], "xtick.major.pad": 6, "axes.titlecolor": COLOURS["ink"],
    "axes.titlesize": 11,
}  # fmt: skip
MARKDOWN_SYNTAX = re.compile(r"([\\`*_{}\[\]#|~!])")

Block = dict[str, Any] | str
Section = tuple[str, Sequence[Block]]


def code(*lines: str) -> Block:
    """Lines to copy: a command, a signature."""
    return {"kind": "code", "lines": lines}


def table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> Block:
    """The first `text_columns` columns hold text, the others numbers."""
    return {"kind": "table", "head": head, "rows": rows, "text_columns": text_columns}


def case(texts: Sequence[tuple[str, str]], remark: str = "") -> Block:
    """One held-out example: (name, text) of its input, its reference and the model's output."""
    return {"kind": "case", "texts": texts, "remark": remark}


def charts(drawings: Sequence[dict[str, Any]], picture: str) -> Block:
    """Charts, and the name of an image file with the same curves, for Markdown."""
    return {"kind": "charts", "charts": drawings, "picture": picture}


def html_page(title: str, sections: Sequence[Section]) -> str:
    return render("report/report.html.j2", printable, FILTERS, title=title, sections=sections)


def markdown_page(title: str, sections: Sequence[Section]) -> str:
    return render("report/report.md.j2", markdown_text, FILTERS, title=title, sections=sections)


# --- Markdown ---------------------------------------------------------------------------------------------


def markdown_text(text: str) -> Markup:
    """Plain text that stays plain: no mark-up, no HTML, no link."""
    safe = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return Markup(MARKDOWN_SYNTAX.sub(r"\\\1", safe).replace("://", ":&#47;/"))


def fenced(lines: Sequence[str]) -> str:
    """Code with a fence longer than any run of backticks inside."""
    safe = [printable(line) for line in lines]
    longest = max((len(run) for line in safe for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *safe, fence])


def cells(row: Sequence[str | int]) -> Markup:
    """A row of a table."""
    texts = (f"{cell:,}" if isinstance(cell, int) else cell for cell in row)
    return Markup(f"| {' | '.join(map(markdown_text, texts))} |")


def text_lines(text: str) -> list[str]:
    return cut(text).removesuffix("\n").split("\n")


def case_lines(block: dict[str, Any]) -> list[str]:
    width = max(len(name) for name, _ in block["texts"]) + 2
    return [
        f"{'' if number else name:{width}}{line}"
        for name, text in block["texts"]
        for number, line in enumerate(text_lines(text))
    ]


def alignment_lines(alignment: dict[str, Any]) -> list[str]:
    source, output = alignment["source"], alignment["output"]
    sources = {target: source[word] for word, target in alignment["links"] if word < len(source)}
    return [f"{word}  <-  {sources[place]}" for place, word in enumerate(output) if place in sources]


def cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + " …"


def printable(text: str) -> str:
    """Text with its control characters as escapes, cut off after MAX_CHARACTERS."""
    return "".join(
        f"\\u{ord(character):04x}"
        if unicodedata.category(character) in CONTROLS or ord(character) in BIDI_CONTROLS
        else character
        for character in cut(text)
    )


# --- charts -----------------------------------------------------------------------------------------------


def curve(name: str, points: Sequence[tuple[float, float]], dots: bool = False) -> Curve:
    """The finite points of a curve; `dots` marks each of them."""
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    return {"name": printable(name), "points": finite, "dots": dots}


def chart(
    title: str,
    curves: Sequence[Curve],
    from_zero: bool = False,
    over: str = "update",
    names: Sequence[str] = (),
) -> Chart:
    """`over` is the x axis; `names` are the labels of x = 0, 1, 2 ... where x is no number."""
    axes = {"from_zero": from_zero, "over": over, "names": [*map(printable, names)]}
    return {"title": title, "curves": curves, **axes}


def chart_title(drawing: Chart) -> str:
    return f"{drawing['title']}, by {drawing['over']}"


def summary(drawings: Sequence[Chart]) -> list[str]:
    """The curves in sentences, as a text alternative; charts with `names` have a table beside them."""
    return [
        f"{each['name']}: from {first[1]:.4g} at {drawing['over']} {first[0]:,.0f} "
        f"to {last[1]:.4g} at {drawing['over']} {last[0]:,.0f}"
        for drawing in drawings
        if not drawing["names"]
        for each in drawing["curves"]
        if each["points"]
        for first, last in [(each["points"][0], each["points"][-1])]
    ]


def svg_element(drawing: Chart, title: bool = False) -> str:
    """An <svg> element in the colours of its page; empty if there is nothing to draw."""
    if not any(each["points"] for each in drawing["curves"]):
        return ""
    picture = save([drawing], "svg", title).decode("utf-8")
    _, attributes, content = re.split(r"<svg\b([^>]*)>", picture, maxsplit=1)
    content = re.sub(r"<(style|clipPath)\b.*?</\1>", "", content, flags=re.S)
    content = re.sub(r' clip-path="[^"]*"| font-family: [^;"]*;|(?<=<g) id="(?!curve)[^"]*"', "", content)
    content = content.replace('<g id="curve"', '<g class="curve"')
    for name, colour in COLOURS.items():
        content = content.replace(f": {colour}", f": var(--{name}, {colour})")
    (size,) = re.findall(r'viewBox="([^"]*)"', attributes)
    label = f'role="img" aria-label="{escape_html(chart_title(drawing))}"'
    return f'<svg viewBox="{size}" width="{size.split()[2]}" {label}>{content.strip()}'


def svg_file(drawing: Chart) -> str:
    """The element as a file, with its title; light or dark as the reader's system."""
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    opening, content = (svg_element(drawing, title=True) or "<svg></svg>").split(">", 1)
    style = CSS.read_text(encoding="utf-8")
    paper = '<rect class="paper" width="100%" height="100%"/>'
    return f"{opening.replace('<svg', f'<svg {names}', 1)}><style>{style}</style>{paper}{content}\n"


def save(drawings: Sequence[Chart], kind: str, titles: bool = True) -> bytes:
    """Charts side by side in one picture, as "svg" or "png"."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = [
        max(1, 62 // (6 + max(len(each["name"]) for each in drawing["curves"]))) for drawing in drawings
    ]
    legends = [-(-len(drawing["curves"]) // count) for drawing, count in zip(drawings, columns)]  # in lines
    height = HEIGHT + LINE * (max(legends) - 1 + titles)
    salt = " ".join(map(chart_title, drawings))  # of ids: the same in each call, others in another chart
    no_date = dict.fromkeys(("Date", "Creator", "Format", "Type") if kind == "svg" else ["Software"])
    content = io.BytesIO()
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of characters that matplotlib's font lacks; browsers have others
        figure = Figure(figsize=(WIDTH * len(drawings) / 72, height / 72), layout="constrained")
        for number, axes in enumerate(figure.subplots(1, len(drawings), squeeze=False)[0]):
            draw(axes, drawings[number], columns[number])
            if titles:
                axes.set_title(chart_title(drawings[number]), loc="left", pad=6 + LINE * max(legends))
        figure.savefig(content, format=kind, dpi=110, transparent=kind == "svg", metadata=no_date)
    return content.getvalue()


def draw(axes: Any, drawing: Chart, columns: int) -> None:
    """The curves of a chart, its axes with round numbers, and a legend above."""
    curves = [each for each in drawing["curves"] if each["points"]]
    for number, each in enumerate(curves):
        colour, line, marker = STYLES[number % len(STYLES)]
        points = thin(each["points"])
        marker = marker if each["dots"] or len(points) == 1 else ""
        style = {"color": colour, "ls": line, "marker": marker}
        axes.plot(*zip(*points), **style, label=each["name"], clip_on=False, gid="curve")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(axis="y", color=COLOURS["line"])
    axes.locator_params(axis="y", nbins=4, steps=[1, 2, 5, 10])
    axes.yaxis.set_major_formatter(lambda value, place: axis_label(value))
    if drawing["names"]:
        axes.set_xticks(range(len(drawing["names"])), drawing["names"])
    else:
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda value, place: axis_label(value))
        axes.set_xlim(left=0)
    if drawing["from_zero"]:
        axes.set_ylim(bottom=min(0.0, *(y for each in curves for _, y in each["points"]), 0.0))
    if len(curves) > 1:
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns, frameon=False, borderaxespad=0.2
        )


def thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most MAX_POINTS points, each the mean of its neighbours."""
    size = max(1, -(-len(points) // MAX_POINTS))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups
    ]


def axis_label(value: float) -> str:
    """A number at an axis: 0.002, 1.5, 20k."""
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{float(f'{value:.4g}'):g}"


FILTERS = {
    "alignment_lines": alignment_lines,
    "case_lines": case_lines,
    "cells": cells,
    "chart_title": chart_title,
    "fenced": lambda lines: Markup(fenced(lines)),
    "lines": lambda lines: Markup("\n".join(escape(printable(line)) for line in lines)),
    "summary": summary,
    "svg": lambda chart: Markup(svg_element(chart)),
    "text_lines": text_lines,
    "zip": zip,
}
