"""`regard compare`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.evaluate import choose_corpora, choose_words, read
from regard.cli.terminal import (
    AsJson,
    Device,
    Threads,
    messages,
    open_model,
    print_line,
    say,
    tables,
    writable,
)
from regard.cli.translate import parse_options
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.config import Decode
    from regard.sample import Example
    from regard.tasks import Translator
    from regard.training.comparison import Compared, Comparison, Speed, Work

TIMED = 200  # sentences of a round; enough to fill batches


def compare(
    model: Annotated[
        list[Path], typer.Option("--model", "-m", help="A model folder; give it for each model.")
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(help="A corpus (.tsv, .jsonl, phrasebook), or twice: source and target file."),
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--set", help="Any field of the section decode.")
    ] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="sacreBLEU's words, as in evaluate.", show_default=False)
    ] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Rounds of timing; 0 = none.")] = 3,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help="Write a page (.html, .md) or the chart (.svg, .png)."),
    ] = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Several models on one test set: scores, also by length of source, speed and size.

    All search alike: with the first model's [decode] unless told otherwise, on its test set unless told.

    [bold]Examples[/]

      regard compare -m runs/rnn -m runs/bahdanau -m runs/transformer
      regard compare -m runs/a -m runs/b --data test.en --data test.de -o comparison.html
    """
    from regard.tasks import decode_options
    from regard.training.comparison import labels, record, write

    if len(model) < 2:
        raise UsageError('give at least two models, each with -m; "regard evaluate" scores one')
    outputs = [path for path in (pages(each) for each in output or []) if path is not None]
    names = labels(model)
    words = choose_words(model[0], tokenize)
    opened = open_alike(model, device, threads)
    examples = read(choose_corpora(model[0], data), opened[0].folder.task)
    if not examples:
        raise UsageError("the test set is empty")
    options = decode_options(opened[0].folder.decode, parse_options(option, beam, 1))
    found = measure(dict(zip(names, opened)), examples, options, words, rounds)
    written = [write(found, path) for path in outputs]  # before a reader that leaves ends this
    print_line(json.dumps(record(found), ensure_ascii=False)) if as_json else show(found)
    for paths in written:
        say("wrote " + " and ".join(map(str, paths)))


def pages(output: Path) -> Path | None:
    from regard.training.comparison import FORMATS

    path = writable(output)
    if path is None or path.suffix.lower() not in FORMATS:
        raise UsageError(f"--output {output}: the name ends in one of {', '.join(FORMATS)}")
    return path


def open_alike(paths: Sequence[Path], device: str, threads: int) -> list[Translator]:
    """The models, if all translate from and to the same languages, as far as their folders tell."""
    from regard.config import Task

    opened = [open_model([path], device, threads) for path in paths]
    for path, each in zip(paths, opened):
        if each.folder.task.name != "translate":
            raise UsageError(
                f"{path} is a model to {each.folder.task.name}; only those that translate compare"
            )
    unknown = (Task().source, Task().target)
    known = [
        (path, task.source, task.target)
        for path, task in zip(paths, (each.folder.task for each in opened))
        if (task.source, task.target) != unknown
    ]
    for path, source, target in known:
        first, *languages = known[0]
        if [source, target] != languages:
            raise UsageError(
                f"{first} translates {' to '.join(languages)} and {path} {source} to {target}: "
                "models of different languages have no common test set"
            )
    return opened


def measure(
    models: dict[str, Translator], examples: Sequence[Example], options: Decode, words: str, rounds: int
) -> Comparison:
    from regard.training import comparison
    from regard.training.report.breakdown import measure as measure_of

    first = next(iter(models.values()))
    task = next(
        (m.folder.task for m in models.values() if m.folder.task.source != "source"), first.folder.task
    )
    unit, length = measure_of(task.source)
    scored = that_fit(list(models.values()), examples)
    texts = {}
    with messages().status("") as status:
        for name, translator in models.items():
            status.update(f"{name}: translating {len(examples):,} lines")
            found = translator.translate_lines([example.source for example in examples], options)
            texts[name] = [each.text for each in found]
        status.update("measuring speed")
        speeds = timed(models, [example.source for example in examples], options, rounds)
        status.update("scoring references")
        rows = [
            compared(name, each, examples, texts[name], scored, words, length, speeds.get(name))
            for name, each in models.items()
        ]
    told = how(first, min(TIMED, len(examples)), options, rounds)
    if len(scored) < len(examples):
        told += f" The loss is that of the {len(scored):,} pairs that none of the models finds too long."
    return comparison.Comparison(task.source, task.target, len(examples), unit, told, rows)


