"""Ablation: the rows of the paper's Table 3 on Multi30k, one change each, all with the same budget.

REGARD_DATA=folder python recipes/ablation.py [--runs runs/ablation] [--steps 1500] [--seeds 1 2 3]
    [--only base heads-1 ...] [--set model.norm="pre" ...] [--list]

The base is recipes/multi30k-transformer.toml (4 + 4 layers, width 128, 4 heads of 32 channels, feed-forward
256). A row changes a setting by the same factor as its row of the table: the paper's base has 8 heads and its
row 4; this base has 4 and its row 2. All rows have the same data, batches, updates and seeds; the model size,
and so the time, differs as in the paper.

The script can be stopped at any time; the same command resumes it and reads finished runs from their folders.
After each row it writes ablation.md, ablation.html and ablation.svg beside the runs.

Expected: docs/ablation.md, with --steps 700 --set model.norm="pre" --set train.tokens_per_batch=2048 --set
train.lr=3e-3, which need few updates: base 25.1 BLEU, 4 to 6 minutes a row on one core (AVX512-BF16).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from regard.config import Config, load_config
from regard.storage import write_text
from regard.training import train
from regard.training.report.page import (
    Block,
    Chart,
    chart,
    charts,
    curve,
    html_page,
    markdown_page,
    svg_file,
    table,
)

RECIPE = Path(__file__).with_name("multi30k-transformer.toml")
PICTURE = "ablation.svg"


@dataclass(frozen=True)
class Row:
    """A row of the table: its group in the paper, the changes here, the change in the paper and its BLEU."""

    group: str
    changes: tuple[str, ...]
    paper: str
    bleu: float


ROWS = {
    "base": Row("", (), "base: 8 heads, d_k 64, 6 layers, d 512, d_ff 2048", 25.8),
    "heads-1": Row("A", ("model.heads=1", "model.head_width=128"), "1 head, d_k 512", 24.9),
    "heads-2": Row("A", ("model.heads=2", "model.head_width=64"), "4 heads, d_k 128", 25.5),
    "heads-8": Row("A", ("model.heads=8", "model.head_width=16"), "16 heads, d_k 32", 25.8),
    "heads-16": Row("A", ("model.heads=16", "model.head_width=8"), "32 heads, d_k 16", 25.4),
    "key-8": Row("B", ("model.head_width=8",), "d_k 16", 25.1),
    "key-16": Row("B", ("model.head_width=16",), "d_k 32", 25.4),
    "layers-1": Row("C", ("model.layers=1",), "2 layers", 23.7),
    "layers-3": Row("C", ("model.layers=3",), "4 layers", 25.3),
    "layers-6": Row("C", ("model.layers=6",), "8 layers", 25.5),
    "width-64": Row("C", ("model.width=64",), "d 256, d_k 32", 24.5),
    "width-256": Row("C", ("model.width=256",), "d 1024, d_k 128", 26.0),
    "feed-forward-128": Row("C", ("model.feed_forward=128",), "d_ff 1024", 25.4),
    "feed-forward-512": Row("C", ("model.feed_forward=512",), "d_ff 4096", 26.2),
    "dropout-0": Row("D", ("model.dropout=0.0",), "dropout 0.0", 24.6),
    "dropout-0.3": Row("D", ("model.dropout=0.3",), "dropout 0.2, from 0.1", 25.5),
    "smoothing-0": Row("D", ("train.label_smoothing=0.0",), "label smoothing 0.0", 25.3),
    "smoothing-0.2": Row("D", ("train.label_smoothing=0.2",), "label smoothing 0.2", 25.7),
    "learned-positions": Row("E", ('model.positions="learned"',), "learned positions", 25.7),
}


@dataclass(frozen=True)
class Result:
    """The figures of one run."""

    bleu: float  # of the test set
    perplexity: float  # per token of the validation set; comparable, since all rows have one vocabulary
    parameters: int
    seconds: float


def config_of(name: str, steps: int, seed: int, common: Sequence[str] = ()) -> Config:
    budget = (f"train.steps={steps}", f"train.warmup={max(1, steps * 4 // 15)}", f"train.seed={seed}")
    return load_config(RECIPE, [*budget, *common, *ROWS[name].changes])


def read_result(folder: Path) -> Result | None:
    """The figures of a finished run; None if it has not finished."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return None
    records: dict[str, dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # a killed run can leave a partial line
            continue
        records[record["kind"]] = record
    if not {"run", "test", "final-valid"} <= set(records):
        return None
    run, loss = records["run"], records["final-valid"]["loss"]
    return Result(records["test"]["bleu"], math.exp(loss), int(run["parameters"]), run["seconds"])


def result_table(results: Mapping[str, Sequence[Result]]) -> Block:
    head = ["row", "change here", "change in the paper", "BLEU", "least to most", "perplexity", "parameters"]
    rows = []
    for name, runs in results.items():
        scores = [each.bleu for each in runs]
        row = ROWS[name]
        rows.append(
            [
                f"{row.group} {name}".strip(),
                ", ".join(change.split(".", 1)[1] for change in row.changes) or "none",
                f"{row.paper}: {row.bleu}",
                f"{mean(scores):.2f}",
                f"{min(scores):.2f} to {max(scores):.2f}" if len(scores) > 1 else "one seed",
                f"{mean(each.perplexity for each in runs):.2f}",
                f"{runs[0].parameters:,}",
            ]
        )
    return table(head, rows, text_columns=3)


def result_chart(results: Mapping[str, Sequence[Result]]) -> Chart:
    names = list(results)
    bleu = [mean(each.bleu for each in results[name]) for name in names]
    base = bleu[names.index("base")] if "base" in results else bleu[0]
    here = [(float(x), value - base) for x, value in enumerate(bleu)]
    paper = [(float(x), ROWS[name].bleu - ROWS["base"].bleu) for x, name in enumerate(names)]
    curves = [curve("Multi30k, here", here, dots=True), curve("WMT newstest2013, paper", paper, dots=True)]
    return chart("BLEU less that of the base", curves, over="row", names=names)


def write(results: Mapping[str, Sequence[Result]], folder: Path, steps: int, seeds: Sequence[int]) -> None:
    seconds = sum(each.seconds for runs in results.values() for each in runs)
    text = (
        f"{len(results)} of {len(ROWS)} rows, {steps:,} updates each, seeds {', '.join(map(str, seeds))}; "
        f"{seconds / 60:.0f} minutes of training. Test set: test_2016_flickr, tokenised; beam 5."
    )
    drawing = result_chart(results)
    sections = [("", [text, result_table(results), charts([drawing], PICTURE)])]
    title = "Table 3 of the paper, on Multi30k"
    write_text(folder / PICTURE, svg_file(drawing))
    write_text(folder / "ablation.html", html_page(title, sections))
    write_text(folder / "ablation.md", markdown_page(title, sections))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    options.add_argument("--steps", type=int, default=1500)
    options.add_argument("--seeds", type=int, nargs="+", default=[1])
    options.add_argument("--set", dest="common", action="append", default=[], help="a field of all rows")
    options.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS))
    options.add_argument("--list", action="store_true", help="only show the rows")
    arguments = options.parse_args()
    if arguments.list:
        for name, row in ROWS.items():
            print(f"{row.group:1} {name:18} {' '.join(row.changes):40} {row.paper}: {row.bleu}")
        return
    results: dict[str, list[Result]] = {}
    for seed in arguments.seeds:  # all rows with one seed first, so that there is a chart early
        for name in arguments.only:
            folder = arguments.runs / f"{name}-{arguments.steps}-seed-{seed}"
            result = read_result(folder)
            if result is None:
                config = config_of(name, arguments.steps, seed, arguments.common)
                if not train(config, folder, resume=(folder / "run.toml").is_file()).finished:
                    sys.exit(130)  # interrupted; the same command resumes
                result = read_result(folder)
            if result is None:
                sys.exit(f"{folder}: the run ended without a record of its scores")
            results.setdefault(name, []).append(result)
            print(
                f"{name} seed {seed}: BLEU {result.bleu:.2f}, {result.seconds / 60:.1f} minutes", flush=True
            )
            write(results, arguments.runs, arguments.steps, arguments.seeds)


if __name__ == "__main__":
    main()
