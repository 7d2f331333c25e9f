"""Experiment trackers as listeners: TensorBoard, MLflow, Weights & Biases, Trackio (docs/metrics.md).

A number of metrics.jsonl has the name `kind/field` in each of them: `train/loss`, `valid/bleu`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from regard.config.load import to_tree
from regard.errors import extra, located
from regard.storage import read_json, write_json
from regard.training.listeners import Ending, Listener, Record, RunInfo

IDENTITIES = "trackers.json"  # in the run folder: tracker -> its name of the run
PROJECT = "regard"
REPORTS = ("report.html", "report.md")
Texts = dict[str, str]


class Tracker(Listener):
    """Reports each record once, also in a run that is resumed: records that it has are skipped."""

    name = ""
    identity = ""  # the tracker's name of this run

    def start(self, run: RunInfo) -> None:
        self.run = run
        path = run.folder / IDENTITIES
        identities = read_json(path) if path.is_file() else {}
        self.identity = str(identities.get(self.name, ""))
        self.last = dict(run.reported) if self.identity else {}  # kind -> step
        new = not self.identity
        self.identity = self.open(dict(flatten(to_tree(run.config))))
        write_json(path, {**identities, self.name: self.identity})
        for record in run.records if new else ():
            self.record(record)

    def record(self, record: Record) -> None:
        kind, step = str(record["kind"]), int(record["step"])
        if step <= self.last.get(kind, -1):
            return
        self.last[kind] = step
        fields = {
            f"{kind}/{key}": value for key, value in flatten(record, "/") if key not in ("kind", "step")
        }
        numbers = {key: float(value) for key, value in fields.items() if is_number(value)}
        texts = {key: str(value) for key, value in fields.items() if isinstance(value, str)}
        self.write(step, numbers, texts)

    def open(self, parameters: Mapping[str, Any]) -> str:
        """Begin the run, or continue `identity`; returns its identity."""
        raise NotImplementedError

    def write(self, step: int, numbers: dict[str, float], texts: Texts) -> None:
        raise NotImplementedError

    def reports(self) -> list[Path]:
        return [self.run.folder / name for name in REPORTS if (self.run.folder / name).is_file()]


def flatten(tree: Mapping[str, Any], dot: str = ".", prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`{"train": {"lr": 1}}` as `("train.lr", 1)`; lists as JSON."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, dot, f"{prefix}{key}{dot}")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False)
        elif value is not None:
            yield f"{prefix}{key}", value


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


class TensorBoardTracker(Tracker):
    """Event files in the run's folder `tensorboard`."""

    name = "tensorboard"

    def __init__(self) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        self.make_writer: Any = SummaryWriter
        self.hparams: Any = hparams

    def open(self, parameters: Mapping[str, Any]) -> str:
        self.rewind(self.run.step)
        for summary in self.hparams(dict(parameters), {f"valid/{self.run.config.train.metric}": 0}):
            self.writer.file_writer.add_summary(summary)
        return self.name

    def rewind(self, step: int) -> None:
        """TensorBoard forgets what it has after `step`."""
        self.last = {kind: min(last, step) for kind, last in self.last.items()}
        folder = str(self.run.folder / "tensorboard")
        self.writer = self.make_writer(folder, purge_step=step + 1 if step else None)

    def record(self, record: Record) -> None:
        if record["kind"] == "back":  # rolled back to its step
            self.writer.close()
            self.rewind(record["step"])
        super().record(record)

    def write(self, step: int, numbers: dict[str, float], texts: Texts) -> None:
        for key, number in numbers.items():
            self.writer.add_scalar(key, number, step)
        for key, text in texts.items():
            self.writer.add_text(key, text, step)
        self.writer.flush()

    def end(self, ending: Ending) -> None:
        for path in self.reports():
            if path.suffix == ".md":
                self.writer.add_text("report", path.read_text("utf-8"), self.last.get("train", 0))
        self.writer.close()


