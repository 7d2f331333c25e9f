"""The section about the data: what was read, and what the check of every line found in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.training.report.blocks import Block, Paragraph, Table
from regard.training.report.facts import Facts
from regard.training.report.words import number


def data(facts: Facts) -> list[Block]:
    if facts.data is None:
        return [Paragraph("What was read and found in the corpora was not recorded in this run.")]
    corpora, findings = facts.data.get("corpora") or [], facts.data.get("findings") or []
    blocks: list[Block] = []
    if corpora:
        head = ["corpus", "split", facts.wording.read, "used", "left out", "weight"]
        blocks.append(Table(head, [corpus_row(corpus) for corpus in corpora], text_columns=2))
    if not findings:
        return [*blocks, Paragraph("The check of every line found nothing wrong.")]
    rows = [
        [
            str(finding.get("meaning") or finding.get("kind", "")),
            "left out" if finding.get("left_out") else "used",
            "; ".join(place(each) for each in (finding.get("places") or [])[:2]),
            number(finding.get("count")),
        ]
        for finding in findings
    ]
    head = ["found", f"{facts.wording.read} are", "for example", "count"]
    return [*blocks, Table(head, rows, text_columns=3)]


def corpus_row(corpus: dict[str, Any]) -> list[str]:
    pairs, used = corpus.get("pairs"), corpus.get("used")
    both = isinstance(pairs, int) and isinstance(used, int)
    left = f"{pairs - used:,}" if both and pairs is not None and used is not None else "–"
    weight = corpus.get("weight", 1.0)
    split = str(corpus.get("split", ""))
    return [str(corpus.get("name", "")), split, number(pairs), number(used), left, f"{weight:g}"]


def place(found: dict[str, Any]) -> str:
    """`train.en, line 17: note`; the folders of this machine are nobody's business."""
    at = f"{Path(str(found.get('file', ''))).name}, line {found.get('line', '?')}"
    note = found.get("note") or found.get("excerpt")
    return f"{at}: {note}" if note else at
