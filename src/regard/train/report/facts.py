"""What a run's folder knows about its run, read back from its files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Config, load_config
from regard.errors import UsageError
from regard.store import read_json
from regard.train.evaluate import bleu_tokenization
from regard.train.final import FILES
from regard.train.progress import FILE, Record, read_metrics

DATA = "data.json"
SETS = {"test": "test", "final-valid": "valid"}  # the sets by the kind of their record, the severest first


@dataclass(frozen=True)
class Facts:
    folder: Path
    config: Config
    records: list[Record]  # of metrics.jsonl
    data: dict[str, Any] | None  # what was read and found; None if it was not recorded
    sentences: dict[str, list[Record]]  # by the kind of their scores: final-valid, test

    @property
    def title(self) -> str:
        task = self.config.task
        return f"{self.folder.resolve().name}: translation from {task.source} to {task.target}"

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
    return Facts(
        folder=folder,
        config=load_config(folder / "run.toml"),
        records=read_metrics(folder / FILE),
        data=read_json(folder / DATA) if (folder / DATA).is_file() else None,
        sentences={kind: read_sentences(folder / name) for kind, name in FILES.items()},
    )


def read_sentences(path: Path) -> list[Record]:
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], start=1):
        try:
            row = json.loads(line)
            rows.append(
                {key: row[key] for key in ("source", "reference", "output", "chrf", "score", "alignment")}
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            raise UsageError(f"{path}, line {number}: not a sentence of a run; score it again") from None
    return rows
