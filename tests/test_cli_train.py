"""`regard train` as a person meets it: refusals, Ctrl-C, a full disk, going on."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from conftest import Command, Refused, Toy, toy_config
from regard.cli.train_view import view
from regard.config import to_toml

pytestmark = pytest.mark.usefixtures("same_threads")
SHORT = {"steps": 6, "checkpoint_every": 3, "log_every": 2, "validate_sentences": 4, "tokens_per_batch": 128}


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """The TOML file of a run that takes a second."""
    path = tmp_path / "run.toml"
    path.write_text(to_toml(toy_config(tmp_path, **SHORT)), encoding="utf-8")
    return path


def metrics(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().split("\n") if line]


def test_train_resume_and_what_may_change(
    regard: Command, refused: Refused, run_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "runs" / "my run"
    result = regard("train", run_file, "--output", out)
    assert (result.code, result.out) == (0, "")
    assert f"regard translate -m '{out}'" in result.err
    assert "step 6" in result.err
    assert [row["kind"] for row in metrics(out)] == [
        *("train", "valid", "train", "train", "valid", "final-valid", "test", "run")
    ]
    assert (out / "README.md").is_file()
    # a second run into the same folder
    message = refused("train", run_file, "--output", out)
    assert message.startswith(f"{out} already holds a run; resume it")
    # another field is named, a limit may change
    message = refused("train", run_file, "--output", out, "--resume", "--set", "train.lr=0.5")
    assert message.startswith(f"train.lr is not what {out} began with")
    message = refused("train", "--output", out, "--resume", "--set", "model.dropout=0.5")
    assert message.startswith("model.dropout is not what")
    assert 'did you mean "steps"?' in refused("train", "--output", out, "--resume", "--set", "train.stps=9")
    promise = ("--set", "recipe.expected=BLEU 99", "--set", "recipe.time=a minute")
    again = regard("train", "--output", out, "--resume", "--set", "train.steps=8", *promise)
    assert again.code == 0
    reached = r"reached in 0 minutes on cpu, float32, 1 threads:\nfinal-valid: BLEU"
    assert re.search(rf"\nexpected: BLEU 99; a minute\n{reached}", again.err)
    assert "expected:" not in result.err, "a file that promises nothing"
    assert [row["step"] for row in metrics(out) if row["kind"] == "train"] == [2, 4, 6, 8]
    assert regard("translate", "-m", out, "ba").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{run}"], ["--output"]),
        (["--output", "{new}"], ["missing config", "--resume"]),
        (["--resume", "--output", "{new}"], ["{new} holds no run to resume"]),
        (["--resume", "--output", "{new}", "--set", "train.steps=9"], ["{new} holds no run to resume"]),
        (["--resume", "--output", "{full}"], ["{full} holds no run to resume"]),
        (["{run}", "--output", "{full}"], ["{full} is not empty and holds no run"]),
        (["{run}", "--output", "{run}"], ["{run}"]),
        (["{full}/none.toml", "--output", "{new}"], ["no such file", "config init"]),
        (["{run}", "--output", "{new}", "--minutes", "0"], ["train.minutes = 0"]),
        (["{run}", "--output", "{new}", "--minutes", "nan"], ["train.minutes", "finite"]),
        (["{run}", "--output", "{new}", "--minutes", "soon"], ["--minutes"]),
        (["{run}", "--output", "{new}", "--set", "train.device=cuda:3"], ['"cuda:3" is not available']),
        (["{run}", "--output", "{new}", "--set", "data.train=none.tsv"], ["none.tsv: no such file"]),
    ],
)
def test_train_refuses(
    refused: Refused, run_file: Path, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    full, new = tmp_path / "full", tmp_path / "new"
    full.mkdir()
    (full / "thesis.txt").write_text("years of work")

    def filled(text: str) -> str:
        return text.format(run=run_file, full=full, new=new)

    message = refused("train", *map(filled, arguments))
    assert all(filled(word) in message for word in words), message
    assert [path.name for path in full.iterdir()] == ["thesis.txt"]
    assert not (new / "checkpoints").exists()


def test_a_misspelt_corpus_leaves_no_run_behind(regard: Command, run_file: Path, tmp_path: Path) -> None:
    """The folder was begun before the files were looked for; with the name mended, it was refused twice:

    once as a folder that already holds a run, and with --resume as one with another data.train.
    """
    out = tmp_path / "out"
    assert regard("train", run_file, "--output", out, "--set", "data.test=tset.tsv").code == 2
    assert not out.exists()
    assert regard("train", run_file, "--output", out).code == 0


def test_a_place_that_cannot_be_written(refused: Refused, run_file: Path) -> None:
    message = refused("train", run_file, "--output", run_file / "below", code=1)
    assert message == f"{run_file / 'below'}: cannot write: Not a directory"


def test_a_disk_that_fills_up_while_saving(
    regard: Command, refused: Refused, run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    real, calls = os.fsync, []

    def full_after_the_first_checkpoint(handle: int) -> None:
        calls.append(handle)
        if (out / "checkpoints" / "step-3").is_dir():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_after_the_first_checkpoint)
        result = regard("train", run_file, "--output", out)
    assert calls
    assert result.code == 1
    message = result.err.rstrip("\n").split("\n")[-1]
    assert message.startswith(f"error: {out / 'checkpoints'}")
    assert "the disk is full" in message
    assert "--resume" in message
    assert regard("train", "--resume", "--output", out).code == 0
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-3", "step-6"]
    assert [row["step"] for row in metrics(out) if row["kind"] == "train"] == [2, 4, 6]


def test_what_the_last_save_left_goes_when_nothing_is_left_to_save(
    regard: Command, run_file: Path, tmp_path: Path
) -> None:
    """Killed while it deleted an old checkpoint after its last update: who went on had nothing more to save,
    and the rest of the old one stayed for ever."""
    out = tmp_path / "out"
    assert regard("train", run_file, "--output", out).code == 0
    rest = out / "checkpoints" / ".step-1.old.partial"
    rest.mkdir()
    (rest / "model.safetensors").write_bytes(b"half")
    assert regard("train", "--resume", "--output", out).code == 0
    assert not rest.exists()
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-3", "step-6"]


def run_with_small_files(run_file: Path, out: Path, largest: int) -> subprocess.CompletedProcess[str]:
    """The program under a limit on the size of a file: the system itself refuses to write."""
    return subprocess.run(
        [sys.executable, "-m", "regard", "train", str(run_file), "--output", str(out)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest)),
    )


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run whose weights can be written but not its optimiser, which is twice as large."""
    folder = tmp_path_factory.mktemp("cut-off")
    path, out = folder / "run.toml", folder / "out"
    path.write_text(to_toml(toy_config(folder, **SHORT)), encoding="utf-8")
    return out, run_with_small_files(path, out, largest=150_000)


