"""Listeners of a run, and trackers: what metrics.jsonl has is read back from each of them."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import toy_config
from regard.cli import main
from regard.config import Config
from regard.errors import UsageError
from regard.training import Listener, RunInfo, report, train
from regard.training.progress import read_metrics
from regard.training.trackers import TRACKERS, flatten, is_number

SHORT = {"steps": 8, "warmup": 2, "log_every": 1, "checkpoint_every": 4, "validate_sentences": 2}


def run_config(folder: Path, *track: str, **train_fields: Any) -> Config:
    config = toy_config(folder, **{**SHORT, "track": list(track), **train_fields})
    model = config.model.model_copy(update={"width": 16, "feed_forward": 16})
    return config.model_copy(update={"model": model})


class Recorder(Listener):
    """Stops the run at a step, as its `start` permits."""

    def __init__(self, stop_at: int = 0) -> None:
        self.stop_at, self.calls = stop_at, []

    def start(self, run: RunInfo) -> None:
        self.run = run
        self.calls.append(("start", run.step))

    def record(self, record: dict[str, Any]) -> None:
        self.calls.append((record["kind"], record["step"]))
        if (record["kind"], record["step"]) == ("train", self.stop_at):
            self.run.stop()

    def end(self, ending: str) -> None:
        self.calls.append(("end", ending))


def metrics_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """`kind/field` -> (step, number), as a tracker should have it."""
    numbers: dict[str, list[tuple[int, float]]] = {}
    for record in read_metrics(folder / "metrics.jsonl"):
        for key, value in flatten(record, "/"):
            if is_number(value) and key not in ("kind", "step"):
                numbers.setdefault(f"{record['kind']}/{key}", []).append((record["step"], value))
    return numbers


def without_clocks(numbers: dict[str, list[tuple[int, float]]]) -> dict[str, list[tuple[int, float]]]:
    """Seconds of steps that were done twice are those of the first time."""
    clocks = ("seconds", "tokens_per_second", "updating", "waiting", "validating", "saving", "peak")
    return {
        key: [(step, pytest.approx(value, rel=1e-6)) for step, value in points]  # TensorBoard has float32
        for key, points in numbers.items()
        if key.split("/")[-1] not in clocks
    }


# --- listeners


def test_listeners_see_a_run_and_stop_it(tmp_path: Path) -> None:
    first, second, plain = Recorder(3), Recorder(), []

    class OneMethod:
        def record(self, record: dict[str, Any]) -> None:
            plain.append(record)

    outcome = train(run_config(tmp_path), tmp_path / "run", listeners=[first, OneMethod()])
    assert not outcome.finished and outcome.step == 3
    assert first.calls == [("start", 0), ("train", 1), ("train", 2), ("train", 3), ("end", "stopped")]
    assert [record["step"] for record in plain] == [1, 2, 3]
    assert train(None, tmp_path / "run", True, [second]).finished
    assert second.run.reported == {"train": 3} and [each["step"] for each in second.run.records] == [1, 2, 3]
    assert (second.calls[0], second.calls[-1]) == (("start", 3), ("end", "finished"))
    assert {kind for kind, _ in second.calls} >= {"valid", "final-valid", "test", "run"}


@pytest.mark.parametrize("method", ["start", "log", "record", "end"])
def test_a_listener_that_fails_is_dropped_and_the_run_goes_on(method: str, tmp_path: Path) -> None:
    texts: list[str] = []

    class Broken(Listener):
        calls = 0

    def fail(self: Broken, *arguments: object) -> None:
        Broken.calls += 1
        raise ConnectionError("no route")

    class Log:
        def log(self, text: str) -> None:
            texts.append(text)

    setattr(Broken, method, fail)
    assert train(run_config(tmp_path), tmp_path / "run", listeners=[Broken(), Log()]).finished
    assert Broken.calls == 1
    assert sum("Broken: ConnectionError: no route" in text for text in texts) == 1


def test_an_error_ends_the_run_for_its_listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr("regard.training.run.loop", lambda trainer, metrics: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(run_config(tmp_path), tmp_path / "run", listeners=[recorder])
    assert recorder.calls[-1] == ("end", "failed")


def test_the_old_argument_for_one_listener(tmp_path: Path) -> None:
    recorder = Recorder(1)
    with pytest.warns(FutureWarning, match="listeners"):
        train(run_config(tmp_path), tmp_path / "run", listener=recorder)
    assert ("train", 1) in recorder.calls


# --- trackers


def cut_and_resume(folder: Path, *track: str) -> Path:
    """A run that is killed after step 6, resumed from step 4, and once more after its end."""
    config = run_config(folder, *track, log_every=2)
    assert train(config, folder / "run", listeners=[Recorder(6)]).step == 6
    shutil.rmtree(folder / "run" / "checkpoints" / "step-6")
    assert train(config, folder / "run", resume=True).finished
    assert train(None, folder / "run", resume=True).finished
    return folder / "run"


@pytest.mark.usefixtures("reports")
def test_tensorboard_has_what_metrics_have_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    run = cut_and_resume(tmp_path, "tensorboard")
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    logged = {key: [(e.step, e.value) for e in events.Scalars(key)] for key in events.Tags()["scalars"]}
    assert logged.keys() == metrics_of(run).keys()
    assert without_clocks(logged) == without_clocks(metrics_of(run))
    (sample, *_) = events.Tensors("valid/sample/output/text_summary")
    valid = [each for each in read_metrics(run / "metrics.jsonl") if each["kind"] == "valid"]
    assert sample.tensor_proto.string_val[0].decode() == valid[0]["sample"]["output"]
    last = events.Tensors("report/text_summary")[-1].tensor_proto.string_val[0]
    assert last.decode() == (run / "report.md").read_text("utf-8")
    session = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"train.lr" in session and b"model.width" in session


@pytest.fixture(scope="module")
def mlflow_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mlflow")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:  # of MLflow's libraries
        warnings.simplefilter("ignore")
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setattr(report, "finish_report", lambda folder, log: (folder / "report.md").write_text("# run"))
        return cut_and_resume(tmp_path_factory.mktemp("mlflow"), "mlflow")


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_what_metrics_have_once(mlflow_run: Path) -> None:
    from mlflow import MlflowClient

    run, place = mlflow_run, mlflow_run.parent
    client = MlflowClient(f"sqlite:///{place / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("regard")
    (stored,) = client.search_runs([experiment.experiment_id])
    assert (stored.info.status, stored.info.run_name) == ("FINISHED", "run")
    expected = metrics_of(run)
    assert stored.data.metrics.keys() == expected.keys()
    assert stored.data.params["train.lr"] == "0.01" and stored.data.params["model.width"] == "16"
    for key, points in without_clocks(expected).items():
        history = client.get_metric_history(stored.info.run_id, key)
        assert [(each.step, each.value) for each in history] == points, key
    files = {each.path for each in client.list_artifacts(stored.info.run_id)}
    assert files == {"report.md", "texts"}
    artifacts = place / "mlartifacts" / stored.info.run_id / "artifacts"
    texts = json.loads((artifacts / "texts/valid-4.json").read_text("utf-8"))
    valid = [each for each in read_metrics(run / "metrics.jsonl") if each["kind"] == "valid"]
    assert texts["valid/sample/output"] == valid[0]["sample"]["output"]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_goes_where_its_environment_says(
    mlflow_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    shutil.copy(mlflow_run.parent / "mlflow.db", tmp_path / "other.db")  # to create one takes seconds
    uri = f"sqlite:///{tmp_path / 'other.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "names")
    monkeypatch.chdir(tmp_path)
    train(run_config(tmp_path, "mlflow", steps=2), tmp_path / "run", listeners=[Recorder(1)])
    client = MlflowClient(uri)
    (stored,) = client.search_runs([client.get_experiment_by_name("names").experiment_id])
    assert stored.info.status == "KILLED" and not (tmp_path / "mlflow.db").exists()


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """The log format of LevelDB: blocks of 32 KiB, of parts with checksum, size, kind; from byte 7 on."""
    at, record = 0, b""
    while at + 7 <= len(data):
        rest = 32768 - (at + 7) % 32768
        if rest < 7:  # padding of a block
            at += rest
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


@pytest.mark.usefixtures("reports")
@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_SILENT", "true")
    run = cut_and_resume(tmp_path, "wandb")
    steps, identities = [], set()
    for file in sorted((run / "wandb").glob("offline-run-*/run-*.wandb")):
        identities.add(file.stem.removeprefix("run-"))
        for data in leveldb_records(file.read_bytes()[7:]):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            fields = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            if "train/loss" in fields:
                steps.append((int(fields["_step"]), json.loads(fields["train/loss"])))
    wandb.teardown()
    assert identities == {json.loads((run / "trackers.json").read_text())["wandb"]}
    assert without_clocks({"loss": steps})["loss"] == metrics_of(run)["train/loss"]
    assert list((run / "wandb").glob("offline-run-*/files/media/html/report*.html"))


@pytest.mark.usefixtures("reports")
@pytest.mark.filterwarnings("ignore")
def test_trackio_has_what_metrics_have_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    run = cut_and_resume(tmp_path, "trackio")
    (name,) = SQLiteStorage.get_runs("regard")
    assert name == json.loads((run / "trackers.json").read_text())["trackio"]
    logs = SQLiteStorage.get_logs("regard", name)
    for key, points in without_clocks(metrics_of(run)).items():
        assert [(each["step"], each[key]) for each in logs if key in each] == points, key
    assert logs[-1]["report"]["_value"] == (run / "report.md").read_text("utf-8")


def test_a_tracker_that_is_added_on_resume_gets_earlier_records(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(run_config(tmp_path), tmp_path / "run", listeners=[Recorder(3)])
    train(run_config(tmp_path, "tensorboard"), tmp_path / "run", resume=True, listeners=[Recorder(5)])
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [each.step for each in events.Scalars("train/loss")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", sorted(TRACKERS))
def test_a_missing_package_is_found_before_anything_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [each for each in sys.modules if each.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"regard\[track\]") as caught:
        train(run_config(tmp_path, name), tmp_path / "run")
    assert caught.value.code == "E_EXTRA_MISSING" and not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text('data.train = "phrasebook"\ntrain.track = ["tensorbord"]\n')
    with pytest.raises(SystemExit) as caught:
        main(["train", str(tmp_path / "run.toml"), "-o", str(tmp_path / "run")])
    assert caught.value.code == 2 and "train.track" in capsys.readouterr().err
