"""The report of a run (report.html, report.md, curves.png), made from the files of the run folder.

The sections that all tasks have are here: overview, scores, curves, data, model, cost. Those of the held-out
texts of a task are in `texts.py`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.config import Config, Model, resolve
from regard.config.load import NAMES
from regard.config.model import RecurrentConfig
from regard.data.corpora import parts
from regard.errors import RegardError
from regard.metrics.bleu import RESAMPLES, bleu_tokenization, looks_tokenized
from regard.storage import write_atomically, write_text
from regard.training.progress import Record
from regard.training.report import page
from regard.training.report.robustness import robustness_section
from regard.training.report.run_data import SPLITS, Metric, RunData, main_scores, read_run, score_line
from regard.training.report.texts import TASK_SECTIONS

PICTURE = "curves.png"
SECTIONS = ("task", "data", "text", "model", "train", "decode", "init")  # of a config
# Fields of a config that a report shows elsewhere, or that concern only the machine of the run.
SKIP_FIELDS = {"train", "valid", "test", "device", "precision", "threads", "name", "source", "target", "from"}


def write_report(folder: Path) -> list[Path]:
    """Write report.md and report.html from the files of a run folder, also of a run that has not ended."""
    run = read_run(folder)
    sections = run_sections(run)
    pages = {"report.md": page.markdown_page, "report.html": page.html_page}
    for name, render in pages.items():
        write_text(folder / name, render(run.title, sections))
    return [folder / name for name in pages]


def draw_curves(folder: Path) -> Path:
    """Write curves.png: loss, validation scores and learning rate."""
    write_atomically(folder / PICTURE, page.save(curve_charts(read_run(folder))[:3], "png"))
    return folder / PICTURE


def finish_report(folder: Path, log: Callable[[str], None]) -> None:
    """Write curves and report when a run ends. An odd file is logged; the model is written already."""
    try:
        draw_curves(folder)
        write_report(folder)
    except OSError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
        log(f'no report: {reason} ("regard report {shlex.quote(str(folder))}" writes it again)')


def run_sections(run: RunData) -> list[page.Section]:
    sections: dict[str, Callable[[RunData], Iterator[page.Block]]] = {
        "": overview,
        "Scores": scores,
        **({"Robustness": robustness_section} if run.last("robustness") else {}),
        "Curves": curves,
        "Data": data,
        **TASK_SECTIONS[run.config.task.name],
        "Model and training": model,
        "Time and cost": cost,
    }
    return [(heading, list(section(run))) for heading, section in sections.items()]


def overview(run: RunData) -> Iterator[page.Block]:
    end, best = run.last("run"), run.final_scores() or run.last("valid")
    remarks = {"final-valid": "on the validation data", "valid": run.task.validation}
    bare = {key: value for key, value in best.items() if not key.endswith("_interval")}
    tiles = [
        (metric.name, metric.format(bare), remarks.get(best["kind"], "on the test data"))
        for metric in run.task.metrics[: run.task.main]
        if metric.value_in(best) is not None
    ]
    if "parameters" in end:
        size = run.config.model.preset or "custom size"
        tiles.append(("parameters", compact(end["parameters"]).strip(), size))
    newest = end or run.last("train")
    state = "" if end or best.get("kind") in SPLITS else ", not finished yet"
    tiles.append(("training", clock(newest.get("seconds", 0.0)), f"{newest.get('step', 0):,} updates{state}"))
    yield {"kind": "tiles", "tiles": tiles}


# --- scores -----------------------------------------------------------------------------------------------


def scores(run: RunData) -> Iterator[page.Block]:
    records = {split: run.last(kind) for kind, split in SPLITS.items() if run.last(kind)}
    if not records:
        yield "Not scored yet: the final model is scored when the run ends."
        return
    metrics = [
        each for each in run.task.metrics if any(each.value_in(one) is not None for one in records.values())
    ]
    rows = [
        [split, f"{record.get('sentences', 0):,}", *(metric.format(record) for metric in metrics)]
        for split, record in records.items()
    ]
    yield page.table(["set", run.task.texts, *(metric.name for metric in metrics)], rows)
    if run.task.remark:
        yield run.task.remark
    if run.config.task.name == "translate":
        yield from translation_remarks(run, next(iter(records.values())))
    if command := evaluate_command(run.config, run.folder.resolve().name):
        yield "To compute them again:"
        yield page.code(command)


def translation_remarks(run: RunData, record: Record) -> Iterator[page.Block]:
    if "bleu_interval" in record:
        method = f"{RESAMPLES:,} bootstrap samples of the sentences"
        yield f"± is half of the 95 % confidence interval, from {method}."
    signatures = (("BLEU", "bleu_signature"), ("chrF2", "chrf_signature"))
    yield page.code(*(f"{name}|{record.get(key, '–')}" for name, key in signatures))
    references = [row["reference"] for kind in SPLITS for row in run.texts[kind]]
    if looks_tokenized(references) and run.tokenization not in ("none", "char"):
        yield (
            "The references look tokenised (a space before the full stop). Published scores of such text "
            'are computed without a second tokenisation: train.bleu_tokenize = "none".'
        )


def evaluate_command(config: Config, folder: str) -> str:
    """The command that computes the scores again, empty if no single command does.

    It names files without their folders: a report may be published.
    """
    corpora = config.data.valid if config.data.test is None else config.data.test
    choices = parts(corpora) if corpora is not None else []
    if not choices or (len(choices) > 1 and config.data.test is None):
        return ""
    corpus = choices[0][0] if len(choices) == 1 else ()  # several: `evaluate` takes them from run.toml
    names = [corpus] if isinstance(corpus, str) else corpus
    files = [name if name.split(":")[0] in NAMES else Path(name).name for name in names]
    command = ["regard", "evaluate", "-m", folder, *(part for name in files for part in ("--data", name))]
    if config.task.name == "translate":
        command += ["--tokenize", bleu_tokenization(config.train.bleu_tokenize, config.task.target)]
    return shlex.join(command)


# --- curves and data --------------------------------------------------------------------------------------


def curves(run: RunData) -> Iterator[page.Block]:
    yield page.charts(curve_charts(run), PICTURE)


def curve_charts(run: RunData) -> list[page.Chart]:
    def points(kind: str, field: str | Metric) -> list[tuple[float, float]]:
        metric = Metric(field, field) if isinstance(field, str) else field
        pairs = [(record.get("step"), metric.value_in(record)) for record in run.of_kind(kind)]
        return [(step, value) for step, value in pairs if isinstance(step, int) and value is not None]

    smoothed = ", smoothed labels" if run.config.train.label_smoothing else ""
    losses = [
        page.curve(f"training{smoothed}", points("train", "loss")),
        page.curve("validation", points("valid", "loss"), dots=True),
    ]
    quality = [page.curve(metric.name, points("valid", metric), dots=True) for metric in run.task.curves]
    rate = [page.curve("learning rate", points("train", "lr"))]
    speed = [page.curve("tokens a second", points("train", "tokens_per_second"))]
    return [
        page.chart(next(metric.name for metric in run.task.metrics if metric.key == "loss"), losses),
        page.chart(run.task.chart, quality, from_zero=True),
        page.chart("learning rate", rate, from_zero=True),
        page.chart(f"{run.task.tokens} a second", speed, from_zero=True),
    ]


def data(run: RunData) -> Iterator[page.Block]:
    """What was read from each corpus, and what the data check reported."""
    if run.data is None:
        yield "What was read from the corpora was not recorded in this run."
        return
    corpora, findings = run.data.get("corpora") or [], run.data.get("findings") or []
    if corpora:
        head = ["corpus", "split", run.task.rows, "used", "skipped", "weight"]
        yield page.table(head, [corpus_row(corpus) for corpus in corpora], text_columns=2)
    if not findings:
        yield "The data check reported no problem."
        return
    head, rows = ["problem", f"{run.task.rows} are", "for example", "count"], []
    for finding in findings:
        meaning = str(finding.get("meaning") or finding.get("kind", ""))
        places = "; ".join(place(each) for each in (finding.get("places") or [])[:2])
        used = "skipped" if finding.get("left_out") else "used"
        rows.append([meaning, used, places, integer(finding.get("count"))])
    yield page.table(head, rows, text_columns=3)


def corpus_row(corpus: Mapping[str, Any]) -> list[str]:
    rows, used = corpus.get("pairs"), corpus.get("used")
    skipped = integer(rows - used) if isinstance(rows, int) and isinstance(used, int) else "–"
    name, split = str(corpus.get("name", "")), str(corpus.get("split", ""))
    return [name, split, integer(rows), integer(used), skipped, f"{corpus.get('weight', 1.0):g}"]


def place(finding: Mapping[str, Any]) -> str:
    """`train.en, line 17: note`, without the folder."""
    at = f"{Path(str(finding.get('file', ''))).name}, line {finding.get('line', '?')}"
    note = finding.get("note") or finding.get("excerpt")
    return f"{at}: {note}" if note else at


# --- model and cost ---------------------------------------------------------------------------------------


def model(run: RunData) -> Iterator[page.Block]:
    config, end = run.config, run.last("run")
    rows = [["family", config.model.family], ["shape", shape(config.model)]]
    if config.init.model is not None:
        rows.append(["initialised from", Path(config.init.model).name])
    if "parameters" in end:
        rows.append(["parameters", f"{end['parameters']:,}"])
    if "vocabulary" in end:
        rows.append(["vocabulary", " and ".join(f"{size:,}" for size in end["vocabulary"]) + " tokens"])
    rows += [["final model", str(end["chosen"])]] if "chosen" in end else []
    yield page.table(["", ""], rows, text_columns=2)
    if changes := changed_settings(config):
        yield page.table(["setting", "here", "default"], changes, text_columns=3)


def shape(model: Model) -> str:
    layers = " + ".join(str(each) for each in model.depth if each)
    if isinstance(model, RecurrentConfig):
        return f"{layers} layers of {model.cell.upper()} cells, width {model.width}"
    return f"{layers} layers, width {model.width}, {model.heads} heads, feed-forward {model.feed_forward}"


def changed_settings(config: Config) -> list[list[str]]:
    """(setting, value, default) of the fields that differ from the defaults of their task and preset."""
    preset = {"preset": config.model.preset, "family": config.model.family}
    tree = {"task": {"name": config.task.name}, "data": {"train": "phrasebook"}, "model": preset}
    defaults = resolve(tree if config.input is None else {**tree, "input": config.input.model_dump()})
    rows = []
    for section in SECTIONS:
        values, base = (getattr(each, section).model_dump(mode="json") for each in (config, defaults))
        for field, value in values.items():
            if value != base.get(field) and field not in SKIP_FIELDS:
                rows.append([f"{section}.{field}", setting(value), setting(base.get(field))])
    return rows


def setting(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)


def cost(run: RunData) -> Iterator[page.Block]:
    end, tokens = run.last("run"), run.task.tokens
    if not end:
        yield f"The run has not ended; {run.last('train').get('tokens', 0):,} {tokens} so far."
        return
    try:
        yield page.table(["", ""], cost_rows(end, tokens), text_columns=2)
    except KeyError as missing:
        yield f"Not recorded in this run: {missing.args[0]}."


def cost_rows(end: Record, tokens: str) -> list[list[str]]:
    updating = max(1e-9, end["updating"])
    rate = end["flops"] / updating
    return [
        ["updates", f"{end['step']:,} in {end['epochs']:,.2f} epochs"],
        [f"{tokens} trained on", f"{end['tokens']:,}"],
        ["speed", f"{end['tokens'] / updating:,.0f} {tokens} a second"],
        ["time in updates", clock(end["updating"])],
        ["of these waiting for data", f"{clock(end['waiting'])}, {100 * end['waiting'] / updating:.1f} %"],
        ["time in validations", clock(end["validating"])],
        ["time in saving", clock(end["saving"])],
        ["machine", f"{end['device']}, {end['precision']}, threads: {end['threads']}"],
        ["operations", f"{compact(end['flops'])}FLOP, forward and backward, padding included"],
        ["rate", f"{compact(rate)}FLOP/s"],
        ["peak, measured", f"{compact(end['peak'])}FLOP/s, by matrix products at the end of the run"],
        ["share of the peak", f"{100 * rate / max(1e-9, end['peak']):.1f} %"],
    ]


def integer(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"


def compact(value: float) -> str:
    """1,842,176 as "1.84 M"."""
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {prefix}"
    return f"{value:g} "


def clock(seconds: float) -> str:
    """Hours, minutes and seconds; below a minute with one decimal."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
