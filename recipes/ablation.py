"""The rows of the paper's Table 3 on Multi30k: one change each, all trained to the same budget.

REGARD_DATA=folder python recipes/ablation.py [--runs runs/ablation] [--steps 1500] [--seeds 1 2 3]
    [--only base heads-1 ...] [--set model.norm="pre" ...] [--list]

The base is recipes/multi30k-transformer.toml (4 + 4 layers, width 128, 4 heads of 32 channels, feed-forward
256). A row changes what its row of the table changes, by the same factor: the paper's base has 8 heads and
its row 4, half of them; ours has 4 and 2. Every row has the same data, batches, updates and seeds; the model
size, and so the time, differs as in the paper.

It can be stopped at any time: the same command goes on, and what is done is read from its folder. In the end,
and after each row, it writes ablation.md, ablation.html and ablation.svg beside the runs.

Expected: docs/ablation.md, with --steps 700 --set model.norm="pre" --set train.tokens_per_batch=2048 --set
train.lr=3e-3, which learn from few updates: base 25.1 BLEU, 4 to 6 minutes a row on one core (AVX512-BF16).
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
from regard.training.report.blocks import Chart, Charts, Paragraph, Section, Series, Table
from regard.training.report.drawing import chart_file
from regard.training.report.html import html_page
from regard.training.report.markdown import markdown_page

RECIPE = Path(__file__).with_name("multi30k-transformer.toml")
PICTURE = "ablation.svg"


@dataclass(frozen=True)
class Row:
    """One line of the table: its group in the paper, what is changed, the paper's own change and BLEU."""

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
class Reached:
    """What one run came to."""

    bleu: float  # of the test set
    perplexity: float  # a piece, of the validation set; comparable, since all rows have one vocabulary
    parameters: int
    seconds: float


def config_of(name: str, steps: int, seed: int, common: Sequence[str] = ()) -> Config:
    budget = (f"train.steps={steps}", f"train.warmup={max(1, steps * 4 // 15)}", f"train.seed={seed}")
    return load_config(RECIPE, [*budget, *common, *ROWS[name].changes])


def reached(folder: Path) -> Reached | None:
    """The figures of a run that has ended."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return None
    found: dict[str, dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # a kill can leave half a line
            continue
        found[record["kind"]] = record
    if not {"run", "test", "final-valid"} <= set(found):
        return None
    run, loss = found["run"], found["final-valid"]["loss"]
    return Reached(found["test"]["bleu"], math.exp(loss), int(run["parameters"]), run["seconds"])


def table(done: Mapping[str, Sequence[Reached]]) -> Table:
    head = ["row", "change here", "change in the paper", "BLEU", "least to most", "perplexity", "parameters"]
    rows = []
    for name, own in done.items():
        scores = [each.bleu for each in own]
        row = ROWS[name]
        rows.append(
            [
                f"{row.group} {name}".strip(),
                ", ".join(change.split(".", 1)[1] for change in row.changes) or "none",
                f"{row.paper}: {row.bleu}",
                f"{mean(scores):.2f}",
                f"{min(scores):.2f} to {max(scores):.2f}" if len(scores) > 1 else "one seed",
                f"{mean(each.perplexity for each in own):.2f}",
                f"{own[0].parameters:,}",
            ]
        )
    return Table(head, rows, text_columns=3)


def chart(done: Mapping[str, Sequence[Reached]]) -> Chart:
    names = list(done)
    ours = [(float(place), mean(each.bleu for each in done[name])) for place, name in enumerate(names)]
    base = mean(each.bleu for each in done["base"]) if "base" in done else ours[0][1]
    less = [(x, y - base) for x, y in ours]
    paper = [(float(place), ROWS[name].bleu - ROWS["base"].bleu) for place, name in enumerate(names)]
    series = [Series("Multi30k, here", less, dots=True), Series("WMT newstest2013, paper", paper, dots=True)]
    return Chart("BLEU less that of the base", series, over="row", names=names)


def write(done: Mapping[str, Sequence[Reached]], place: Path, steps: int, seeds: Sequence[int]) -> None:
    seconds = sum(each.seconds for own in done.values() for each in own)
    told = (
        f"{len(done)} of {len(ROWS)} rows, {steps:,} updates each, seeds {', '.join(map(str, seeds))}; "
        f"{seconds / 60:.0f} minutes of training. Test set: test_2016_flickr, tokenised; beam 5."
    )
    picture = chart(done)
    page = [Section("", [Paragraph(told), table(done), Charts([picture], PICTURE)])]
    title = "Table 3 of the paper, on Multi30k"
    write_text(place / PICTURE, chart_file(picture))
    write_text(place / "ablation.html", html_page(title, page))
    write_text(place / "ablation.md", markdown_page(title, page))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    options.add_argument("--steps", type=int, default=1500)
    options.add_argument("--seeds", type=int, nargs="+", default=[1])
    options.add_argument("--set", dest="common", action="append", default=[], help="a field of all rows")
    options.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS))
    options.add_argument("--list", action="store_true", help="only show the rows")
    given = options.parse_args()
    if given.list:
        for name, row in ROWS.items():
            print(f"{row.group:1} {name:18} {' '.join(row.changes):40} {row.paper}: {row.bleu}")
        return
    done: dict[str, list[Reached]] = {}
    for seed in given.seeds:  # all rows once, then again with the next seed: a chart is there early
        for name in given.only:
            folder = given.runs / f"{name}-{given.steps}-seed-{seed}"
            found = reached(folder)
            if found is None:
                config = config_of(name, given.steps, seed, given.common)
                if not train(config, folder, resume=(folder / "run.toml").is_file()).finished:
                    sys.exit(130)  # interrupted; the same command goes on
                found = reached(folder)
            if found is None:
                sys.exit(f"{folder}: the run has ended without figures")
            done.setdefault(name, []).append(found)
            print(f"{name} seed {seed}: BLEU {found.bleu:.2f}, {found.seconds / 60:.1f} minutes", flush=True)
            write(done, given.runs, given.steps, given.seeds)


if __name__ == "__main__":
    main()
