"""Several models on one test set: how good each is, at which length of source, how large and how fast.

What the numbers are stands here; `regard compare` opens the models and lets them translate.
"""

from __future__ import annotations

import io
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import quote

from regard.errors import UsageError
from regard.metrics.bleu import TextScores
from regard.storage import write_atomically, write_text
from regard.training.progress import Record
from regard.training.report.blocks import Block, Chart, Charts, Code, Paragraph, Section, Series, Table
from regard.training.report.breakdown import Bucket
from regard.training.report.drawing import chart_file, chart_title
from regard.training.report.html import html_page
from regard.training.report.markdown import markdown_page
from regard.training.report.words import number

FORMATS = (".html", ".md", ".svg", ".png")
LONGEST_LABEL = 40  # signs in the legend of the chart
ENOUGH = 10  # sentences of a length

Work = tuple[int, int]  # sentences translated, target tokens said


@dataclass(frozen=True)
class Speed:
    """How fast a model translated in each round."""

    sentences: Sequence[float]  # a second
    tokens: Sequence[float]


@dataclass(frozen=True)
class Compared:
    """One model on the test set. The loss is the mean of -log p over the target tokens of the references."""

    label: str
    family: str
    parameters: int
    updates: int | None  # None where the folder does not say
    vocabulary: str  # fingerprint of the target tokenizer
    scores: TextScores
    loss: float
    bits_per_byte: float  # of the references: comparable where tokens are not
    lengths: Sequence[Bucket]
    speed: Speed | None

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))


@dataclass(frozen=True)
class Comparison:
    source: str
    target: str
    sentences: int
    unit: str  # what the length of a source is counted in
    measured: str  # how the speed was measured, in a sentence
    models: Sequence[Compared]

    @property
    def title(self) -> str:
        return f"{len(self.models)} models from {self.source} to {self.target}"

    @property
    def one_vocabulary(self) -> bool:
        return len({model.vocabulary for model in self.models}) == 1


def labels(paths: Sequence[Path]) -> list[str]:
    """The folders' names, with as many of the folders above as it takes to tell them apart."""
    parts = [[part for part in path.resolve().parts if part != "checkpoints"] for path in paths]
    for own, path in zip(parts, paths):
        if parts.count(own) > 1:
            raise UsageError(f"{path} is given twice: each model is compared once")
    found = []
    for own in parts:
        others = [other for other in parts if other is not own]
        size = next(
            size for size in range(1, len(own) + 1) if all(other[-size:] != own[-size:] for other in others)
        )
        found.append("/".join(own[-size:]))
    return found


def race(runners: Mapping[str, Callable[[], Work]], rounds: int, seed: int = 0) -> dict[str, Speed]:
    """All do their work in each round, in an order drawn anew: what else the machine does hits all alike."""
    chance = random.Random(seed)
    sentences: dict[str, list[float]] = {name: [] for name in runners}
    tokens: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name in chance.sample(list(runners), len(runners)):
            began = time.perf_counter()
            translated, said = runners[name]()
            seconds = max(time.perf_counter() - began, 1e-9)
            sentences[name].append(translated / seconds)
            tokens[name].append(said / seconds)
    return {name: Speed(sentences[name], tokens[name]) for name in runners} if rounds else {}


def sections(found: Comparison, picture: str = "") -> list[Section]:
    """The page: all in one table, then the score by length as curves with the numbers beneath."""
    signatures = found.models[0].scores
    remarks: list[Block] = [Paragraph(found.measured)]
    if not found.one_vocabulary:
        remarks.append(
            Paragraph(
                "The models cut text into different tokens: compare bits a byte and sentences a second, "
                "not loss, perplexity and tokens a second."
            )
        )
    codes = Code([f"BLEU|{signatures.bleu_signature}", f"chrF2|{signatures.chrf_signature}"])
    counted = f"{found.sentences:,} sentences"
    return [
        Section("", [overall(found), *remarks]),
        Section(
            "Score by length",
            [Charts([by_length(found)], picture), lengths(found, "BLEU"), lengths(found, "chrF")],
        ),
        Section("Signatures", [Paragraph(f"{counted}, scored by sacreBLEU."), codes]),
    ]


