"""The files of a run folder that its report is made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Config, load_config
from regard.errors import UsageError
from regard.storage import read_json
from regard.training.evaluate import bleu_tokenization
from regard.training.evaluation.base import FILES
from regard.training.progress import FILE, Record, read_metrics
from regard.training.report.tasks import CHECKS, TASKS, TaskReport

SPLITS = {"test": "test", "final-valid": "valid"}  # kind of record: split; the one to look at first


@dataclass(frozen=True)
class RunData:
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
        return f"{self.folder.resolve().name}: {self.task.title(self.config.task)}"

    @property
    def tokenization(self) -> str:
        return bleu_tokenization(self.config.train.bleu_tokenize, self.config.task.target)

    def held_out(self) -> tuple[str, list[Record]]:
        """The test split and its texts, else the validation split."""
        return next(
            ((split, self.texts[kind]) for kind, split in SPLITS.items() if self.texts[kind]), ("", [])
        )

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
        raise UsageError(f"{folder} holds no run: it has no run.toml")
    config = load_config(folder / "run.toml")
    fields = TASKS[config.task.name].fields
    data = folder / "data.json"
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
            raise UsageError(f"{path}, line {number}: not a row of this task; score the model again")
        rows.append(row)
    return rows