def test_a_checkpoint_that_the_system_refuses_does_not_exist(
    regard: Command, cut_off: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    out, result = cut_off
    assert result.returncode == 1
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert not [path for path in (out / "checkpoints").iterdir() if path.name.startswith("step-")]


def test_the_refused_file_is_named(cut_off: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, result = cut_off
    assert f"error: {out / 'checkpoints'}" in result.stderr


def test_a_run_cut_off_by_a_full_disk_can_go_on(
    regard: Command, cut_off: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    out, _ = cut_off
    assert regard("train", "--resume", "--output", out).code == 0
    assert regard("translate", "-m", out, "ba").code == 0
    assert not list((out / "checkpoints").glob(".*"))


def test_ctrl_c_saves_and_says_how_to_go_on(regard: Command, run_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "regard", "train", str(run_file), "--output", str(out)]
    command += ["--set", "train.steps=1000000", "--set", "train.checkpoint_every=1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 120
        while not ((out / "metrics.jsonl").is_file() and metrics(out)) and time.monotonic() < deadline:
            assert running.poll() is None, running.communicate()
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        printed, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert printed == ""
    last = told.rstrip("\n").split("\n")[-1]
    assert last.endswith(f"resume with:  regard train --resume -o {out}")
    (checkpoint,) = (out / "checkpoints").iterdir()
    step = int(checkpoint.name.removeprefix("step-"))
    assert f"saved after step {step};" in last
    result = regard("train", "--resume", "--output", out, "--set", f"train.steps={step + 4}")
    assert result.code == 0
    assert f"resuming after step {step}" in result.err
    assert metrics(out)[-1]["step"] == step + 4


def test_the_documented_metrics_are_those_that_are_written(toy: Toy) -> None:
    """docs/metrics.md names every field of every record, and nothing that is not there."""
    text = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    documented = {
        kind: {
            name
            for row in re.findall(r"^\| (`.*?) \|", section, re.M)
            for name in re.findall(r"`(\w+)`", row)
        }
        for kinds, section in re.findall(r"^## (`.*?)$(.*?)(?=^## |\Z)", text, re.M | re.S)
        for kind in re.findall(r"`([a-z-]+)`", kinds.split(":")[0])
    }
    written = {str(row["kind"]): set(row) - {"kind", "step"} for row in metrics(toy.model)}
    assert documented.pop("robustness")  # of runs with modifiers of text
    assert written == documented


def test_the_view_of_a_run(toy: Toy) -> None:
    """The live view shows the newest numbers; it must survive a loss that is no number."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with view(console, plain=False) as shown:
        for record in metrics(toy.model):
            shown.record(record)
        shown.record({**metrics(toy.model)[0], "loss": float("nan"), "step": 399})
        shown.log("a [b]word[/b]")
    text = screen.getvalue()
    assert "399" in text
    assert "BLEU" in text
    assert "a [b]word[/b]" in text


def test_plain_lines_of_a_run(toy: Toy) -> None:
    screen = io.StringIO()
    with view(Console(file=screen, width=200), plain=True) as shown:
        for record in metrics(toy.model):
            shown.record(record)
    lines = screen.getvalue().split("\n")
    assert lines[0].startswith("step 50  epoch ")
    assert any(line.startswith("valid at step 200  loss ") and "BLEU" in line for line in lines)
    assert any(line.startswith("test at step 400") for line in lines)
