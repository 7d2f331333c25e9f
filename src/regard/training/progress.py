"""What a run tells while it goes on: records for `metrics.jsonl` and whoever listens (docs/metrics.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from regard.storage import append, write_text

Record = dict[str, Any]
FILE = "metrics.jsonl"
STEPWISE = ("train", "valid", "bad", "spike", "back")  # kinds of records; the others are made at the end


class Listener(Protocol):
    """A view of a run: the terminal, or nothing."""

    def say(self, text: str) -> None: ...
    def record(self, record: Record) -> None: ...


class Silent:
    def say(self, text: str) -> None:
        pass

    def record(self, record: Record) -> None:
        pass


class Metrics:
    """Appends records to the run's file and passes them on."""

    def __init__(self, folder: Path, listener: Listener) -> None:
        self.path = folder / FILE
        self.listener = listener

    def rewind(self, step: int) -> None:
        """Forget what was recorded after `step`: a resumed run does those steps again."""
        kept = [record for record in read_metrics(self.path) if record.get("step", 0) <= step]
        kept = [record for record in kept if record.get("kind") in STEPWISE]
        write_text(self.path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))

    def add(self, record: Record) -> None:
        append(self.path, (json.dumps(record, ensure_ascii=False) + "\n").encode())
        self.listener.record(record)

    def sync(self) -> None:
        """Make all records durable."""
        append(self.path, b"", durable=True)


class Unheard(Metrics):
    """Of a process that is not the voice of its run."""

    def rewind(self, step: int) -> None:
        pass

    def add(self, record: Record) -> None:
        pass

    def sync(self) -> None:
        pass


def read_metrics(path: Path) -> list[Record]:
    """All whole records; a last line that a kill cut off is passed over."""
    if not path.is_file():
        return []
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
