"""Several translation models on one test set: scores, also by length of the source, loss, size and speed."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import torch

from regard.config import Decode, Task
from regard.errors import UsageError
from regard.evaluation import Data, choose_tokenization, read_test_set
from regard.metrics import perplexity_scores
from regard.metrics.bleu import TextScores, text_scores
from regard.sample import Example
from regard.storage import write_atomically, write_text
from regard.tasks import Translator, decode_options, load
from regard.training.progress import FILE, Record, read_metrics
from regard.training.report import page
from regard.training.report.texts import length_unit, scores_by_length

FORMATS = (".html", ".md", ".svg", ".png")
MAX_LABEL = 40  # characters of a name in the legend
MIN_SENTENCES = 10  # of a point of the chart
TIMED_SENTENCES = 200  # translated in each round of timing, enough to fill batches
DIFFERENT_TOKENS = (
    "The models cut text into different tokens: compare bits a byte and sentences a second, "
    "not loss, perplexity and tokens a second."
)

Work = Callable[[], tuple[int, int]]  # returns the number of sentences and of target tokens


@dataclass(frozen=True)
class ModelScores:
    """One model of a comparison. loss = mean of -log p over the target tokens of the references."""

    model: str
    family: str
    parameters: int
    updates: int | None  # None if the folder does not record them
    bleu: float
    chrf: float
    loss: float
    perplexity: float
    bits_per_byte: float
    tokens_per_second: float | None  # the median of the rounds
    sentences_per_second: float | None
    rounds: Sequence[float]  # tokens a second
    lengths: Sequence[Record]  # scores by length of the source
    sentence_rounds: Sequence[float]
    vocabulary: str  # of the target tokenizer, its fingerprint


@dataclass(frozen=True)
class Comparison:
    """Several models on the same examples, with the same options."""

    source: str
    target: str
    sentences: int
    unit: str  # of a length: words or characters
    precision: str
    bleu_signature: str
    chrf_signature: str
    measured: str  # how, in sentences
    models: Sequence[ModelScores]

    def to_dict(self) -> Record:
        """What `regard compare --json` prints."""
        content = asdict(self)
        for model in content["models"]:
            del model["sentence_rounds"], model["vocabulary"]
        return content

    def write(self, path: str | Path) -> list[Path]:
        """Write a page (.html, .md) or the chart (.svg, .png); the chart of a .md is a file beside it."""
        path, drawing = Path(path), length_chart(self)
        title = f"{len(self.models)} models from {self.source} to {self.target}"
        match path.suffix.lower():
            case ".html":
                write_text(path, page.html_page(title, comparison_sections(self)))
            case ".md":
                picture = path.with_suffix(".svg")
                write_text(picture, page.svg_file(drawing))
                write_text(path, page.markdown_page(title, comparison_sections(self, quote(picture.name))))
                return [path, picture]
            case ".svg":
                write_text(path, page.svg_file(drawing))
            case _:
                write_atomically(path, page.save([drawing], "png"))
        return [path]


def compare(
    models: Sequence[str | Path] | Mapping[str, str | Path | Translator],
    data: Data | None = None,
    *,
    tokenize: str | None = None,
    rounds: int = 3,
    device: str = "auto",
    threads: int = 0,
    precision: str = "float32",
    status: Callable[[str], None] = lambda text: None,
    **options: object,
) -> Comparison:
    """Compare model folders, or opened models by name, on one test set.

    All use the `[decode]` section (`options` replace its fields) and the test set of the first model, and
    are computed in float32, unless `precision` names another. `rounds` of timing; 0 = none.
    """
    if len(models) < 2:
        raise UsageError("give at least two models to compare", code="E_COMPARE_MODELS")
    if not isinstance(models, Mapping):
        models = dict(zip(model_names([Path(each) for each in models]), models))
    opened: dict[str, Any] = {}
    for name, each in models.items():
        opened[name] = each if isinstance(each, Translator) else load(each, device, threads, precision)
    check_languages(opened)
    folder = next(iter(opened.values())).folder
    tokenize = choose_tokenization(folder.path, tokenize)
    examples = read_test_set(folder, data)
    if not examples:
        raise UsageError("the test set is empty", code="E_EVALUATE_DATA")
    chosen = decode_options(folder.decode, options)
    return compare_models(opened, examples, chosen, tokenize, rounds, precision, status)


def check_languages(models: Mapping[str, Any]) -> None:
    """The models must translate between the same languages, where their folders name them."""
    for name, model in models.items():
        if not isinstance(model, Translator):
            raise UsageError(
                f"{name} is a {model.folder.task.name} model; only translation models can be compared",
                code="E_COMPARE_TASK",
            )
    pairs = {name: f"{each.folder.task.source} to {each.folder.task.target}" for name, each in models.items()}
    named = [(name, pair) for name, pair in pairs.items() if pair != f"{Task().source} to {Task().target}"]
    for name, pair in named:
        if pair != named[0][1]:
            raise UsageError(
                f"{named[0][0]} translates {named[0][1]} and {name} {pair}: models of different languages "
                "have no common test set",
                code="E_COMPARE_LANGUAGES",
            )


def model_names(paths: Sequence[Path]) -> list[str]:
    """The folders' names, each with as many parent folders as make it unique."""
    folders = [[part for part in path.resolve().parts if part != "checkpoints"] for path in paths]
    names = []
    for parts, path in zip(folders, paths):
        if folders.count(parts) > 1:
            raise UsageError(f"{path} is given twice: each model is compared once", code="E_COMPARE_MODELS")
        others = [other for other in folders if other is not parts]
        size = next(n for n in range(1, len(parts) + 1) if all(other[-n:] != parts[-n:] for other in others))
        names.append("/".join(parts[-size:]))
    return names


