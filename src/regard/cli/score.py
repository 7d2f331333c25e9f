"""`regard score`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import (
    AT_ONCE,
    AsJson,
    Device,
    Models,
    Threads,
    portions,
    print_line,
    read_stdin,
    say,
    thread_count,
)
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Translator
    from regard.tasks.generator import Generator

Files = Annotated[
    list[Path],
    typer.Argument(help="Source and target, or a .tsv of both; texts for a language model. - is stdin."),
]
Document = Annotated[
    bool, typer.Option("--document", help="Language models: a file is one text, not one a line.")
]
Stride = Annotated[
    int | None,
    typer.Option(
        min=1, help="Language models: step of the windows over a long text; default: half a window."
    ),
]
NoEnd = Annotated[bool, typer.Option("--no-end", help="Language models: do not score the end token.")]
Total = Annotated[bool, typer.Option("--total", help="Language models: print only the totals of all texts.")]


def score(
    model: Models,
    files: Files,
    document: Document = False,
    stride: Stride = None,
    no_end: NoEnd = False,
    total: Total = False,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Score given translations or texts: log-probability of each line.

    For language models [bold]--json[/] adds tokens, bytes, perplexity and
    bits_per_byte. A long text is read in overlapping windows: each token is
    scored once, with at least (window - stride) tokens of context.
    The totals of all lines are printed on stderr, or with --total alone.

    [bold]Examples[/]

      regard score -m runs/demo valid.en valid.de
      regard score -m runs/gpt --document --total book.txt
    """
    from regard.tasks import Translator, load
    from regard.tasks.generator import Generator

    task = load(model, device, thread_count(threads), "float32")
    only_language = {"--document": document, "--stride": stride, "--no-end": no_end, "--total": total}
    if isinstance(task, Generator):
        score_texts(task, files, document, stride, not no_end, total, as_json)
        return
    if not isinstance(task, Translator):
        name = task.folder.task.name
        raise UsageError(f"{model[0]}: a {name} model cannot score texts; see regard {name}")
    if wrong := [name for name, value in only_language.items() if value]:
        raise UsageError(f"{wrong[0]} is for language models; this one translates")
    if len(files) > 2:
        raise UsageError(f"{files[2]}: translations are scored from two files, source and target")
    score_pairs(task, files, as_json)


def score_pairs(translator: Translator, files: list[Path], as_json: bool) -> None:
    from regard.data.corpora import read_rows
    from regard.data.readers.text import split_pairs
    from regard.data.report import StrictReport

    if str(files[0]) == "-":
        if len(files) > 1:
            raise UsageError(f"{files[1]}: from stdin come lines with a tab, source and target; give no file")
        pairs = split_pairs(read_stdin(), "stdin", StrictReport())
    else:
        corpus = str(files[0]) if len(files) == 1 else (str(files[0]), str(files[1]))
        pairs = read_rows(corpus, translator.folder.task, "test")
    total, count = 0.0, 0
    for portion in portions(pairs, AT_ONCE):
        rows = translator.score([row[1] for row in portion], [row[2] for row in portion])
        for row in rows:
            log_p = math.fsum(row)
            total, count = total + log_p, count + len(row)
            print_line(json.dumps({"log_probability": log_p, "pieces": row}) if as_json else f"{log_p:.4f}")
    if count:
        mean = total / count
        say(f"{count:,} tokens, log p {mean:.4f} per token, perplexity {math.exp(-mean):.4f}")


def score_texts(
    generator: Generator,
    files: list[Path],
    document: bool,
    stride: int | None,
    end: bool,
    total: bool,
    as_json: bool,
) -> None:
    from regard.tasks.generator import TextScore, total_score

    everything: list[TextScore] = []
    for portion in portions(read_texts(files, document), 1 if document else AT_ONCE):
        for each in generator.score(portion, stride, end):
            everything.append(each)
            if not total:
                text = f"{each.numbers['log_probability']:.4f}"
                print_line(json.dumps(each.numbers | {"pieces": each.pieces}) if as_json else text)
    if not everything:
        raise UsageError(f"{', '.join(str(each) for each in files)}: no text to score")
    numbers = total_score(everything)
    summary = (
        f"{numbers['tokens']:,} tokens, {numbers['bytes']:,} bytes, "
        f"perplexity {numbers['perplexity']:.4f}, {numbers['bits_per_byte']:.4f} bits per byte"
    )
    if total:
        print_line(json.dumps(numbers) if as_json else summary)
    else:
        say(summary)


def read_texts(files: Iterable[Path], document: bool) -> Iterator[str]:
    """The lines of all files, or each file as a whole without its last newline.

    Each object of a .jsonl or .parquet is one text.
    """
    from regard.data import iter_examples
    from regard.data.files import format_suffix, lines
    from regard.data.readers.tables import TABLES

    for path in files:
        suffix = format_suffix(path)
        if str(path) != "-" and suffix in TABLES:
            yield from (example.source for example in iter_examples(path, "generate"))
            continue
        content = read_stdin() if str(path) == "-" else lines(path)
        texts = ["\n".join(content)] if document else content
        yield from (text for text in texts if text or not document)
