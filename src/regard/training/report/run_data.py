"""What a report shows of each task (`builtin/report/tasks.toml`), and the files of a run folder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Config, load_config
from regard.errors import UsageError
from regard.metrics import MAX_EXPONENT
from regard.metrics.bleu import bleu_tokenization
from regard.resources import read_data
from regard.storage import read_json
from regard.storage.inputs import READS
from regard.training.evaluation import FILES
from regard.training.progress import FILE, Record, read_metrics

SPLITS = {"test": "test", "final-valid": "valid"}  # kind of record: split; the one to look at first
CHECKS: dict[str, Callable[[Any], bool]] = {  # of the fields of a row
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float),
    "optional number": lambda value: isinstance(value, int | float | None),
    "texts": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "links": lambda value: (
        isinstance(value, list) and all(isinstance(each, list) and len(each) == 2 for each in value)
    ),
    "probabilities": lambda value: (
        isinstance(value, dict) and all(isinstance(each, int | float) for each in value.values())
    ),
}


@dataclass(frozen=True)
class Metric:
    """A number of a record; the fields are explained in tasks.toml."""

    key: str
    name: str
    digits: int = 2
    share: bool = False
    sentence: str = "{name} {value}"
    exp_loss: bool = False

    def value_in(self, record: Record) -> float | None:
        value = record.get("loss" if self.exp_loss else self.key)
        if not isinstance(value, int | float):
            return None
        return math.exp(min(value, MAX_EXPONENT)) if self.exp_loss else 100 * value if self.share else value

    def format(self, record: Record, digits: int | None = None) -> str:
        """The number as text, with half of its confidence interval if the record has one."""
        value = self.value_in(record)
        if value is None:
            return "–"
        digits = self.digits if digits is None else digits
        interval = record.get(f"{self.key}_interval")
        half = f" ± {(100 if self.share else 1) * interval[1]:,.{digits}f}" if interval else ""
        return f"{value:,.{digits}f}{half}" + (" %" if self.share else "")


@dataclass(frozen=True)
class TaskReport:
    """What the report of a task shows; the fields are explained in tasks.toml."""

    title: str
    metrics: Sequence[Metric]
    main: int
    curves: Sequence[Metric]
    chart: str
    fields: Mapping[str, str]
    remark: str = ""
    texts: str = "texts"
    rows: str = "texts"
    tokens: str = "tokens"
    validation: str = "at the last validation"
    count: str = " on {count} {texts}"


def read_tasks() -> dict[str, TaskReport]:
    content = read_data("report/tasks")
    metrics = {name: Metric(**fields) for name, fields in content["metrics"].items()}
    tasks = {}
    for task, fields in content["tasks"].items():
        columns, curves = ([metrics[name] for name in fields[key]] for key in ("metrics", "curves"))
        tasks[task] = TaskReport(**{**fields, "metrics": columns, "curves": curves})
    return tasks


TASKS = read_tasks()


def main_scores(task: str) -> Sequence[Metric]:
    """The metrics that a reader looks for first."""
    return TASKS[task].metrics[: TASKS[task].main]


def score_line(task: str, record: Record, kind: str = "text") -> str:
    """A final record in one line: "test: accuracy 91.2 %, macro F1 91.1 %, loss 0.2412 on 872 texts"; or of
    another kind of input: 872 pictures."""
    report, count = TASKS[task], f"{record.get('sentences', 0)}"
    texts = report.texts if kind == "text" else READS[kind]
    bare = {key: value for key, value in record.items() if not key.endswith("_interval")}
    parts = []
    for metric in report.metrics:
        if metric.sentence and metric.value_in(record) is not None:
            value = metric.format(bare, min(metric.digits, 1) if metric.share else metric.digits)
            parts.append(metric.sentence.format(name=metric.name, value=value, count=count))
    return f"{record['kind']}: {', '.join(parts)}" + report.count.format(count=count, texts=texts)


@dataclass(frozen=True)
class RunData:
    """The files of a run folder."""

    folder: Path
    config: Config
    records: list[Record]  # of metrics.jsonl
    data: dict[str, Any] | None  # data.json: corpora and what the data check reported; None if absent
    texts: dict[str, list[Record]]  # rows of test.jsonl and valid.jsonl by kind of record

    @property
    def task(self) -> TaskReport:
        return TASKS[self.config.task.name]

    @property
    def title(self) -> str:
        task = self.config.task
        labels = ", many labels each" if task.multi_label else ""
        title = self.task.title.format(source=task.source, target=task.target, labels=labels)
        return f"{self.folder.resolve().name}: {title}"

    @property
    def tokenization(self) -> str:
        return bleu_tokenization(self.config.train.bleu_tokenize, self.config.task.target)

    def held_out(self) -> tuple[str, list[Record]]:
        """The test split and its texts, else the validation split."""
        splits = ((split, self.texts[kind]) for kind, split in SPLITS.items() if self.texts[kind])
        return next(splits, ("", []))

    def final_scores(self) -> Record:
        """The final record of the test split, else of the validation split."""
        return next((self.last(kind) for kind in SPLITS if self.last(kind)), {})

    def of_kind(self, kind: str) -> list[Record]:
        return [record for record in self.records if record.get("kind") == kind]

    def last(self, kind: str) -> Record:
        """The newest record of a kind, empty if there is none."""
        return next(reversed(self.of_kind(kind)), {})


def read_run(folder: Path) -> RunData:
    if not (folder / "run.toml").is_file():
        raise UsageError(f"{folder} holds no run: it has no run.toml", code="E_RUN_MISSING")
    config, data = load_config(folder / "run.toml"), folder / "data.json"
    fields = TASKS[config.task.name].fields
    return RunData(
        folder=folder,
        config=config,
        records=read_metrics(folder / FILE),
        data=read_json(data) if data.is_file() else None,
        texts={kind: read_texts(folder / name, fields) for kind, name in FILES.items()},
    )


def read_texts(path: Path, fields: Mapping[str, str]) -> list[Record]:
    """The rows of test.jsonl or valid.jsonl, with the fields of the task."""
    rows = []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        try:
            content = json.loads(line)
            row = {key: content.get(key) for key in fields}
        except (ValueError, AttributeError, RecursionError):
            row = {}
        if not row or not all(CHECKS[check](row[key]) for key, check in fields.items()):
            raise UsageError(
                f"{path}, line {number}: not a row of this task; score the model again", code="E_RUN_ROWS"
            )
        rows.append(row)
    return rows