def overall(found: Comparison) -> Table:
    """A column for each model, as in the tables by length."""
    facts: dict[str, Callable[[Compared], str]] = {
        "family": lambda model: model.family,
        "parameters": lambda model: f"{model.parameters:,}",
        "updates": lambda model: number(model.updates),
        "BLEU": lambda model: f"{model.scores.bleu:.2f}",
        "chrF": lambda model: f"{model.scores.chrf:.2f}",
        "loss a token": lambda model: f"{model.loss:.4f}",
        "perplexity": lambda model: f"{model.perplexity:,.2f}",
        "bits a byte": lambda model: f"{model.bits_per_byte:.3f}",
        "tokens a second": lambda model: rate(model.speed.tokens) if model.speed else "–",
        "sentences a second": lambda model: rate(model.speed.sentences) if model.speed else "–",
    }
    rows = [[name, *(fact(model) for model in found.models)] for name, fact in facts.items()]
    return Table(["", *(model.label for model in found.models)], rows)


def rate(values: Sequence[float]) -> str:
    """The median of the rounds, and between which numbers they lie."""
    digits = 0 if median(values) >= 100 else 1
    around = f" ({min(values):,.{digits}f} to {max(values):,.{digits}f})" if len(values) > 1 else ""
    return f"{median(values):,.{digits}f}{around}"


def value(bucket: Bucket, score: str) -> float:
    return bucket.scores.bleu if score == "BLEU" else bucket.scores.chrf


def lengths(found: Comparison, score: str) -> Table:
    """All models see the same sources, so that their buckets are the same sentences."""
    head = [f"{score} by {found.unit} of the source", "sentences", *(model.label for model in found.models)]
    rows = [
        [buckets[0].name, f"{buckets[0].sentences:,}", *(f"{value(each, score):.2f}" for each in buckets)]
        for buckets in zip(*(model.lengths for model in found.models))
    ]
    return Table(head, rows)


def by_length(found: Comparison) -> Chart:
    """The curves; a length that only a few sentences have says nothing, and stands in the table alone."""
    every = found.models[0].lengths
    enough = [place for place, bucket in enumerate(every) if bucket.sentences >= ENOUGH]
    drawn = enough if len(enough) > 1 else range(len(every))
    names = [every[place].name.replace(" to ", "–").replace(" and more", "+") for place in drawn]
    curves = [
        Series(
            model.label[-LONGEST_LABEL:],
            [(float(x), value(model.lengths[place], "BLEU")) for x, place in enumerate(drawn)],
            dots=True,
        )
        for model in found.models
    ]
    return Chart("BLEU", curves, from_zero=True, over=f"{found.unit} of the source", names=names)


def record(found: Comparison) -> Record:
    """Everything for a program."""
    scores = found.models[0].scores
    return {
        "source": found.source,
        "target": found.target,
        "sentences": found.sentences,
        "unit": found.unit,
        "bleu_signature": scores.bleu_signature,
        "chrf_signature": scores.chrf_signature,
        "measured": found.measured,
        "models": [model_record(model) for model in found.models],
    }


def model_record(model: Compared) -> Record:
    speed = model.speed
    return {
        "model": model.label,
        "family": model.family,
        "parameters": model.parameters,
        "updates": model.updates,
        "bleu": model.scores.bleu,
        "chrf": model.scores.chrf,
        "loss": model.loss,
        "perplexity": model.perplexity,
        "bits_per_byte": model.bits_per_byte,
        "tokens_per_second": median(speed.tokens) if speed else None,
        "sentences_per_second": median(speed.sentences) if speed else None,
        "rounds": list(speed.tokens) if speed else [],
        "lengths": [
            {
                "length": bucket.name,
                "sentences": bucket.sentences,
                "bleu": bucket.scores.bleu,
                "chrf": bucket.scores.chrf,
            }
            for bucket in model.lengths
        ],
    }


def write(found: Comparison, path: Path) -> list[Path]:
    """A page (.html, .md) or the chart alone (.svg, .png); a .md has its chart in a file beside it."""
    match path.suffix.lower():
        case ".html":
            write_text(path, html_page(found.title, sections(found)))
        case ".md":
            picture = path.with_suffix(".svg")
            write_text(picture, chart_file(by_length(found)))
            write_text(path, markdown_page(found.title, sections(found, quote(picture.name))))
            return [path, picture]
        case ".svg":
            write_text(path, chart_file(by_length(found)))
        case _:
            write_atomically(path, png(by_length(found)))
    return [path]


def png(chart: Chart) -> bytes:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
    for series, sign in zip(chart.series, "os^Dv*" * len(chart.series)):
        axes.plot(*zip(*series.points), label=series.name.replace("$", r"\$"), marker=sign, markersize=4)
    axes.set(title=chart_title(chart), ylim=(0, None))
    axes.set_xticks(range(len(chart.names)), chart.names)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    plt.close(figure)
    return content.getvalue()
