"""A report as one HTML page that holds all it needs: no script, no request, every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from regard.training.report.blocks import (
    Alignment,
    Block,
    Case,
    Charts,
    Code,
    Matrix,
    Paragraph,
    Section,
    Table,
    Tiles,
    printable,
    shown_lines,
)
from regard.training.report.drawing import alignment_svg, chart_svg
from regard.training.report.style import STYLE

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{content}
</main>
</body>
</html>
"""


def html_page(title: str, sections: Sequence[Section]) -> str:
    parts = []
    for section in sections:
        heading = f"<h2>{text(section.title)}</h2>\n" if section.title else ""
        parts.append(f"<section>\n{heading}{blocks(section.blocks)}\n</section>")
    return PAGE.format(title=text(title), style=STYLE, content="\n".join(parts))


def blocks(content: Sequence[Block]) -> str:
    """Block after block; alignments stand side by side."""
    pictures = "".join(alignment_svg(block) for block in content if isinstance(block, Alignment))
    rest = "\n".join(html(block) for block in content if not isinstance(block, Alignment))
    return rest + (f'\n<div class="alignments">{pictures}</div>' if pictures else "")


def html(block: Block) -> str:
    match block:
        case Paragraph(words):
            return f"<p>{text(words)}</p>"
        case Code(lines):
            return "<pre>" + "\n".join(text(line) for line in lines) + "</pre>"
        case Tiles(tiles):
            return '<dl class="tiles">' + "".join(tile(*each) for each in tiles) + "</dl>"
        case Table(head, rows, text_columns):
            return table(head, rows, text_columns)
        case Charts(charts, _):
            return '<div class="charts">' + "".join(chart_svg(chart) for chart in charts) + "</div>"
        case Matrix(labels, counts, corner):
            return matrix(labels, counts, corner)
        case Case(lines, remark):
            shown = "".join(
                f'<dt>{text(name)}</dt><dd dir="auto">{many_lines(own)}</dd>' for name, own in lines
            )
            last = f'<dd class="remark">{text(remark)}</dd>' if remark else ""
            return f'<dl class="sentence">{shown}{last}</dl>'
        case Alignment():
            return alignment_svg(block)


def tile(name: str, value: str, remark: str) -> str:
    shown = f'<dd class="value">{text(value)}</dd><dd class="remark">{text(remark)}</dd>'
    return f"<div><dt>{text(name)}</dt>{shown}</div>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        marks = [' class="number"' if number >= text_columns else "" for number in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{m}>{text(c)}</{tag}>" for m, c in zip(marks, cells)) + "</tr>"

    top = f"<thead>{line(head, 'th')}</thead>" if any(head) else ""
    body = "".join(line(row, "td") for row in rows)
    return f'<div class="wide"><table>{top}<tbody>{body}</tbody></table></div>'


def matrix(labels: Sequence[str], counts: Sequence[Sequence[int]], corner: str) -> str:
    """The darker a cell, the larger its share of the row; right ones in another colour than wrong ones."""
    names = "".join(f'<th class="number" scope="col">{text(label)}</th>' for label in labels)
    rows = []
    for number, (label, row) in enumerate(zip(labels, counts)):
        total = max(1, sum(row))
        cells = "".join(
            f'<td class="number {"right" if number == column else "wrong"}" '
            f'style="--share:{(count / total) ** 0.5:.2f}">{count:,}</td>'
            for column, count in enumerate(row)
        )
        rows.append(f'<tr><th scope="row">{text(label)}</th>{cells}</tr>')
    top = f"<thead><tr><th>{text(corner)}</th>{names}</tr></thead>"
    return f'<div class="wide"><table class="matrix">{top}<tbody>{"".join(rows)}</tbody></table></div>'


def many_lines(plain: str) -> str:
    return "\n".join(escape(line) for line in shown_lines(plain))


def text(plain: str) -> str:
    return escape(printable(plain))
