"""`regard evaluate`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from regard.cli.terminal import (
    AsJson,
    Beam,
    Device,
    Models,
    Precision,
    Settings,
    Threads,
    json_line,
    messages,
    one_line,
    parse_options,
    print_line,
    print_table,
    say,
    tables,
    thread_count,
    writable,
)
from regard.errors import UsageError, near_miss

if TYPE_CHECKING:
    from regard.config import Config, Corpora, Task
    from regard.sample import Example
    from regard.storage import Folder
    from regard.tasks import Translator

PHRASEBOOK = "phrasebook"
MAX_NAMES = 5  # labels named in a message


def evaluate(
    model: Models,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A corpus in a format that training reads; pairs: also a source and a target file."
        ),
    ] = None,
    beam: Beam = None,
    option: Settings = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="translate: sacreBLEU's tokenisation: 13a, none (the text is tokenised), intl, char, zh; "
            "default: that of the run.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the translations here; of other tasks an object for each text."
        ),
    ] = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = 0,
    precision: Precision = "auto",
) -> None:
    """Score a model on the test set of its run or on another, with the metrics of its task.

    translate: BLEU and chrF by sacreBLEU, share of exactly right lines; classify: accuracy and F1;
    tag: F1 of whole entities; answer: exact match and F1 as in SQuAD; generate: perplexity and
    bits per byte; fill: accuracy on masked tokens.

    [bold]Examples[/]

      regard evaluate -m runs/demo
      regard evaluate -m runs/demo --data test.en --data test.de --beam 5
      regard evaluate -m runs/demo --data test.tok.en --data test.tok.de --tokenize none
      regard evaluate -m runs/names --data test.conll --json
    """
    from regard.tasks import Translator, load

    output = writable(output)
    if tokenize is not None:
        check_tokenization(tokenize)
    task = load(model, device, thread_count(threads), precision)
    corpora = choose_corpora(model[0], data)
    if isinstance(task, Translator):
        options, tokenize = parse_options(option, beam), choose_tokenization(model[0], tokenize)
        scores = score_translations(task, corpora, options, tokenize, output)
    elif beam is not None or option or tokenize is not None:
        raise UsageError(
            "--beam, --set and --tokenize are for models that translate; "
            f"this is a {task.folder.task.name} model"
        )
    else:
        scores = score_texts(task.folder, corpora, output)
    if as_json:
        print_line(json_line(scores))
    elif isinstance(task, Translator):
        show_translation_scores(scores)
    else:
        show_scores(scores)


def choose_corpora(model: Path, data: list[str] | None) -> Corpora:
    """`--data`, else the test set of the run."""
    if data:
        if len(data) > 2:
            raise UsageError("--data: give one corpus, or a source file and a target file")
        return data[0] if len(data) == 1 else list(data)
    run = run_config(model)
    if run is None or run.data.test is None:
        raise UsageError(f"{model} names no test set; give one with --data")
    return run.data.test


def run_config(model: Path) -> Config | None:
    """The config of the run that a model folder or checkpoint belongs to."""
    from regard.config import load_config
    from regard.storage.folder import run_of

    path = (run_of(model) or model) / "run.toml"
    return load_config(path) if path.is_file() else None


def check_tokenization(tokenize: str) -> None:
    from regard.config.schema import Tokenization

    names = get_args(Tokenization)
    if tokenize not in names:
        near = near_miss(tokenize, names)
        raise UsageError(f'--tokenize "{tokenize}" is not one of {", ".join(names)}{near}')


def choose_tokenization(model: Path, tokenize: str | None) -> str:
    """sacreBLEU's tokenisation: `--tokenize`, else that of the run; refused if it is not installed."""
    from regard.config import Train
    from regard.metrics.bleu import bleu_tokenization, make_bleu

    if tokenize is not None:
        check_tokenization(tokenize)
    run = run_config(model)
    choice = tokenize or (run.train if run else Train()).bleu_tokenize
    name = bleu_tokenization(choice, run.task.target if run else "")
    make_bleu(name)
    return name


def read_test_set(corpora: Corpora, task: Task) -> list[Example]:
    from regard.data import read_examples

    return read_examples(corpora, task, "test")


# --- translations -----------------------------------------------------------------------------------------


def score_translations(
    translator: Translator, corpora: Corpora, options: dict[str, object], tokenize: str, output: Path | None
) -> dict[str, Any]:
    """BLEU, chrF and exact lines; the translations are written to `output`."""
    from regard.metrics.bleu import looks_tokenized, text_scores
    from regard.storage import write_text
    from regard.tasks import decode_options

    examples = read_test_set(corpora, translator.folder.task)
    decode = decode_options(translator.folder.decode, options)
    start = time.perf_counter()
    with messages().status(f"translating {len(examples):,} lines"):
        results = translator.translate_lines([example.source for example in examples], decode)
    seconds = time.perf_counter() - start
    texts, references = [each.text for each in results], [example.target for example in examples]
    exact = [text == reference for text, reference in zip(texts, references)]
    scores = text_scores(texts, references, tokenize)
    if tokenize not in ("none", "char") and looks_tokenized(references):
        say("the references look tokenised already; scores published for such text come from --tokenize none")
    row: dict[str, Any] = {
        "sentences": len(texts),
        "bleu": scores.bleu,
        "bleu_signature": scores.bleu_signature,
        "chrf": scores.chrf,
        "chrf_signature": scores.chrf_signature,
        "exact": sum(exact) / len(exact),
        "seconds": seconds,
    }
    if isinstance(corpora, str) and corpora.split(":")[0] == PHRASEBOOK:
        row["phenomena"] = exact_by_phenomenon(exact)
    if output is not None:
        write_text(output, "".join(f"{one_line(text)}\n" for text in texts))
    return row


