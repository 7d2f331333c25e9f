"""`regard compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.evaluate import choose_corpora, choose_tokenization, read_test_set
from regard.cli.terminal import (
    AsJson,
    Beam,
    Device,
    Settings,
    Threads,
    json_line,
    messages,
    parse_options,
    print_line,
    print_table,
    say,
    tables,
    thread_count,
    writable,
)
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Translator
    from regard.training.progress import Record


def compare(
    model: Annotated[
        list[Path], typer.Option("--model", "-m", help="A model folder; repeat it for each model.")
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(help="A corpus (.tsv, .jsonl, phrasebook), or twice: source and target file."),
    ] = None,
    beam: Beam = None,
    option: Settings = None,
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
    """Compare models on one test set: scores, also by length of the source, speed and size.

    All use the [decode] section and the test set of the first model, unless options name others.

    [bold]Examples[/]

      regard compare -m runs/rnn -m runs/bahdanau -m runs/transformer
      regard compare -m runs/a -m runs/b --data test.en --data test.de -o comparison.html
    """
    from regard.tasks import decode_options
    from regard.training.comparison import compare_models, model_names, public, write_comparison

    if len(model) < 2:
        raise UsageError('give at least two models, each with -m; "regard evaluate" scores one')
    outputs = [output_path(path) for path in output or []]
    names = model_names(model)
    tokenize = choose_tokenization(model[0], tokenize)
    translators = open_models(model, device, threads)
    examples = read_test_set(choose_corpora(model[0], data), translators[0].folder.task)
    if not examples:
        raise UsageError("the test set is empty")
    options = decode_options(translators[0].folder.decode, parse_options(option, beam))
    with messages().status("") as status:
        models = dict(zip(names, translators))
        comparison = compare_models(models, examples, options, tokenize, rounds, status.update)
    files = [write_comparison(comparison, path) for path in outputs]  # first: a closed pipe ends the command
    print_line(json_line(public(comparison))) if as_json else show(comparison)
    for paths in files:
        say("wrote " + " and ".join(map(str, paths)))


def output_path(output: Path) -> Path:
    from regard.training.comparison import FORMATS

    path = writable(output)
    if path is None or path.suffix.lower() not in FORMATS:
        raise UsageError(f"--output {output}: the name ends in one of {', '.join(FORMATS)}")
    return path


def open_models(paths: Sequence[Path], device: str, threads: int) -> list[Translator]:
    """The models, which must translate between the same languages, where their folders name them."""
    from regard.config import Task
    from regard.tasks import Translator

    translators = [Translator.load(path, device, "float32", thread_count(threads)) for path in paths]
    tasks = [each.folder.task for each in translators]
    for path, task in zip(paths, tasks):
        if task.name != "translate":
            raise UsageError(f"{path} is a {task.name} model; only translation models can be compared")
    unnamed = Task().source, Task().target
    languages = [
        (path, task.source, task.target)
        for path, task in zip(paths, tasks)
        if (task.source, task.target) != unnamed
    ]
    for path, source, target in languages:
        first, first_source, first_target = languages[0]
        if (source, target) != (first_source, first_target):
            raise UsageError(
                f"{first} translates {first_source} to {first_target} and {path} {source} to {target}: "
                "models of different languages have no common test set"
            )
    return translators


def show(comparison: Record) -> None:
    """The tables and remarks of the page."""
    from rich.text import Text

    from regard.training.comparison import comparison_sections
    from regard.training.report.charts import printable

    console = tables()
    for block in (block for _, blocks in comparison_sections(comparison) for block in blocks):
        if block["kind"] == "table":
            rows = [[printable(cell) for cell in row] for row in block["rows"]]
            print_table(rows, list(map(printable, block["head"])), range(1, len(block["head"])))
        elif block["kind"] in ("paragraph", "code"):
            text = block.get("text") or "\n".join(block["lines"])
            console.print(Text("\n".join(map(printable, text.split("\n"))), style="dim"))
        else:
            continue
        console.print()
