"""`regard evaluate`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from regard.cli.judge import judge, show_scores
from regard.cli.terminal import (
    AsJson,
    Device,
    Models,
    Precision,
    Threads,
    messages,
    one_line,
    print_line,
    say,
    tables,
    thread_count,
    writable,
)
from regard.cli.translate import parse_options
from regard.errors import UsageError, near_miss

if TYPE_CHECKING:
    from regard.config import Corpora, Task
    from regard.sample import Example
    from regard.tasks import Translator

PHRASEBOOK = "phrasebook"


def evaluate(
    model: Models,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A corpus in a form that the task can be trained with; pairs: also source and target file."
        ),
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="translate: hypotheses kept; 1 is greedy.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--set", help="translate: any field of the section decode.")
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="translate: how sacreBLEU cuts text into words: 13a, none (it is tokenised already), intl, "
            "char, zh; else as the run did.",
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
    """Score a model on a test set, that of its run or another, by what its task is judged by.

    translate: BLEU and chrF by sacreBLEU, lines that are exactly right; classify: accuracy and F1;
    tag: F1 of whole entities; answer: exact match and F1 as SQuAD counts them; generate: perplexity
    and bits per byte; fill: hidden pieces that are guessed.

    [bold]Examples[/]

      regard evaluate -m runs/demo
      regard evaluate -m runs/demo --data test.en --data test.de --beam 5
      regard evaluate -m runs/demo --data test.tok.en --data test.tok.de --tokenize none
      regard evaluate -m runs/names --data test.conll --json
    """
    from regard.tasks import Translator, load

    output = writable(output)
    if tokenize is not None:
        check_words(tokenize)
    opened = load(model, device, thread_count(threads), precision)
    corpora = choose_corpora(model[0], data)
    if isinstance(opened, Translator):
        options = parse_options(option, beam, 1)
        row = score_translations(opened, corpora, options, choose_words(model[0], tokenize), output)
        print_line(json.dumps(row, ensure_ascii=False)) if as_json else show(row)
        return
    if beam is not None or option or tokenize is not None:
        raise UsageError(
            f"--beam, --set and --tokenize are for models that translate; this can {opened.folder.task.name}"
        )
    row = judge(opened.folder, corpora, output)
    print_line(json.dumps(row, ensure_ascii=False)) if as_json else show_scores(row)


def score_translations(
    translator: Translator, corpora: Corpora, given: dict[str, object], words: str, output: Path | None
) -> dict[str, object]:
    from regard.metrics.bleu import looks_tokenized, text_scores
    from regard.tasks import decode_options

    examples = read(corpora, translator.folder.task)
    options = decode_options(translator.folder.decode, given)
    began = time.perf_counter()
    with messages().status(f"translating {len(examples):,} lines"):
        found = translator.translate_lines([example.source for example in examples], options)
    seconds = time.perf_counter() - began
    texts = [each.text for each in found]
    right = [text == example.target for text, example in zip(texts, examples)]
    references = [example.target for example in examples]
    scores = text_scores(texts, references, words)
    if words not in ("none", "char") and looks_tokenized(references):
        say("the references look tokenised already; scores published for such text come from --tokenize none")
    row: dict[str, object] = {
        "sentences": len(texts),
        "bleu": scores.bleu,
        "bleu_signature": scores.bleu_signature,
        "chrf": scores.chrf,
        "chrf_signature": scores.chrf_signature,
        "exact": sum(right) / len(right),
        "seconds": seconds,
    }
    if isinstance(corpora, str) and corpora.split(":")[0] == PHRASEBOOK:
        row["phenomena"] = by_phenomenon(right)
    if output is not None:
        from regard.storage import write_text

        write_text(output, "".join(f"{one_line(text)}\n" for text in texts))
    return row


def choose_corpora(model: Path, data: list[str] | None) -> Corpora:
    """What the user names, else the test set of the run."""
    from regard.config import load_config
    from regard.storage.folder import run_of

    if data:
        if len(data) > 2:
            raise UsageError("--data: give one corpus, or a source file and a target file")
        return data[0] if len(data) == 1 else list(data)
    stored = (run_of(model) or model) / "run.toml"
    run = load_config(stored) if stored.is_file() else None
    if run is None or run.data.test is None:
        raise UsageError(f"{model} names no test set; give one with --data")
    return run.data.test


def check_words(tokenize: str) -> None:
    from regard.config.schema import Tokenization

    known = get_args(Tokenization)
    if tokenize not in known:
        near = near_miss(tokenize, known)
        raise UsageError(f'--tokenize "{tokenize}" is not one of {", ".join(known)}{near}')


def choose_words(model: Path, tokenize: str | None) -> str:
    """sacreBLEU's tokenisation: what the user names, else what the run used, if it can be had."""
    from regard.config import Train, load_config
    from regard.metrics.bleu import bleu_tokenization, make_bleu
    from regard.storage.folder import run_of

    if tokenize is not None:
        check_words(tokenize)
    stored = (run_of(model) or model) / "run.toml"
    run = load_config(stored) if stored.is_file() else None
    choice = tokenize or (run.train.bleu_tokenize if run else Train().bleu_tokenize)
    words = bleu_tokenization(choice, run.task.target if run else "")
    make_bleu(words)
    return words


def read(corpora: Corpora, task: Task) -> list[Example]:
    from regard.data import read_examples

    return read_examples(corpora, task, "test")


def by_phenomenon(right: list[bool]) -> dict[str, dict[str, float]]:
    """Exactness on the phrasebook's sentences with each phenomenon of grammar."""
    from regard.data.phrasebook import PHENOMENA, phrases

    marked = list(phrases("test", len(right)))
    table = {}
    for phenomenon in PHENOMENA:
        own = [ok for ok, phrase in zip(right, marked) if phenomenon in phrase.phenomena]
        table[phenomenon] = {"sentences": len(own), "exact": sum(own) / max(1, len(own))}
    return table


def show(row: dict[str, object]) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("BLEU", f"{row['bleu']:.2f}", f"[dim]{row['bleu_signature']}")
    table.add_row("chrF", f"{row['chrf']:.2f}", f"[dim]{row['chrf_signature']}")
    table.add_row("exact", f"{100 * float(str(row['exact'])):.1f} %", f"[dim]of {row['sentences']} sentences")
    table.add_row("time", f"{row['seconds']:.1f} s", "")
    phenomena = row.get("phenomena")
    if isinstance(phenomena, dict):
        table.add_row("", "", "")
        for name, facts in phenomena.items():
            table.add_row(name, f"{100 * facts['exact']:.1f} %", f"[dim]of {facts['sentences']:.0f}")
    tables().print(table)