class MLflowTracker(Tracker):
    """To MLFLOW_TRACKING_URI, else to mlflow.db beside the run folder."""

    name = "mlflow"

    def __init__(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient, entities
        from mlflow.tracking import is_tracking_uri_set

        self.entities, self.make_client = entities, MlflowClient
        self.is_remote = bool(is_tracking_uri_set())  # type: ignore[no-untyped-call]
        if not self.is_remote:
            import sqlalchemy  # noqa: F401

    def open(self, parameters: Mapping[str, Any]) -> str:
        place = self.run.folder.resolve()
        self.client = self.make_client(None if self.is_remote else f"sqlite:///{place.parent / 'mlflow.db'}")
        identity = self.identity or self.create(place)
        self.client.update_run(identity, status="RUNNING")
        stored = self.client.get_run(identity).data.params
        fields = {key: str(value)[:6000] for key, value in parameters.items()}
        new = [self.entities.Param(key, text) for key, text in fields.items() if key not in stored]
        for first in range(0, len(new), 100):  # a request may have no more
            self.client.log_batch(identity, params=new[first : first + 100])
        for key in fields.keys() & stored.keys():  # parameters are final: a changed limit is a tag
            if fields[key] != stored[key]:
                self.client.set_tag(identity, key, fields[key])
        return identity

    def create(self, place: Path) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self.client.get_experiment_by_name(name)
        artifacts = None if self.is_remote else (place.parent / "mlartifacts").as_uri()
        number = experiment.experiment_id if experiment else self.client.create_experiment(name, artifacts)
        return str(self.client.create_run(number, run_name=place.name).info.run_id)

    def write(self, step: int, numbers: dict[str, float], texts: Texts) -> None:
        now = int(1000 * time.time())
        metrics = [self.entities.Metric(metric_name(key), each, now, step) for key, each in numbers.items()]
        for first in range(0, len(metrics), 1000):
            self.client.log_batch(self.identity, metrics=metrics[first : first + 1000])
        if texts:
            kind = next(iter(texts)).split("/")[0]
            self.client.log_dict(self.identity, texts, f"texts/{kind}-{step}.json")

    def end(self, ending: Ending) -> None:
        for path in self.reports():
            self.client.log_artifact(self.identity, str(path))
        status = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}[ending]
        self.client.set_terminated(self.identity, status)


def metric_name(key: str) -> str:
    """`key` with the characters that MLflow permits, and no part that is a path's dot."""
    parts = re.sub(r"[^\w\-. :/]", "_", key).split("/")
    return "/".join(part if part.strip(". ") else f"_{part}" for part in parts)


class WandbTracker(Tracker):
    """Offline, into the run's folder `wandb`, unless WANDB_MODE says otherwise."""

    name = "wandb"

    def __init__(self) -> None:
        import wandb

        self.wandb = wandb

    def open(self, parameters: Mapping[str, Any]) -> str:
        identity = self.identity or uuid4().hex
        self.client = self.wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=self.run.folder.resolve().name,
            id=identity,
            resume="allow",
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=str(self.run.folder),
            config=dict(parameters),
        )
        return identity

    def write(self, step: int, numbers: dict[str, float], texts: Texts) -> None:
        self.client.log({**numbers, **texts}, step=step)

    def end(self, ending: Ending) -> None:
        for path in self.reports():
            if path.suffix == ".html":
                self.client.log({"report": self.wandb.Html(path.read_text("utf-8"))})
        self.client.finish(exit_code=0 if ending == "finished" else 1)


class TrackioTracker(Tracker):
    """Into TRACKIO_DIR, project TRACKIO_PROJECT."""

    name = "trackio"

    def __init__(self) -> None:
        import trackio

        self.trackio = trackio

    def open(self, parameters: Mapping[str, Any]) -> str:
        identity = self.identity or f"{self.run.folder.resolve().name}-{uuid4().hex[:8]}"
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
            self.client = self.trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", PROJECT),
                name=identity,
                resume="allow",
                config=dict(parameters),
                embed=False,
            )
        return identity

    def write(self, step: int, numbers: dict[str, float], texts: Texts) -> None:
        self.client.log({**numbers, **texts}, step=step)

    def end(self, ending: Ending) -> None:
        for path in self.reports():
            if path.suffix == ".md":
                self.client.log({"report": self.trackio.Markdown(path.read_text("utf-8"))})
        with contextlib.redirect_stdout(sys.stderr):
            self.client.finish()


TRACKERS: dict[str, type[Tracker]] = {
    each.name: each for each in (TensorBoardTracker, MLflowTracker, WandbTracker, TrackioTracker)
}


def make_trackers(names: Iterable[str]) -> list[Listener]:
    """A package that is missing is a UsageError."""
    trackers: list[Listener] = []
    for name in dict.fromkeys(names):
        with located(f'train.track = ["{name}"]'), extra("track"):
            trackers.append(TRACKERS[name]())
    return trackers
