"""Sections on gaps: what is taken for what, and texts with what was hidden and guessed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from regard.training.progress import Record
from regard.training.report.blocks import Block, Case, Paragraph, Table
from regard.training.report.facts import Facts
from regard.training.report.words import NOT_RECORDED

SHOWN, PAIRS = 5, 15  # texts at each end, pairs of pieces
SENTINEL = re.compile(r"<extra_id_\d+>")  # T5's name of a gap; what follows it fills the gap


def gaps(row: Record) -> list[tuple[str, str]]:
    """(hidden, guessed) of each gap. Pieces stand one for one; the spans of T5 have names."""
    if not any(SENTINEL.fullmatch(piece.strip()) for piece in row["reference"]):
        return [*zip(row["reference"], row["output"])]
    hidden, guessed = named(row["reference"]), named(row["output"])
    return [(text, guessed.get(name, "")) for name, text in hidden.items() if text]


def named(pieces: Sequence[str]) -> dict[str, str]:
    """The text after each sentinel, up to the next."""
    found: dict[str, str] = {}
    name = ""
    for piece in pieces:
        sentinel = SENTINEL.fullmatch(piece.strip())
        name = piece.strip() if sentinel else name
        found[name] = found.get(name, "") + ("" if sentinel else piece)
    return found


def guesses(facts: Facts) -> list[Block]:
    name, rows = facts.chosen()
    pairs = Counter(pair for row in rows for pair in gaps(row))
    if not pairs:
        return [Paragraph(NOT_RECORDED)]
    wrong = [(pair, count) for pair, count in pairs.most_common() if pair[0] != pair[1]]
    right = pairs.total() - sum(count for _, count in wrong)
    told = f"{right:,} of {pairs.total():,} gaps in the {name} data were filled as they had been"
    if not wrong:
        return [Paragraph(f"{told}.")]
    table = [[*seen(*pair), f"{count:,}"] for pair, count in wrong[:PAIRS]]
    head = ["hidden", "guessed", "times"]
    return [Paragraph(f"{told}; these were mistaken most often."), Table(head, table, text_columns=2)]


def texts(facts: Facts) -> list[Block]:
    """Those with the fewest and those with the most gaps filled rightly."""
    _, rows = facts.chosen()
    if not rows:
        return [Paragraph(NOT_RECORDED)]
    ranked = sorted(rows, key=lambda row: (share(row), row["log_probability"] or 0.0))
    half = min(SHOWN, len(ranked) // 2)
    worst, best = ranked[: half or 1], ranked[::-1][:half]
    blocks: list[Block] = [Paragraph("Texts with the fewest gaps filled."), *map(case, worst)]
    return [*blocks, Paragraph("Those with the most."), *map(case, best)] if best else blocks


def share(row: Record) -> float:
    found = gaps(row)
    return sum(hidden == said for hidden, said in found) / max(1, len(found))


def seen(hidden: str, said: str) -> tuple[str, str]:
    """Without the spaces around, unless these are all that differs."""
    bare = hidden.strip(), said.strip() or "–"
    return (
        bare if bare[0] != bare[1] or hidden == said else (hidden.replace(" ", "␣"), said.replace(" ", "␣"))
    )


def case(row: Record) -> Case:
    found = gaps(row)
    shown = [seen(*pair) for pair in found]
    lines = [
        ("text", row["source"]),
        ("hidden", " · ".join(hidden for hidden, _ in shown)),
        ("guessed", " · ".join(said for _, said in shown)),
    ]
    right = sum(hidden == said for hidden, said in found)
    p = "" if row["log_probability"] is None else f", log-probability {row['log_probability']:.2f}"
    return Case(lines, f"{right} of {len(found)} right{p}")