def exact_by_phenomenon(exact: list[bool]) -> dict[str, dict[str, float]]:
    """The share of exact lines among the phrasebook sentences with each grammatical phenomenon."""
    from regard.data.phrasebook import PHENOMENA, phrases

    sentences = list(phrases("test", len(exact)))
    table = {}
    for phenomenon in PHENOMENA:
        lines = [right for right, sentence in zip(exact, sentences) if phenomenon in sentence.phenomena]
        table[phenomenon] = {"sentences": len(lines), "exact": sum(lines) / max(1, len(lines))}
    return table


def show_translation_scores(row: dict[str, Any]) -> None:
    from rich.text import Text

    rows = [
        ("BLEU", f"{row['bleu']:.2f}", row["bleu_signature"]),
        ("chrF", f"{row['chrf']:.2f}", row["chrf_signature"]),
        ("exact", f"{100 * row['exact']:.1f} %", f"of {row['sentences']} sentences"),
        ("time", f"{row['seconds']:.1f} s", ""),
    ]
    if phenomena := row.get("phenomena"):
        rows.append(("", "", ""))
        for name, scores in phenomena.items():
            rows.append((name, f"{100 * scores['exact']:.1f} %", f"of {scores['sentences']:.0f}"))
    print_table([(name, value, Text(note, style="dim")) for name, value, note in rows])


# --- other tasks ------------------------------------------------------------------------------------------


def score_texts(folder: Folder, corpora: Corpora, output: Path | None) -> dict[str, Any]:
    """The final scores of a run, computed again; `output` gets a JSON line for each text."""
    from regard.config import resolve
    from regard.data import read_examples
    from regard.data.report import StrictReport
    from regard.training.evaluation import make_evaluation, make_objective
    from regard.training.evaluation.base import drop_too_long

    config = run_config(folder.path)
    if config is None:
        defaults = resolve({"task": folder.task.model_dump(), "data": {"train": "-"}})
        config = defaults.model_copy(update={"model": folder.config})
    objective = make_objective(
        folder.task, folder.config, folder.source, folder.target, folder.labels, config.version
    )
    findings = StrictReport()
    examples = read_examples(corpora, folder.task, "test", findings, config.data)
    if empty := findings.counts["empty"]:
        say(f"left out {empty:,} without a text (the first: {findings.places['empty'][0]})")
    report_unknown_labels(folder, examples)
    examples = drop_too_long(examples, objective, config, "test", say)
    if not examples:
        raise UsageError(f"nothing is left to score: the model reads {folder.config.max_length} tokens")
    evaluation = make_evaluation(config, objective, examples, folder.may_refuse)
    device = next(folder.model.parameters()).device
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary, messages().status(f"scoring {len(evaluation):,} texts"):
        scores = evaluation.final(folder.model, device, output or Path(temporary) / "test.jsonl")
    seconds = time.perf_counter() - start
    return {"task": folder.task.name, "sentences": len(evaluation), **scores, "seconds": seconds}


def report_unknown_labels(folder: Folder, examples: list[Example]) -> None:
    """Labels that are not in the training data cannot be predicted: their texts count as errors."""
    from regard.data.objectives import split_labels

    if folder.task.name not in ("classify", "tag"):
        return
    is_tag = folder.task.name == "tag"
    unknown, count = dict[str, None](), 0
    for example in examples:
        labels = example.target.split(" ") if is_tag else split_labels(example.target)
        new = [label for label in labels if label not in folder.labels]
        unknown |= dict.fromkeys(new)
        count += bool(new)
    if count:
        unit, label = ("sentence", "tag") if is_tag else ("text", "label")
        subject = f"1 {unit} has" if count == 1 else f"{count:,} {unit}s have"
        names = ", ".join([*list(unknown)[:MAX_NAMES], *(["..."] if len(unknown) > MAX_NAMES else [])])
        say(f"{subject} a {label} that this model does not know, which counts as an error: {names}")


def show_scores(row: dict[str, Any]) -> None:
    """The metrics of the report, and those of each label or entity type."""
    from regard.training.report.run_data import TASKS
    from regard.training.report.sections import clock
    from regard.training.report.texts import type_rows

    task = TASKS[row["task"]]
    rows = [(each.name, each.format(row)) for each in task.metrics if each.value_in(row) is not None]
    print_table([*rows, (task.texts, f"{row['sentences']:,}"), ("time", clock(row["seconds"]))])
    if row.get("by_type"):
        tables().print()
        print_table(type_rows(row["by_type"]), ("", "count", "precision", "recall", "F1"), range(1, 5))
