"""Sections on translations: by length, the worst and the best, and what looked at what."""

from __future__ import annotations

from regard.training.progress import Record
from regard.training.report.blocks import Alignment, Block, Case, Paragraph, Table
from regard.training.report.breakdown import by_length, measure, typical, worst_and_best
from regard.training.report.facts import Facts
from regard.training.report.words import NOT_RECORDED

SHOWN, DRAWN = 5, 3  # sentences at each end, alignments


def lengths(facts: Facts) -> list[Block]:
    name, rows = facts.chosen()
    if not rows:
        return [Paragraph(NOT_RECORDED)]
    unit, length = measure(facts.config.task.source)
    buckets = by_length(rows, length, facts.tokenization)
    table = Table(
        [f"{unit} of the source, {name} data", "sentences", "BLEU", "chrF"],
        [[b.name, f"{b.sentences:,}", f"{b.scores.bleu:.2f}", f"{b.scores.chrf:.2f}"] for b in buckets],
    )
    return [table]


def sentences(facts: Facts) -> list[Block]:
    name, rows = facts.chosen()
    if not rows:
        return [Paragraph(NOT_RECORDED)]
    worst, best = worst_and_best(rows, SHOWN)
    return [
        Paragraph(
            f"The worst of the {name} data by chrF; the model's score is its log-probability by length."
        ),
        *(sentence(row) for row in worst),
        Paragraph("The best, long ones first."),
        *(sentence(row) for row in best),
    ]


def sentence(row: Record) -> Case:
    remark = f"chrF {row['chrf']:.1f}, model's score {row['score']:.2f}"
    return Case([(name, row[name]) for name in ("source", "reference", "output")], remark)


def alignments(facts: Facts) -> list[Block]:
    _, rows = facts.chosen()
    chosen = typical(rows, DRAWN)
    if not chosen:
        return [Paragraph("No alignment was recorded.")]
    drawn = [
        Alignment(row["source"].split(), row["output"].split(), [(s, t) for s, t in row["alignment"]])
        for row in chosen
    ]
    text = (
        "Sentences of middling score: for each word written, the source word that cross-attention saw most."
    )
    return [Paragraph(text), *drawn]
