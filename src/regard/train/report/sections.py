"""The content of a report, section by section; numbers become words here, and nothing is drawn."""

from __future__ import annotations

from regard.train.progress import Record
from regard.train.report.blocks import (
    Alignment,
    Block,
    Chart,
    Charts,
    Paragraph,
    Section,
    Sentence,
    Series,
    Table,
    Tiles,
)
from regard.train.report.breakdown import by_length, measure, typical, worst_and_best
from regard.train.report.cost import cost, model
from regard.train.report.facts import SETS, Facts
from regard.train.report.found import data
from regard.train.report.scores import scores
from regard.train.report.words import clock, compact

SHOWN, DRAWN = 5, 3  # sentences at each end, alignments
PICTURE = "curves.png"


def sections(facts: Facts) -> list[Section]:
    return [
        Section("", [overview(facts)]),
        Section("Scores", scores(facts)),
        Section("Curves", [curves(facts)]),
        Section("Data", data(facts)),
        Section("Score by length", lengths(facts)),
        Section("Sentences", sentences(facts)),
        Section("Alignment", alignments(facts)),
        Section("Model and training", model(facts)),
        Section("Time and cost", cost(facts)),
    ]


def overview(facts: Facts) -> Block:
    run, at = facts.last("run"), facts.last("train")
    best = facts.last("test") or facts.last("final-valid") or facts.last("valid")
    remark = {"final-valid": "on the validation data", "valid": "at the last validation, greedy"}
    tiles = [
        (name, f"{best[key]:.2f}", remark.get(best["kind"], "on the test data"))
        for name, key in (("BLEU", "bleu"), ("chrF", "chrf"))
        if key in best
    ]
    if "parameters" in run:
        tiles.append(
            ("parameters", compact(run["parameters"]).strip(), facts.config.model.preset or "own numbers")
        )
    newest = run or at or {"step": 0, "seconds": 0.0}
    state = "" if run or best.get("kind") in SETS else ", not finished yet"
    tiles.append(("training", clock(newest["seconds"]), f"{newest['step']:,} updates{state}"))
    return Tiles(tiles)


def curves(facts: Facts) -> Block:
    def points(kind: str, key: str) -> list[tuple[float, float]]:
        rows = facts.of_kind(kind)
        return [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]

    smoothed = ", smoothed labels" if facts.config.train.label_smoothing else ""
    loss = [
        Series(f"training{smoothed}", points("train", "loss")),
        Series("validation", points("valid", "loss"), dots=True),
    ]
    quality = [
        Series("BLEU", points("valid", "bleu"), dots=True),
        Series("chrF", points("valid", "chrf"), dots=True),
    ]
    rate = [Series("learning rate", points("train", "lr"))]
    speed = [Series("tokens a second", points("train", "tokens_per_second"))]
    charts = [
        Chart("loss a token", loss),
        Chart("validation, greedy", quality, from_zero=True),
        Chart("learning rate", rate, from_zero=True),
        Chart("target tokens a second", speed, from_zero=True),
    ]
    return Charts(charts, PICTURE)


def chosen_set(facts: Facts) -> tuple[str, list[Record]]:
    """The sentences to look at: those of the test set, else of the validation set."""
    return next(
        ((name, facts.sentences[kind]) for kind, name in SETS.items() if facts.sentences[kind]), ("", [])
    )


def lengths(facts: Facts) -> list[Block]:
    name, rows = chosen_set(facts)
    if not rows:
        return [Paragraph("The sentences were not recorded.")]
    unit, length = measure(facts.config.task.source)
    buckets = by_length(rows, length, facts.tokenization)
    table = Table(
        [f"{unit} of the source, {name} data", "sentences", "BLEU", "chrF"],
        [[b.name, f"{b.sentences:,}", f"{b.scores.bleu:.2f}", f"{b.scores.chrf:.2f}"] for b in buckets],
    )
    return [table]


def sentences(facts: Facts) -> list[Block]:
    name, rows = chosen_set(facts)
    if not rows:
        return [Paragraph("The sentences were not recorded.")]
    worst, best = worst_and_best(rows, SHOWN)
    return [
        Paragraph(
            f"The worst of the {name} data by chrF; the model's score is its log-probability by length."
        ),
        *(sentence(row) for row in worst),
        Paragraph("The best, long ones first."),
        *(sentence(row) for row in best),
    ]


def sentence(row: Record) -> Sentence:
    remark = f"chrF {row['chrf']:.1f}, model's score {row['score']:.2f}"
    return Sentence(row["source"], row["reference"], row["output"], remark)


def alignments(facts: Facts) -> list[Block]:
    _, rows = chosen_set(facts)
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
