"""A report as Markdown. Sentences stand in fenced code, everything else is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from regard.training.report.blocks import (
    Alignment,
    Block,
    Case,
    Chart,
    Charts,
    Code,
    Matrix,
    Paragraph,
    Section,
    Series,
    Table,
    Tiles,
    printable,
    shown_lines,
)

SPECIAL = re.compile(r"([\\`*_{}\[\]#|~!])")


def markdown_page(title: str, sections: Sequence[Section]) -> str:
    parts = [f"# {escaped(title)}"]
    for section in sections:
        parts += [f"## {escaped(section.title)}"] if section.title else []
        parts += [block for each in section.blocks if (block := markdown(each).rstrip("\n"))]
    return "\n\n".join(parts) + "\n"


def markdown(block: Block) -> str:
    match block:
        case Paragraph(text):
            return escaped(text)
        case Code(lines):
            return fenced(lines)
        case Tiles(tiles):
            return table(["", "", ""], tiles, text_columns=3)
        case Table(head, rows, text_columns):
            return table(head, rows, text_columns)
        case Charts(charts, picture):
            curves = [each for chart in charts if not chart.names for each in chart.series]
            told = [f"- {escaped(line)}" for each in curves if (line := course(each))]
            return f"![{escaped(alternative(charts))}]({picture})\n\n" + "\n".join(told)
        case Matrix(labels, counts, corner):
            cells = [[f"{count:,}" for count in row] for row in counts]
            return table([corner, *labels], [[label, *row] for label, row in zip(labels, cells)], 1)
        case Case(lines, remark):
            width = max(len(name) for name, _ in lines) + 2
            shown = fenced(
                [
                    f"{name if not number else '':{width}}{line}"
                    for name, words in lines
                    for number, line in enumerate(shown_lines(words))
                ]
            )
            return f"{escaped(remark)}\n\n{shown}" if remark else shown
        case Alignment(source, output, links):
            seen = {target: source[word] for word, target in links if word < len(source)}
            return fenced([f"{word}  <-  {seen[n]}" for n, word in enumerate(output) if n in seen])


def table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> str:
    marks = ["---" if number < text_columns else "---:" for number in range(len(head))]
    cells = [[escaped(cell) for cell in row] for row in (head, *rows)]
    lines = [cells[0], marks, *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def alternative(charts: Sequence[Chart]) -> str:
    """What stands for a picture that is not shown."""
    return "The curves of the run" if len(charts) > 1 else f"{charts[0].title}, by {charts[0].over}"


def course(series: Series) -> str:
    """A curve in a sentence."""
    points = series.finite()
    if not points:
        return ""
    (first, before), (last, after) = points[0], points[-1]
    return f"{series.name}: from {before:.4g} at update {first:,.0f} to {after:.4g} at update {last:,.0f}"


def fenced(lines: Sequence[str]) -> str:
    """Code whose fence is longer than any row of backticks in it."""
    shown = [printable(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *shown, fence])


def escaped(text: str) -> str:
    """Plain text that stays plain: no mark-up, no HTML, no link made of it."""
    safe = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL.sub(r"\\\1", safe).replace("://", ":&#47;/")
