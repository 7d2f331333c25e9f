"""What a run's folder knows about its run, read back from its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Config, load_config
from regard.errors import UsageError
from regard.metrics.bleu import bleu_tokenization
from regard.storage import read_json
from regard.training.evaluation.base import FILES
from regard.training.progress import FILE, Record, read_metrics
from regard.training.report.tasks import TASKS, Check, Wording

DATA = "data.json"
SETS = {"test": "test", "final-valid": "valid"}  # the sets by the kind of their record, the severest first


@dataclass(frozen=True)
class Facts:
    folder: Path
    config: Config
    records: list[Record]  # of metrics.jsonl
    data: dict[str, Any] | None  # what was read and found; None if it was not recorded
    sentences: dict[str, list[Record]]  # the held-out texts by the kind of their scores: final-valid, test

    @property
    def title(self) -> str:
        return f"{self.folder.resolve().name}: {self.wording.title(self.config.task)}"

    @property
    def wording(self) -> Wording:
        return TASKS[self.config.task.name]

    def chosen(self) -> tuple[str, list[Record]]:
        """The held-out texts to look at: those of the test set, else of the validation set."""
        own = ((name, self.sentences[kind]) for kind, name in SETS.items() if self.sentences[kind])
        return next(own, ("", []))

    def final(self) -> Record:
        """The scores of the same set."""
        return next((self.last(kind) for kind in SETS if self.last(kind)), {})

    @property
    def tokenization(self) -> str:
        return bleu_tokenization(self.config.train.bleu_tokenize, self.config.task.target)

    def of_kind(self, kind: str) -> list[Record]:
        return [record for record in self.records if record.get("kind") == kind]

    def last(self, kind: str) -> Record:
        """The newest record of a kind, empty if there is none."""
        return next(reversed(self.of_kind(kind)), {})


def read_facts(folder: Path) -> Facts:
    if not (folder / "run.toml").is_file():
        raise UsageError(f"{folder} holds no run: it has no run.toml")
    config = load_config(folder / "run.toml")
    shape = TASKS[config.task.name].shape
    return Facts(
        folder=folder,
        config=config,
        records=read_metrics(folder / FILE),
        data=read_json(folder / DATA) if (folder / DATA).is_file() else None,
        sentences={kind: read_sentences(folder / name, shape) for kind, name in FILES.items()},
    )


def read_sentences(path: Path, shape: Mapping[str, Check]) -> list[Record]:
    """The rows of a file, with the fields that a task's rows have and no others."""
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], start=1):
        try:
            found = json.loads(line)
            row = {key: found.get(key) for key in shape}
        except (ValueError, AttributeError, RecursionError):
            row = {}
        if not row or not all(check(row[key]) for key, check in shape.items()):
            raise UsageError(f"{path}, line {number}: not a sentence of a run; score it again")
        rows.append(row)
    return rows
