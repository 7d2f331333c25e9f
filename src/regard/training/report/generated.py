"""The section on a language model's own words."""

from __future__ import annotations

from regard.training.report.blocks import Block, Case, Paragraph
from regard.training.report.facts import Facts
from regard.training.report.words import NOT_RECORDED

SHOWN = 8


def continuations(facts: Facts) -> list[Block]:
    name, rows = facts.chosen()
    if not rows:
        return [Paragraph(NOT_RECORDED)]
    return [
        Paragraph(f"How the model goes on from the beginnings of texts of the {name} data."),
        *(Case([("beginning", row["source"]), ("goes on", row["output"])], "") for row in rows[:SHOWN]),
    ]
