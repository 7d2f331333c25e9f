"""The content of a report, section by section; numbers become words here, and nothing is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regard.training.report import answered, classified, filled, generated, tagged, translated
from regard.training.report.blocks import Block, Chart, Charts, Section, Series, Tiles
from regard.training.report.cost import cost, model
from regard.training.report.facts import SETS, Facts
from regard.training.report.found import data
from regard.training.report.scores import scores
from regard.training.report.tasks import LOSS, Measure
from regard.training.report.words import clock, compact

PICTURE = "curves.png"

# What only the reports of one task have: what the model made of the held-out texts.
OWN: dict[str, Sequence[tuple[str, Callable[[Facts], list[Block]]]]] = {
    "translate": (
        ("Score by length", translated.lengths),
        ("Sentences", translated.sentences),
        ("Alignment", translated.alignments),
    ),
    "generate": (("How it goes on", generated.continuations),),
    "fill": (("Guesses", filled.guesses), ("Texts", filled.texts)),
    "classify": (("Labels", classified.confusion), ("Errors", classified.errors)),
    "tag": (("Entities", tagged.types), ("Errors", tagged.errors)),
    "answer": (("Answers", answered.answers), ("Errors", answered.errors)),
}


def sections(facts: Facts) -> list[Section]:
    return [
        Section("", [overview(facts)]),
        Section("Scores", scores(facts)),
        Section("Curves", [curves(facts)]),
        Section("Data", data(facts)),
        *(Section(title, content(facts)) for title, content in OWN[facts.config.task.name]),
        Section("Model and training", model(facts)),
        Section("Time and cost", cost(facts)),
    ]


def overview(facts: Facts) -> Block:
    run, at = facts.last("run"), facts.last("train")
    best = facts.last("test") or facts.last("final-valid") or facts.last("valid")
    remark = {"final-valid": "on the validation data", "valid": facts.wording.validated}
    bare = {key: value for key, value in best.items() if not key.endswith("_interval")}
    tiles = [
        (each.name, each.shown(bare), remark.get(best["kind"], "on the test data"))
        for each in facts.wording.scores[: facts.wording.main]
        if each.of(best) is not None
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
    def points(kind: str, measure: Measure) -> list[tuple[float, float]]:
        found = [(row["step"], measure.of(row)) for row in facts.of_kind(kind)]
        return [(step, value) for step, value in found if value is not None]

    wording = facts.wording
    smoothed = ", smoothed labels" if facts.config.train.label_smoothing else ""
    loss = [
        Series(f"training{smoothed}", points("train", LOSS)),
        Series("validation", points("valid", LOSS), dots=True),
    ]
    quality = [Series(each.name, points("valid", each), dots=True) for each in wording.curves]
    rate = [Series("learning rate", points("train", Measure("lr", "")))]
    speed = [Series("tokens a second", points("train", Measure("tokens_per_second", "")))]
    per = next(each.name for each in wording.scores if each.key == "loss")
    charts = [
        Chart(per, loss),
        Chart(wording.chart, quality, from_zero=True),
        Chart("learning rate", rate, from_zero=True),
        Chart(f"{wording.tokens} a second", speed, from_zero=True),
    ]
    return Charts(charts, PICTURE)