def compare_models(
    models: Mapping[str, Translator],
    examples: Sequence[Example],
    options: Decode,
    tokenize: str,
    rounds: int,
    precision: str,
    status: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Translate, score and time: each model with the same options on the same examples."""
    tasks = [model.folder.task for model in models.values()]
    task = next((task for task in tasks if task.source != "source"), tasks[0])
    unit, length = length_unit(task.source)
    scored = readable_by_all(models.values(), examples)
    sources = [example.source for example in examples]
    outputs = {}
    for name, model in models.items():
        status(f"{name}: translating {len(examples):,} lines")
        outputs[name] = [each.text for each in model.translate_lines(sources, options)]
    status("measuring speed")
    count = min(TIMED_SENTENCES, len(sources))
    sample = [sources[number * len(sources) // count] for number in range(count)]  # from the whole set
    work = {name: partial(translate_sample, model, sample, options) for name, model in models.items()}
    speeds = time_rounds(work, rounds)
    status("scoring references")
    rows = []
    for name, model in models.items():
        pairs = zip(examples, outputs[name])
        texts = [{"source": each.source, "reference": each.target, "output": text} for each, text in pairs]
        scores = text_scores(outputs[name], [each.target for each in examples], tokenize)
        lengths = scores_by_length(texts, length, tokenize)
        rows.append(model_row(name, model, scored, scores, lengths, speeds[name]))
    return Comparison(
        source=task.source,
        target=task.target,
        sentences=len(examples),
        unit=unit,
        precision=precision,
        bleu_signature=scores.bleu_signature,
        chrf_signature=scores.chrf_signature,
        measured=method(str(next(iter(models.values())).device), count, options, rounds, precision)
        + (f" The loss is that of the {len(scored):,} pairs that none of the models finds too long.")
        * (len(scored) < len(examples)),
        models=rows,
    )


def readable_by_all(models: Iterable[Translator], examples: Sequence[Example]) -> list[Example]:
    """The pairs that fit into every model: losses are comparable over the same pairs only."""
    readable = list(examples)
    for model in models:
        longest = model.folder.config.max_length - 1  # one position is for the end token
        sources = model.folder.source.encode_batch([example.source for example in readable])
        targets = model.folder.target.encode_batch([example.target for example in readable])
        sizes = [max(len(source), len(target)) for source, target in zip(sources, targets)]
        readable = [example for example, size in zip(readable, sizes) if size <= longest]
    if not readable:
        raise UsageError(
            "every pair of the test set is too long for one of the models", code="E_EVALUATE_DATA"
        )
    return readable


def translate_sample(model: Translator, sources: Sequence[str], options: Decode) -> tuple[int, int]:
    results = model.translate_lines(sources, options)
    return len(results), sum(len(each.candidates[0].tokens) for each in results)


def time_rounds(work: Mapping[str, Work], rounds: int, seed: int = 0) -> dict[str, list[tuple[float, float]]]:
    """(sentences, target tokens) a second of each in each round, in a new random order every round."""
    generator = random.Random(seed)
    speeds: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(rounds):
        for name in generator.sample(list(work), len(work)):
            start = time.perf_counter()
            sentences, tokens = work[name]()
            seconds = max(time.perf_counter() - start, 1e-9)
            speeds[name].append((sentences / seconds, tokens / seconds))
    return speeds


def model_row(
    name: str,
    model: Translator,
    scored: Sequence[Example],
    scores: TextScores,
    lengths: Sequence[Record],
    speeds: Sequence[tuple[float, float]],
) -> ModelScores:
    log_p = model.score([pair.source for pair in scored], [pair.target for pair in scored])
    total, count = math.fsum(math.fsum(row) for row in log_p), sum(len(row) for row in log_p)
    size = sum(len(pair.target.encode("utf-8")) for pair in scored)
    sentences, tokens = [each[0] for each in speeds], [each[1] for each in speeds]
    return ModelScores(
        model=name,
        family=model.folder.config.family,
        parameters=model.folder.parameters,
        updates=updates(model.folder.path),
        bleu=scores.bleu,
        chrf=scores.chrf,
        loss=-total / max(1, count),
        **perplexity_scores(total, count, size),
        tokens_per_second=median(tokens) if tokens else None,
        sentences_per_second=median(sentences) if sentences else None,
        rounds=tokens,
        lengths=lengths,
        sentence_rounds=sentences,
        vocabulary=model.folder.target.fingerprint,
    )


def updates(folder: Path) -> int | None:
    """The updates of a checkpoint or a run; None if the folder does not record them."""
    folder = folder.resolve()
    if folder.parent.name == "checkpoints":
        digits = folder.name.removeprefix("step-")
        return int(digits) if digits.isdecimal() else None
    ends = [record.get("step") for record in read_metrics(folder / FILE) if record.get("kind") == "run"]
    return ends[-1] if ends and isinstance(ends[-1], int) else None


def method(device: str, count: int, options: Decode, rounds: int, precision: str) -> str:
    """How the numbers were measured, in sentences."""
    text = f"All searched with beam {options.beam} in {precision}"
    if not rounds:
        return f"{text}; speed was not measured."
    return (
        f"{text}. Speed is that of translating {count:,} of the sentences: target tokens of the best "
        f"hypotheses, the median of the rounds (lowest to highest); rounds: {rounds}, in each the models one "
        f"after the other in an order drawn anew; {device}, threads: {torch.get_num_threads()}."
    )


# --- page and chart ---------------------------------------------------------------------------------------


def comparison_sections(comparison: Comparison, picture: str = "") -> list[page.Section]:
    """One table of everything, then the scores by length as a chart and as tables."""
    models = comparison.models
    remarks = [comparison.measured]
    if len({model.vocabulary for model in models}) > 1:
        remarks.append(DIFFERENT_TOKENS)
    drawing = page.charts([length_chart(comparison)], picture)
    signatures = page.code(f"BLEU|{comparison.bleu_signature}", f"chrF2|{comparison.chrf_signature}")
    scored = f"{comparison.sentences:,} sentences, scored by sacreBLEU."
    return [
        ("", [model_table(models), *remarks]),
        ("Score by length", [drawing, length_table(comparison, "BLEU"), length_table(comparison, "chrF")]),
        ("Signatures", [scored, signatures]),
    ]


def model_table(models: Sequence[ModelScores]) -> page.Block:
    """A column for each model."""
    fields = {
        "family": ("family", ""), "parameters": ("parameters", ","), "updates": ("updates", ","),
        "BLEU": ("bleu", ".2f"), "chrF": ("chrf", ".2f"), "loss a token": ("loss", ".4f"),
        "perplexity": ("perplexity", ",.2f"), "bits a byte": ("bits_per_byte", ".3f"),
    }  # fmt: skip
    rows = []
    for name, (key, digits) in fields.items():
        values = [getattr(model, key) for model in models]
        rows.append([name, *("–" if value is None else f"{value:{digits}}" for value in values)])
    rows.append(["tokens a second", *(rate(model.rounds) for model in models)])
    rows.append(["sentences a second", *(rate(model.sentence_rounds) for model in models)])
    return page.table(["", *(model.model for model in models)], rows)


def rate(rounds: Sequence[float]) -> str:
    """The median of the rounds, with the lowest and the highest."""
    if not rounds:
        return "–"
    digits = 0 if median(rounds) >= 100 else 1
    span = f" ({min(rounds):,.{digits}f} to {max(rounds):,.{digits}f})" if len(rounds) > 1 else ""
    return f"{median(rounds):,.{digits}f}{span}"


def length_table(comparison: Comparison, score: str) -> page.Block:
    """A row for each length of the source, with the same sentences for all models."""
    names = [model.model for model in comparison.models]
    rows = [
        [same[0]["length"], f"{same[0]['sentences']:,}", *(f"{each[score.lower()]:.2f}" for each in same)]
        for same in zip(*(model.lengths for model in comparison.models))
    ]
    return page.table([f"{score} by {comparison.unit} of the source", "sentences", *names], rows)


def length_chart(comparison: Comparison) -> page.Chart:
    """BLEU by length; lengths of few sentences stand in the table only."""
    models = comparison.models
    lengths = models[0].lengths
    enough = [number for number, each in enumerate(lengths) if each["sentences"] >= MIN_SENTENCES]
    numbers = enough if len(enough) > 1 else range(len(lengths))
    names = [lengths[number]["length"].replace(" to ", "–").replace(" and more", "+") for number in numbers]
    curves = []
    for model in models:
        points = [(float(x), model.lengths[number]["bleu"]) for x, number in enumerate(numbers)]
        curves.append(page.curve(model.model[-MAX_LABEL:], points, dots=True))
    return page.chart("BLEU", curves, from_zero=True, over=f"{comparison.unit} of the source", names=names)
