"""Sections on labels: which was taken for which, how good each is, and the surest errors."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from regard.training.progress import Record
from regard.training.report.blocks import Block, Case, Matrix, Paragraph, Table
from regard.training.report.facts import Facts
from regard.training.report.words import NOT_RECORDED, by_type_rows, some_of

MOST_LABELS = 24  # a larger matrix is not looked at; its largest wrong cells are
SHOWN, PAIRS = 12, 20  # errors, pairs of labels


def confusion(facts: Facts) -> list[Block]:
    """The matrix of the final record where there is one label for a text, and each label's own scores."""
    record = facts.final()
    if "by_type" not in record:
        return [Paragraph("Not scored yet.")]
    blocks: list[Block] = []
    found = record.get("confusion")
    if found and len(found["labels"]) <= MOST_LABELS:
        blocks += [
            Paragraph("Rows are the references, columns what the model said; the diagonal is right."),
            Matrix(found["labels"], found["counts"]),
        ]
    elif pairs := taken_for(facts.chosen()[1]):
        blocks += [
            Paragraph("The labels most often taken for others."),
            Table(["missed", "wrongly said", "texts"], pairs, text_columns=2),
        ]
    head = ["label", "texts", "precision", "recall", "F1"]
    return [*blocks, Table(head, by_type_rows(record["by_type"]))]


def taken_for(rows: list[Record]) -> list[list[str]]:
    """Of wrong texts, what was missed and what was said instead; nothing is a dash."""
    pairs = Counter(
        (", ".join(missed(row)) or "–", ", ".join(added(row)) or "–") for row in rows if is_wrong(row)
    )
    return [[*names, f"{count:,}"] for names, count in pairs.most_common(PAIRS)]


def errors(facts: Facts) -> list[Block]:
    name, rows = facts.chosen()
    if not rows:
        return [Paragraph(NOT_RECORDED)]
    wrong = sorted((row for row in rows if is_wrong(row)), key=lambda row: -sureness(row))
    if not wrong:
        return [Paragraph(f"None: all {len(rows):,} texts of the {name} data are right.")]
    told = some_of(SHOWN, len(wrong), len(rows), f"texts of the {name} data are wrong")
    return [Paragraph(f"{told}, those first of which the model was surest."), *map(case, wrong[:SHOWN])]


def missed(row: Record) -> list[str]:
    return [label for label in row["reference"] if label not in row["output"]]


def added(row: Record) -> list[str]:
    return [label for label in row["output"] if label not in row["reference"]]


def is_wrong(row: Record) -> bool:
    return bool(missed(row) or added(row))


def sureness(row: Record) -> float:
    """The probability of a label that was wrongly given, else of the absence of one that was missed."""
    p = row["probabilities"]
    given = [p.get(label, 0.0) for label in added(row)]
    return float(max(given or [1.0 - p.get(label, 0.0) for label in missed(row)]))


def case(row: Record) -> Case:
    labels = [", ".join(row[side]) or "no label" for side in ("reference", "output")]
    shown = dict.fromkeys(chain(row["output"], row["reference"]))
    p = ", ".join(f"{100 * row['probabilities'].get(label, 0.0):.1f} % {label}" for label in shown)
    lines = [("text", row["source"]), ("reference", labels[0]), ("output", labels[1])]
    return Case(lines, f"probability: {p}")
