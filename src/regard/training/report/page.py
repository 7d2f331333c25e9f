"""Blocks of a report, and their rendering by the templates in `builtin/report/`.

A page is a title and a list of (heading, blocks); a block is a dictionary with a `kind`. Blocks hold plain
text, much of it from corpora or models: the templates escape every value (`finalize` and autoescape).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from regard.training.report.charts import MAX_CHARACTERS, chart_title, printable, summary, svg_element

TEMPLATES = Path(__file__).parents[2] / "builtin" / "report"
MARKDOWN_SYNTAX = re.compile(r"([\\`*_{}\[\]#|~!])")

Block = dict[str, Any]
Section = tuple[str, Sequence[Block]]


def paragraph(text: str) -> Block:
    return {"kind": "paragraph", "text": text}


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
    """Charts (see charts.py), and the name of an image file with the same curves, for Markdown."""
    return {"kind": "charts", "charts": drawings, "picture": picture}


def html_page(title: str, sections: Sequence[Section]) -> str:
    return render("report.html.j2", title, sections, printable)


def markdown_page(title: str, sections: Sequence[Section]) -> str:
    return render("report.md.j2", title, sections, markdown_text)


def render(  # every value that a template prints goes through `make_safe`, then through autoescape
    template: str, title: str, sections: Sequence[Section], make_safe: Callable[[str], str | Markup]
) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # here: a run imports this module

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else make_safe(str(value)),
    )
    environment.filters |= {
        "alignment_lines": alignment_lines,
        "case_lines": case_lines,
        "cells": lambda row: Markup(f"| {' | '.join(map(markdown_text, row))} |"),
        "chart_title": chart_title,
        "fenced": lambda lines: Markup(fenced(lines)),
        "lines": lambda lines: Markup("\n".join(escape(printable(line)) for line in lines)),
        "summary": summary,
        "svg": lambda chart: Markup(svg_element(chart)),
        "table_rows": table_rows,
        "text_lines": text_lines,
        "zip": zip,
    }
    return environment.get_template(template).render(title=title, sections=sections)


def text_lines(text: str) -> list[str]:
    short = text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + " …"
    return short.removesuffix("\n").split("\n")


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


def table_rows(block: Block) -> list[Sequence[str]]:
    """The rows of a table, of tiles or of a confusion matrix, with the line of dashes below the head."""
    if block["kind"] == "tiles":
        head, rows, text_columns = ["", "", ""], block["tiles"], 3
    elif block["kind"] == "matrix":
        counts = zip(block["labels"], block["counts"])
        head, text_columns = [block["corner"], *block["labels"]], 1
        rows = [[label, *(f"{count:,}" for count in row)] for label, row in counts]
    else:
        head, rows, text_columns = block["head"], block["rows"], block["text_columns"]
    dashes = ["---" if column < text_columns else "---:" for column in range(len(head))]
    return [head, dashes, *rows]


def case_lines(block: Block) -> list[str]:
    width = max(len(name) for name, _ in block["texts"]) + 2
    return [
        f"{'' if number else name:{width}}{line}"
        for name, text in block["texts"]
        for number, line in enumerate(text_lines(text))
    ]


def alignment_lines(alignment: Block) -> list[str]:
    source, output = alignment["source"], alignment["output"]
    sources = {target: source[word] for word, target in alignment["links"] if word < len(source)}
    return [f"{word}  <-  {sources[place]}" for place, word in enumerate(output) if place in sources]
