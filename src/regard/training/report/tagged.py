"""Sections on entities: by type, by the kind of error, and sentence by sentence in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regard.metrics.labels import Span, spans
from regard.training.progress import Record
from regard.training.report.blocks import Block, Case, Paragraph, Table
from regard.training.report.facts import Facts
from regard.training.report.words import NOT_RECORDED, by_type_rows, some_of

SHOWN = 12  # sentences with errors


@dataclass(frozen=True)
class Mistakes:
    """Of one sentence. `wrong` are entities that were met, but with another type or other words."""

    right: Sequence[Span]
    wrong: Sequence[tuple[Span, Span]]  # (reference, output)
    missed: Sequence[Span]
    spurious: Sequence[Span]

    @property
    def count(self) -> int:
        return len(self.wrong) + len(self.missed) + len(self.spurious)


def mistakes(reference: Sequence[str], output: Sequence[str]) -> Mistakes:
    """Each wrong entity of the output stands for the first reference that it shares a word with."""
    true, said = spans(reference), spans(output)
    right = [span for span in true if span in said]
    missed, spurious = ([span for span in own if span not in right] for own in (true, said))
    wrong = []
    for span in list(missed):
        met = next((each for each in spurious if each[1] <= span[2] and span[1] <= each[2]), None)
        if met is not None:
            wrong.append((span, met))
            missed.remove(span)
            spurious.remove(met)
    return Mistakes(right, wrong, missed, spurious)


def types(facts: Facts) -> list[Block]:
    record, (_, rows) = facts.final(), facts.chosen()
    if "by_type" not in record:
        return [Paragraph("Not scored yet.")]
    blocks: list[Block] = [
        Table(["type", "entities", "precision", "recall", "F1"], by_type_rows(record["by_type"]))
    ]
    if not rows:
        return blocks
    counts = Counter(name for row in rows for name in kinds(mistakes(row["reference"], row["output"])))
    table = [[name, f"{counts[name]:,}"] for name in KINDS]
    return [*blocks, Table(["what became of entities", "count"], table)]


KINDS = ("right", "wrong type", "wrong words", "wrong type and words", "missed", "spurious")


def kinds(found: Mistakes) -> list[str]:
    wrong = {(True, False): KINDS[1], (False, True): KINDS[2], (True, True): KINDS[3]}
    return [
        *["right"] * len(found.right),
        *(wrong[true[0] != said[0], true[1:] != said[1:]] for true, said in found.wrong),
        *["missed"] * len(found.missed),
        *["spurious"] * len(found.spurious),
    ]


def errors(facts: Facts) -> list[Block]:
    name, rows = facts.chosen()
    if not rows:
        return [Paragraph(NOT_RECORDED)]
    found = [(row, mistakes(row["reference"], row["output"])) for row in rows]
    wrong = sorted((each for each in found if each[1].count), key=lambda each: -each[1].count)
    if not wrong:
        return [Paragraph(f"None: the entities of all {len(rows):,} sentences of the {name} data are right.")]
    told = some_of(SHOWN, len(wrong), len(rows), f"sentences of the {name} data have errors")
    return [Paragraph(f"{told}, those with most errors first."), *(case(*each) for each in wrong[:SHOWN])]


def case(row: Record, found: Mistakes) -> Case:
    def entity(span: Span) -> str:
        return f"{' '.join(row['source'][span[1] : span[2] + 1])} ({span[0]})"

    parts = [
        ("wrong", [f"{entity(true)} was called {entity(said)}" for true, said in found.wrong]),
        ("missed", [entity(span) for span in found.missed]),
        ("spurious", [entity(span) for span in found.spurious]),
        ("right", [entity(span) for span in found.right]),
    ]
    lines = [("sentence", " ".join(row["source"])), *((name, "; ".join(own)) for name, own in parts if own)]
    return Case(lines, "")
