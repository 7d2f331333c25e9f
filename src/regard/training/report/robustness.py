"""The table of scores on modified texts: of a run's report, of the card and of `regard evaluate --modify`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from regard.training.evaluation.robustness import SCORES
from regard.training.report import page
from regard.training.report.run_data import TASKS, RunData


def robustness_table(task: str, table: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: a row for the clean texts and for each modifier."""
    by_key = {metric.key: metric for metric in TASKS[task].metrics}
    metrics = [by_key[name] for name in SCORES[task]]
    head = ["texts", *(metric.name for metric in metrics), f"{metrics[-1].name} of clean", "changed"]
    has_items = any("kept" in record for record in table.values())
    rows = []
    for name, record in table.items():
        row = [name, *(metric.format(dict(record)) for metric in metrics), percent(record.get("ratio"))]
        row.append(f"{record['changed']:,}" if "changed" in record else "–")
        rows.append([*row, percent(record.get("kept"))] if has_items else row)
    return [*head, *(["items kept"] if has_items else [])], rows


def percent(share: object) -> str:
    return f"{100 * share:.1f} %" if isinstance(share, int | float) else "–"


def robustness_section(run: RunData) -> Iterator[page.Block]:
    record = run.last("robustness")
    head, rows = robustness_table(run.config.task.name, record["modified"])
    yield page.table(head, rows)
    yield (
        f"The first {record['sentences']:,} {run.task.texts} of the {record['split']} data, clean and with "
        "each of data.modifiers; outputs are greedy. References change with their sources, except for "
        "typos, noise, repeat and spaces. Items are copied, so such texts may score above clean ones."
    )