def that_fit(models: Sequence[Translator], examples: Sequence[Example]) -> list[Example]:
    """The pairs that every model can read whole: only over the same pairs are losses to be compared."""
    fitting = list(examples)
    for model in models:
        longest = model.folder.config.max_length - 1  # one place is for the end
        sources = model.folder.source.encode_batch([example.source for example in fitting])
        targets = model.folder.target.encode_batch([example.target for example in fitting])
        fitting = [
            example
            for example, source, target in zip(fitting, sources, targets)
            if max(len(source), len(target)) <= longest
        ]
    if not fitting:
        raise UsageError("every pair of the test set is too long for one of the models")
    return fitting


def timed(
    models: dict[str, Translator], sources: Sequence[str], options: Decode, rounds: int
) -> dict[str, Speed]:
    """The speed of each on some sentences from all over the test set; all have translated it before."""
    from regard.training.comparison import race

    count = min(TIMED, len(sources))
    some = [sources[place * len(sources) // count] for place in range(count)]

    def runner(translator: Translator) -> Callable[[], Work]:
        def run() -> Work:
            found = translator.translate_lines(some, options)
            return len(found), sum(len(each.candidates[0].tokens) for each in found)

        return run

    return race({name: runner(translator) for name, translator in models.items()}, rounds)


def how(model: Translator, count: int, options: Decode, rounds: int) -> str:
    import torch

    if not rounds:
        return f"All searched with beam {options.beam}; speed was not measured."
    place = f"{model.device}, threads: {torch.get_num_threads()}"
    return (
        f"All searched with beam {options.beam}. Speed is that of translating {count:,} of the sentences: "
        f"target tokens of the best hypotheses, the median of the rounds (lowest to highest); rounds: "
        f"{rounds}, in each the models one after the other in an order drawn anew; {place}."
    )


def compared(
    name: str,
    translator: Translator,
    examples: Sequence[Example],
    texts: Sequence[str],
    scored: Sequence[Example],
    words: str,
    length: Callable[[str], int],
    speed: Speed | None,
) -> Compared:
    from regard.metrics.bleu import text_scores
    from regard.training.comparison import Compared
    from regard.training.report.breakdown import by_length

    folder = translator.folder
    log_p = translator.score([pair.source for pair in scored], [pair.target for pair in scored])
    nats = -math.fsum(math.fsum(row) for row in log_p)
    written = sum(len(pair.target.encode("utf-8")) for pair in scored)
    rows = [
        {"source": pair.source, "reference": pair.target, "output": text}
        for pair, text in zip(examples, texts)
    ]
    return Compared(
        label=name,
        family=folder.config.family,
        parameters=folder.parameters,
        updates=updates(folder.path),
        vocabulary=folder.target.fingerprint,
        scores=text_scores(texts, [pair.target for pair in examples], words),
        loss=nats / max(1, sum(len(row) for row in log_p)),
        bits_per_byte=nats / math.log(2) / max(1, written),
        lengths=by_length(rows, length, words),
        speed=speed,
    )


def updates(path: Path) -> int | None:
    """How long a model was trained: as its run tells, or the number of a checkpoint."""
    from regard.training.progress import FILE, read_metrics

    if path.resolve().parent.name == "checkpoints":
        digits = path.resolve().name.removeprefix("step-")
        return int(digits) if digits.isdecimal() else None
    runs = [record for record in read_metrics(path / FILE) if record.get("kind") == "run"]
    step = runs[-1].get("step") if runs else None
    return step if isinstance(step, int) else None


def show(found: Comparison) -> None:
    """The page's tables and remarks; curves are for files."""
    from rich.table import Table as Grid
    from rich.text import Text

    from regard.training.comparison import sections
    from regard.training.report.blocks import Code, Paragraph, Table, printable

    console = tables()
    for block in (block for section in sections(found) for block in section.blocks):
        match block:
            case Table(head, rows):
                grid = Grid(box=None, pad_edge=False, header_style="bold")
                for place, name in enumerate(head):
                    grid.add_column(Text(printable(name)), justify="left" if not place else "right")
                for row in rows:
                    grid.add_row(*(Text(printable(cell)) for cell in row))
                console.print(grid)
            case Paragraph(text):
                console.print(Text(printable(text), style="dim"))
            case Code(lines):
                console.print(Text("\n".join(lines), style="dim"))
            case _:
                continue
        console.print()
