"""`regard sweep`: fields that cannot be are refused first; killed and resumed, it comes to the same table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from conftest import toy_config
from regard.config.load import to_tree
from regard.config.sweep import Range, SweepConfig, SweepFile, grid_values, load_sweep
from regard.errors import UsageError
from regard.training.progress import read_metrics

pytest.importorskip("optuna")

from regard.training.sweep import sweep
from regard.training.sweep_report import SweepTable, sweep_table, write_sweep

FIELDS: dict[str, Any] = {
    "train.lr": {"low": 1e-5, "high": 1e-1, "log": True},
    "model.dropout": [0.0, 0.1],
    "train.betas": [[0.9, 0.98], [0.9, 0.999]],
}


def write_files(folder: Path, fields: dict[str, Any] = FIELDS, **options: Any) -> Path:
    run = {
        "steps": 6,
        "warmup": 2,
        "log_every": 1,
        "checkpoint_every": 2,
        "validate_sentences": 0,
        "metric": "loss",
    }
    tree = to_tree(toy_config(folder, **run))
    tree["model"] |= {"width": 16, "feed_forward": 16}
    tree["data"].pop("test")
    tree["train"].pop("threads")
    (folder / "base.toml").write_text(tomli_w.dumps(tree))
    path = folder / "sweep.toml"
    path.write_text(tomli_w.dumps({"base": "base.toml", "fields": fields, **options}))
    return path


def run_sweep(path: Path, name: str, **options: Any) -> tuple[SweepConfig, bool, SweepTable]:
    config, folder = load_sweep(path), path.parent / name
    finished, trials = sweep(config, folder, **options)
    return config, finished, sweep_table(config, folder, trials)


def interrupt_when(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)


# --- the file


@pytest.mark.parametrize(
    ("fields", "name", "code"),
    [
        ({"train.lrr": [1e-3]}, "train.lrr", "E_CONFIG_FIELD"),
        ({"trian.lr": [1e-3]}, "trian", "E_CONFIG_SECTION"),
        ({"train.lr": [1e-3, -1.0]}, "train.lr", "E_CONFIG_VALUE"),
        ({"train.lr": {"low": 0.1, "high": 0.01}}, "train.lr", "E_SWEEP_FIELD"),
        ({"train.lr": {"low": 0.0, "high": 0.01, "log": True}}, "train.lr", "E_SWEEP_FIELD"),
        ({"train.lr": {"low": 0.1, "high": 1, "from": 2}}, "train.lr", "E_SWEEP_FIELD"),
        ({"train.lr": "high"}, "train.lr", "E_SWEEP_FIELD"),
        ({"train.lr": []}, "train.lr", "E_SWEEP_FIELD"),
        ({"lr": [0.1]}, "lr", "E_SWEEP_FIELD"),
        ({"model.heads": [2, 5]}, "model.heads", "E_CONFIG_VALUE"),
        ({}, "fields", "E_SWEEP_FIELD"),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_name(
    fields: dict[str, Any], name: str, code: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        load_sweep(write_files(tmp_path, fields))
    assert caught.value.code == code and name in str(caught.value) and "sweep.toml" in str(caught.value)


def test_values_that_need_one_another_are_accepted(tmp_path: Path) -> None:
    sweep_config = load_sweep(write_files(tmp_path, {"model.heads": [2, 5], "model.width": [16, 20]}))
    assert sweep_config.trial({"model.heads": 5, "model.width": 20}).model.heads == 5


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"metric": "f1"}, "E_SWEEP_FIELD"),
        ({"sampler": "grid"}, "E_SWEEP_FIELD"),
        ({"trails": 3}, "E_SWEEP_FIELD"),
        ({"pruner": "never"}, "E_SWEEP_FIELD"),
        ({"base": "other.toml"}, "E_CONFIG_FILE"),
    ],
)
def test_other_options_are_checked(options: dict[str, Any], code: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_sweep(write_files(tmp_path, **options))
    assert caught.value.code == code


def test_defaults_come_from_the_task(tmp_path: Path) -> None:
    config = load_sweep(write_files(tmp_path))
    assert (config.metric, config.direction, config.trials) == ("loss", "minimize", 20)
    config = load_sweep(write_files(tmp_path, metric="bleu"))
    assert (config.metric, config.direction) == ("bleu", "maximize")
    tree = to_tree(config.base)
    tree["data"].pop("valid")
    (tmp_path / "base.toml").write_text(tomli_w.dumps(tree))
    with pytest.raises(UsageError) as caught:
        load_sweep(tmp_path / "sweep.toml")
    assert caught.value.code == "E_SWEEP_VALID"


@given(st.integers(-50, 50), st.integers(1, 60), st.integers(1, 9))
def test_a_grid_has_the_values_of_a_range(low: int, size: int, step: int) -> None:
    assert grid_values(Range(low=low, high=low + size, step=step)) == list(range(low, low + size + 1, step))


def test_the_page_has_every_option() -> None:
    page = (Path(__file__).parent.parent / "docs" / "sweeps.md").read_text(encoding="utf-8")
    options = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert options == SweepFile.model_fields.keys() - {"fields"}


# --- runs


def test_a_sweep_is_interrupted_and_resumed(tmp_path: Path) -> None:
    """A grid, of which one combination is no model; the interrupted trial is continued."""
    fields = {"model.heads": [2, 5], "model.width": [16, 20]}
    path = write_files(tmp_path, fields, sampler="grid", trials=3)
    manifest = tmp_path / "run/trial-0000/checkpoints/step-2/manifest.json"
    thread = Thread(target=interrupt_when, args=(manifest,))
    thread.start()
    _, finished, _ = run_sweep(path, "run")
    thread.join()
    assert not finished and not (tmp_path / "run" / "trial-0001").exists()
    with pytest.raises(UsageError) as caught:
        run_sweep(write_files(tmp_path, {"train.lr": [1e-3]}), "run")
    assert caught.value.code == "E_SWEEP_CHANGED"
    path = write_files(tmp_path, fields, sampler="grid", trials=3)
    _, finished, table = run_sweep(path, "run")
    assert finished and [row[1] for row in table.rows] == ["complete", "complete", "fail"]
    assert sorted(tuple(row[-2:]) for row in table.rows) == [("2", "16"), ("2", "20"), ("5", "16")]
    assert table.best == tmp_path / "run" / table.rows[0][0]
    for row in table.rows[:2]:
        records = read_metrics(tmp_path / "run" / row[0] / "metrics.jsonl")
        assert [each["step"] for each in records if each["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
        assert row[2] == f"{min(each['loss'] for each in records if each['kind'] == 'valid'):.6g}"
    assert float(table.rows[0][2]) <= float(table.rows[1][2])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("jobs", [1, 2])
def test_twelve_runs_are_killed_and_resumed(jobs: int, tmp_path: Path) -> None:
    """kill -9 twice, in the middle of runs. With one job the table is that of an uninterrupted sweep."""
    path = write_files(tmp_path, trials=12, pruner="hyperband" if jobs == 2 else "median")
    command = [sys.executable, "-m", "regard", "sweep", str(path), "-o", str(tmp_path / "cut")]
    for number in (1, 6):
        process = subprocess.Popen([*command, "--jobs", str(jobs)], stderr=subprocess.DEVNULL)
        while not (tmp_path / f"cut/trial-{number:04d}/checkpoints/step-2/manifest.json").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
    done = subprocess.run([*command, "--jobs", str(jobs)], capture_output=True, text=True, check=True)
    config, folder = load_sweep(path), tmp_path / "cut"
    finished, trials = sweep(config, folder)  # nothing is left to do
    table = write_sweep(config, folder, trials)
    assert finished and [trial.number for trial in trials] == list(range(12))
    assert {row[1] for row in table.rows} == {"complete", "pruned"}
    for row in table.rows:
        steps = [
            each["step"]
            for each in read_metrics(folder / row[0] / "metrics.jsonl")
            if each["kind"] == "train"
        ]
        assert steps == list(range(1, int(row[3]) + 1))
    assert f"best: {table.best}" in done.stdout and table.rows[0][0] in done.stdout
    assert (folder / "sweep.csv").read_text().splitlines()[1].startswith(f"{table.rows[0][0]},complete,")
    assert (folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert len((folder / "sweep.md").read_text().split("| trial-")) == 13
    if jobs == 1:
        assert run_sweep(path, "whole")[2].rows == table.rows
