"""What a sweep found: a table for the terminal, sweep.md and sweep.csv, and one picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config.sweep import SweepConfig
from regard.storage import write_atomically, write_text
from regard.training.report import page
from regard.training.sweep import trial_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

CURVES = 6  # best trials whose validations are drawn


@dataclass(frozen=True)
class SweepTable:
    """Best first; a trial that was pruned has the score of its last validation."""

    head: list[str]
    rows: list[list[str]]
    best: Path | None  # the run folder of the best complete trial


def sweep_table(config: SweepConfig, folder: Path, trials: list[FrozenTrial]) -> SweepTable:
    sign = -1 if config.direction == "maximize" else 1
    order = ["COMPLETE", "PRUNED", "RUNNING", "FAIL"]
    shown_trials = [trial for trial in trials if trial.state.name in order]
    shown_trials.sort(
        key=lambda trial: (
            order.index(trial.state.name),
            sign * (value if (value := last_value(trial)) is not None else 0.0),
            trial.number,
        )
    )
    fields = list(config.file.fields)
    rows = [
        [
            trial_folder(folder, trial.number).name,
            trial.state.name.lower(),
            "" if (value := last_value(trial)) is None else f"{value:.6g}",
            str(trial.user_attrs.get("step", "")),
            *(shown_value(trial.params, name) for name in fields),
        ]
        for trial in shown_trials
    ]
    complete = [trial for trial in shown_trials if trial.state.name == "COMPLETE"]
    best = trial_folder(folder, complete[0].number) if complete else None
    return SweepTable(["trial", "state", config.metric, "updates", *fields], rows, best)


def last_value(trial: FrozenTrial) -> float | None:
    if trial.value is not None:
        return trial.value
    values = trial.intermediate_values
    return values[max(values)] if values else None


def shown_value(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name, "")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write_sweep(config: SweepConfig, folder: Path, trials: list[FrozenTrial]) -> SweepTable:
    """Write sweep.csv, sweep.md and sweep.png."""
    table = sweep_table(config, folder, trials)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.head, *table.rows])
    write_text(folder / "sweep.csv", text.getvalue())
    charts = sweep_charts(config, trials)
    if charts:
        write_atomically(folder / "sweep.png", page.save(charts, "png"))
    best = f"The best run is {table.best.name}." if table.best else "No trial is complete."
    blocks: list[page.Block] = [best, page.table(table.head, table.rows, text_columns=2)]
    blocks += [page.charts(charts, "sweep.png")] if charts else []
    write_text(folder / "sweep.md", page.markdown_page(f"Sweep {folder.resolve().name}", [("", blocks)]))
    return table


def sweep_charts(config: SweepConfig, trials: list[FrozenTrial]) -> list[page.Chart]:
    """The score of every trial with the best so far; the validations of the best trials."""
    better = max if config.direction == "maximize" else min
    points = [(float(trial.number), trial.value) for trial in trials if trial.value is not None]
    if not points:
        return []
    best: list[tuple[float, float]] = []
    for number, value in points:
        best.append((number, better(value, best[-1][1]) if best else value))
    drawn = sorted(
        (trial for trial in trials if trial.value is not None and trial.intermediate_values),
        key=lambda trial: trial.value or 0.0,
        reverse=config.direction == "maximize",
    )[:CURVES]
    curves = [
        page.curve(f"trial {trial.number}", sorted(trial.intermediate_values.items()), dots=True)
        for trial in drawn
    ]
    scores = [page.curve("trial", points, dots=True), page.curve("best so far", best)]
    return [
        page.chart(config.metric, scores, over="trial"),
        page.chart(f"{config.metric}, best trials", curves),
    ]
