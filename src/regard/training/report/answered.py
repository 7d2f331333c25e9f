"""Sections on answers: questions with and without one, and the worst with the place in their context."""

from __future__ import annotations

from regard.training.progress import Record
from regard.training.report.blocks import Block, Case, Paragraph, Table
from regard.training.report.facts import Facts
from regard.training.report.words import NOT_RECORDED, some_of

SHOWN = 12  # errors
AROUND = 140  # characters of the context on either side


def answers(facts: Facts) -> list[Block]:
    """Whether questions were answered, by whether they have an answer."""
    name, rows = facts.chosen()
    if not rows:
        return [Paragraph(NOT_RECORDED)]
    groups = {
        "with an answer": [row for row in rows if row["reference"]],
        "without an answer": [row for row in rows if not row["reference"]],
    }
    table = [
        [
            group,
            f"{len(own):,}",
            f"{sum(bool(row['output']) for row in own):,}",
            f"{sum(not row['output'] for row in own):,}",
            *(f"{100 * sum(row[key] for row in own) / len(own):.2f} %" for key in ("exact", "f1")),
        ]
        for group, own in groups.items()
        if own
    ]
    head = [f"questions of the {name} data", "count", "answered", "left unanswered", "exact match", "F1"]
    return [Table(head, table)]


def errors(facts: Facts) -> list[Block]:
    name, rows = facts.chosen()
    if not rows:
        return [Paragraph(NOT_RECORDED)]
    wrong = sorted(
        (row for row in rows if not row["exact"]), key=lambda row: (row["f1"], -(row["score"] or 0))
    )
    if not wrong:
        return [Paragraph(f"None: all {len(rows):,} questions of the {name} data are answered exactly.")]
    told = some_of(SHOWN, len(wrong), len(rows), f"questions of the {name} data are not answered exactly")
    order = "those with the least F1 first, and of these the ones of the highest score"
    return [Paragraph(f"{told}, {order}."), *map(case, wrong[:SHOWN])]


def case(row: Record) -> Case:
    lines = [
        ("question", row["source"]),
        ("reference", " | ".join(dict.fromkeys(row["reference"])) or "no answer"),
        ("output", row["output"] or "no answer"),
        ("context", excerpt(row["context"], (row["output"], *row["reference"]))),
    ]
    score = "" if row["score"] is None else f", model's score {row['score']:.2f}"
    return Case(lines, f"F1 {100 * row['f1']:.1f} %{score}")


def excerpt(context: str, answers: tuple[str, ...]) -> str:
    """The context around the first reference, else around the output, else its beginning."""
    wanted = next((text for text in (*answers[1:], answers[0]) if text and text in context), "")
    place = context.find(wanted)
    start, end = max(0, place - AROUND), min(len(context), place + len(wanted) + AROUND)
    if start and " " in context[start:place]:  # no half words at the ends
        start = context.index(" ", start, place) + 1
    if end < len(context) and " " in context[place + len(wanted) : end]:
        end = context.rindex(" ", place + len(wanted), end)
    return ("… " if start else "") + context[start:end] + (" …" if end < len(context) else "")
