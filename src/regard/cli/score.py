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
    typer.Argument(help="Source and target, or a .tsv of both; for a language model texts. - is stdin."),
]
Document = Annotated[
    bool, typer.Option("--document", help="Language models: a file is one text, not one a line.")
]
Stride = Annotated[
    int | None,
    typer.Option(min=1, help="Language models: how far windows move over a long text; half a window."),
]
NoEnd = Annotated[
    bool, typer.Option("--no-end", help="Language models: do not count that a text ends where it does.")
]
Total = Annotated[
    bool, typer.Option("--total", help="Language models: print the numbers of all texts together, only.")
]


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
    """How probable the model finds given translations, or texts: log-probability of each line.

    A language model tells with [bold]--json[/] also tokens, bytes, perplexity and
    bits_per_byte. It reads a long text in windows that overlap: each piece
    counts once, with at least the window without the stride before it.
    The numbers of all lines together come in the end, on stderr, or alone
    with --total.

    [bold]Examples[/]

      regard score -m runs/demo valid.en valid.de
      regard score -m runs/gpt --document --total book.txt
    """
    from regard.tasks import Translator, load
    from regard.tasks.generator import Generator

    found = load(model, device, thread_count(threads), "float32")
    only_language = {"--document": document, "--stride": stride, "--no-end": no_end, "--total": total}
    if isinstance(found, Generator):
        score_texts(found, files, document, stride, not no_end, total, as_json)
        return
    if not isinstance(found, Translator):
        task = found.folder.task.name
        raise UsageError(f"{model[0]}: a model to {task} gives no scores of texts; see regard {task}")
    if wrong := [name for name, value in only_language.items() if value]:
        raise UsageError(f"{wrong[0]} is for language models; this one translates")
    if len(files) > 2:
        raise UsageError(f"{files[2]}: translations are scored from two files, source and target")
    score_pairs(found, files, as_json)


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
    total, pieces = 0.0, 0
    for portion in portions(pairs, AT_ONCE):
        rows = translator.score([row[1] for row in portion], [row[2] for row in portion])
        for row in rows:
            own = math.fsum(row)
            total, pieces = total + own, pieces + len(row)
            print_line(json.dumps({"log_probability": own, "pieces": row}) if as_json else f"{own:.4f}")
    if pieces:
        mean = total / pieces
        say(f"{pieces:,} pieces, log p {mean:.4f} a piece, perplexity {math.exp(-mean):.4f}")


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
        for found in generator.score(portion, stride, end):
            everything.append(found)
            if not total:
                own = found.numbers
                row = (
                    json.dumps(own | {"pieces": found.pieces}) if as_json else f"{own['log_probability']:.4f}"
                )
                print_line(row)
    if not everything:
        raise UsageError(f"{', '.join(str(each) for each in files)}: no text to score")
    numbers = total_score(everything)
    told = (
        f"{numbers['tokens']:,} tokens, {numbers['bytes']:,} bytes, "
        f"perplexity {numbers['perplexity']:.4f}, {numbers['bits_per_byte']:.4f} bits per byte"
    )
    if total:
        print_line(json.dumps(numbers) if as_json else told)
    else:
        say(told)


def read_texts(files: Iterable[Path], document: bool) -> Iterator[str]:
    """The lines of all files, or each file as a whole, without the end of its last line.

    An object of a .jsonl or .parquet is a text of its own.
    """
    from regard.data.files import format_suffix, lines
    from regard.data.readers import TABLES, read_objects, string_field
    from regard.data.report import StrictReport

    for path in files:
        suffix = format_suffix(path)
        if str(path) != "-" and suffix in TABLES:
            rows = read_objects(path, suffix, StrictReport(), lambda value: (string_field(value, "text"), ""))
            yield from (text for _, text, _ in rows)
            continue
        own = read_stdin() if str(path) == "-" else lines(path)
        whole = ["\n".join(own)] if document else own
        yield from (text for text in whole if text or not document)
