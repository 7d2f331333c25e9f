"""`regard evaluate` and `regard compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    from regard.evaluation import EvaluationResult
    from regard.evaluation.comparison import Comparison


def evaluate(
    model: Models,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A corpus in a format that training reads; pairs: also a source and a target file."
        ),
    ] = None,
    modify: Annotated[
        list[str] | None,
        typer.Option(
            help="Score the test set once more with this modifier of texts, as in data.modifiers: upper, "
            "typos=0.1, all; repeat it for each."
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
      regard evaluate -m runs/demo --modify upper --modify typos=0.1
    """
    from regard.evaluation import evaluate as score_model

    output = writable(output)
    with messages().status("scoring"):
        result = score_model(
            model,
            data or None,
            modify=modify or (),
            tokenize=tokenize,
            output=output,
            device=device,
            threads=thread_count(threads),
            precision=precision,
            log=say,
            **parse_options(option, beam),
        )
    print_line(json_line(result.to_dict())) if as_json else print_scores(result)


def print_scores(result: EvaluationResult) -> None:
    """The metrics of the report, and those of each label, entity type or phenomenon."""
    from rich.text import Text

    from regard.training.report import clock
    from regard.training.report.robustness import robustness_table
    from regard.training.report.run_data import TASKS
    from regard.training.report.texts import type_rows

    task, scores = TASKS[result.task], dict(result.scores)
    rows = [
        (metric.name, metric.format(scores), str(scores.get(f"{metric.key}_signature", "")))
        for metric in task.metrics
        if metric.value_in(scores) is not None
    ]
    rows += [(task.texts, f"{result.sentences:,}", ""), ("time", clock(result.seconds), "")]
    rows.append(("computed in", result.precision, ""))
    for name, numbers in scores.get("phenomena", {}).items():
        rows.append((name, f"{100 * numbers['exact']:.1f} %", f"exact of {numbers['sentences']:.0f}"))
    print_table([(name, value, Text(note, style="dim")) for name, value, note in rows])
    if scores.get("by_type"):
        tables().print()
        print_table(type_rows(scores["by_type"]), ("", "count", "precision", "recall", "F1"), range(1, 5))
    if result.modified:
        head, lines = robustness_table(result.task, result.modified)
        tables().print()
        print_table(lines, head, range(1, len(head)))


# --- compare --------------------------------------------------------------------------------------------


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
    precision: Precision = "float32",
) -> None:
    """Compare models on one test set: scores, also by length of the source, speed and size.

    All use the [decode] section and the test set of the first model, and float32, unless options name others.

    [bold]Examples[/]

      regard compare -m runs/rnn -m runs/bahdanau -m runs/transformer
      regard compare -m runs/a -m runs/b --data test.en --data test.de -o comparison.html
    """
    from regard.evaluation.comparison import compare as compare_folders

    outputs = [output_path(path) for path in output or []]
    with messages().status("") as status:
        comparison = compare_folders(
            model,
            data or None,
            tokenize=tokenize,
            rounds=rounds,
            device=device,
            threads=thread_count(threads),
            precision=precision,
            status=status.update,
            **parse_options(option, beam),
        )
    files = [comparison.write(path) for path in outputs]  # first: a closed pipe ends the command
    print_line(json_line(comparison.to_dict())) if as_json else print_comparison(comparison)
    for paths in files:
        say("wrote " + " and ".join(map(str, paths)))


def output_path(output: Path) -> Path:
    from regard.evaluation.comparison import FORMATS

    path = writable(output)
    if path is None or path.suffix.lower() not in FORMATS:
        raise UsageError(
            f"--output {output}: the name ends in one of {', '.join(FORMATS)}", code="E_COMPARE_OUTPUT"
        )
    return path


def print_comparison(comparison: Comparison) -> None:
    """The tables and remarks of the page."""
    from rich.text import Text

    from regard.evaluation.comparison import comparison_sections
    from regard.training.report.page import printable

    console = tables()
    for block in (block for _, blocks in comparison_sections(comparison) for block in blocks):
        if isinstance(block, str) or block["kind"] == "code":
            lines = [block] if isinstance(block, str) else block["lines"]
            console.print(Text("\n".join(map(printable, lines)), style="dim"))
        elif block["kind"] == "table":
            rows = [[printable(cell) for cell in row] for row in block["rows"]]
            print_table(rows, list(map(printable, block["head"])), range(1, len(block["head"])))
        else:
            continue
        console.print()
