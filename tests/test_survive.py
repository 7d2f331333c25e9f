"""Checkpoints survive power cuts, failing disks and damage (samples of qa/survive); one run at a time."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qa.survive import archives, damage, failing, power, system
from qa.survive.common import checkpoint, newest_step, write_model
from regard.checksums import SUMS, sha256
from regard.errors import RegardError, UsageError
from regard.storage import (
    Disk,
    checkpoint_folder,
    checkpoint_steps,
    checksums,
    folder_lock,
    load_latest,
    open_folder,
    prune,
    save_checkpoint,
    use_disk,
)
from regard.storage.checkpoint import load_checkpoint, load_weights
from regard.storage.files import free_bytes, friendly_os_errors, write_atomically
from regard.training.checkpoints import latest_checkpoint


def test_every_state_after_a_power_cut_is_the_old_or_the_new() -> None:
    result = power.power(240, seed=5)
    assert result.n >= 240 and result.failures == 0, result.wrong


@pytest.mark.slow  # half a minute
@pytest.mark.parametrize("call", ["sync", "sync_folder"])
def test_a_save_that_does_not_sync_is_found_out(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial can fail: without the one or the other call there are states that lose a checkpoint."""
    monkeypatch.setattr(power.Recorder, call, lambda recorder, on: None)
    assert power.power(40, seed=5).failures > 0


def test_no_failing_call_of_a_save_damages_anything() -> None:
    result = failing.failing(0, seed=0)
    assert result.n > 200 and result.failures == 0, result.wrong


def test_a_fault_that_is_swallowed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.storage.files.sync_folder", lambda path: None)
    monkeypatch.setattr(failing, "KINDS", ("short",))
    monkeypatch.setattr(
        "regard.storage.files.write_all", lambda handle, content: os.write(handle, content[:9])
    )
    assert failing.failing(0, seed=0).failures > 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_real_disk_fails_as_the_played_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "FAULTS", system.FAULTS[::7])
    n, wrong, why = system.traced(tmp_path / "run")
    if why:
        pytest.skip(why)
    assert n == 3 and not wrong, wrong


def test_a_save_whose_sums_fail_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made in a thread beside: what goes wrong there is not lost, nor is a half checkpoint left."""

    def no_memory(content: bytes) -> str:
        raise MemoryError

    save_checkpoint(tmp_path, 5, checkpoint(5))
    monkeypatch.setattr("regard.storage.checkpoint.sha256_of", no_memory)
    with pytest.raises(MemoryError):
        save_checkpoint(tmp_path, 10, checkpoint(10))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-5"]
    assert newest_step(tmp_path, []) == 5


def test_damage_is_noticed_and_named() -> None:
    result = damage.damage(180, seed=3)
    assert result.n >= 180 and result.failures == 0, result.wrong


def test_no_archive_is_unpacked() -> None:
    result = archives.archives(0, seed=0)
    assert result.n >= 40 and result.failures == 0, result.wrong


# --- stories


def test_a_finished_run_that_is_resumed_keeps_its_last_checkpoint(tmp_path: Path) -> None:
    """It once deleted the last checkpoint to write the same one again: a kill between lost it."""
    save_checkpoint(tmp_path, 5, checkpoint(5))
    before = (checkpoint_folder(tmp_path, 5) / "manifest.json").stat().st_ino
    save_checkpoint(tmp_path, 5, checkpoint(5))
    assert (checkpoint_folder(tmp_path, 5) / "manifest.json").stat().st_ino == before


def test_a_run_without_a_whole_checkpoint_does_not_begin_anew(tmp_path: Path) -> None:
    """With every checkpoint damaged, --resume once began again from the first step, as if that were meant."""
    said: list[str] = []
    assert latest_checkpoint(tmp_path, said.append) is None and not said
    (save_checkpoint(tmp_path, 5, checkpoint(5)) / "state.json").write_text("{}")
    with pytest.raises(RegardError, match="none of 1 checkpoints is intact"):
        latest_checkpoint(tmp_path, said.append)
    assert len(said) == 1 and "state.json" in said[0]


def test_a_damaged_newer_checkpoint_does_not_crowd_out_good_ones(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        save_checkpoint(tmp_path, step, checkpoint(step))
    (checkpoint_folder(tmp_path, 15) / "model.safetensors").write_bytes(b"")
    found = load_latest(tmp_path, lambda text: None, last=12)
    assert found is not None and found.state == {"step": 10}
    save_checkpoint(tmp_path, 15, checkpoint(15))  # over the broken one
    assert newest_step(tmp_path, []) == 15
    prune(tmp_path, {10, 15})
    assert checkpoint_steps(tmp_path) == [10, 15] and not list((tmp_path / "checkpoints").glob(".*"))


def test_a_disk_that_cannot_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error while the newest checkpoint was read once ended the resumption."""
    from regard.storage import checksums as module

    for step in (5, 10):
        save_checkpoint(tmp_path, step, checkpoint(step))
    real = module.sha256

    def torn(path: Path) -> str:
        if "step-10" in str(path):
            raise OSError(5, "Input/output error")
        return real(path)

    monkeypatch.setattr(module, "sha256", torn)
    said: list[str] = []
    assert newest_step(tmp_path, said) == 5 and "Input/output error" in said[0]


def test_the_sentence_of_a_full_disk_has_path_room_and_advice(tmp_path: Path) -> None:
    with (
        pytest.raises(RegardError, match=r"x: the disk is full \([\d,]+ bytes free\); make room") as caught,
        friendly_os_errors(tmp_path / "x"),
    ):
        raise OSError(28, "No space left on device")
    assert "\n" not in str(caught.value)
    assert (free_bytes(tmp_path / "a" / "b") or 0) > 0


def test_what_a_writer_that_was_killed_left_does_not_stay(tmp_path: Path) -> None:
    class Gone(Disk):
        def rename(self, old: Path, new: Path) -> None:
            raise KeyboardInterrupt

        def remove(self, path: Path) -> None:
            raise OSError(5, "Input/output error")

    with pytest.raises(KeyboardInterrupt), use_disk(Gone()):
        write_atomically(tmp_path / "run.toml", b"x")
    assert len(list(tmp_path.iterdir())) == 1
    from regard.storage import remove_partials

    remove_partials(tmp_path)
    assert not list(tmp_path.iterdir())


# --- the lock


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other locks")
def test_a_second_run_is_refused_and_a_dead_one_is_not_in_the_way(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with folder_lock(run):
        with (
            pytest.raises(UsageError, match=rf"another process \({os.getpid()} on \S+\) trains there"),
            folder_lock(run),
        ):
            pass
        shutil.copytree(run, tmp_path / "copy")
        with folder_lock(tmp_path / "copy"):  # a copy is another folder
            pass
    child = os.fork()
    if child == 0:
        with folder_lock(run):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (run / ".lock").read_text() == f"{child} {socket.gethostname()}\n"
    with folder_lock(run):
        pass


# --- the sums of a model folder


def test_a_changed_file_is_noticed_and_a_meant_change_is_possible(tmp_path: Path) -> None:
    write_model(tmp_path, 1)
    if shutil.which("sha256sum"):
        assert subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=tmp_path).returncode == 0
    config = tmp_path / "run.toml"
    config.write_text(config.read_text().replace("beam = 4", "beam = 5"))
    with pytest.raises(UsageError, match=rf"run\.toml: changed since .*delete {SUMS}"):
        open_folder(tmp_path)
    (tmp_path / SUMS).unlink()
    assert open_folder(tmp_path).decode.beam == 5


def test_an_error_is_put_down_to_the_file_that_changed(tmp_path: Path) -> None:
    write_model(tmp_path, 1)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"d_model": 16', '"d_model": 32'))
    with pytest.raises(UsageError, match=r"one of the two is wrong; .*config\.json: changed since"):
        open_folder(tmp_path)


def test_a_large_file_is_hashed_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a model once read all of its weights for their hash, every time."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(checksums, "REMEMBERED_ABOVE", 1000)
    hashed: list[str] = []
    monkeypatch.setattr(checksums, "sha256", lambda path: hashed.append(path.name) or sha256(path))
    model = tmp_path / "model"
    write_model(model, 1)
    weights = model / "model.safetensors"
    for _ in range(2):  # just written: a second change could have the same time, so nothing is remembered
        hashed.clear()
        open_folder(model)
        assert "model.safetensors" in hashed
    before = time.time() - 60
    os.utime(weights, (before, before))
    open_folder(model)
    hashed.clear()
    open_folder(model)
    assert "model.safetensors" not in hashed and "config.json" in hashed  # small files are always hashed
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    os.utime(weights, (before, before))  # size and time as before: the change of the inode is newer
    with pytest.raises(UsageError, match=r"model\.safetensors: changed since"):
        open_folder(model)
    content[-1] ^= 1
    weights.write_bytes(content)
    os.utime(weights, (before, before))
    monkeypatch.setenv("REGARD_CACHE", "/dev/null/none")  # a cache that cannot be written
    open_folder(model)


def test_opening_a_checkpoint_reads_no_optimizer_state(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, 5, checkpoint(5))
    (folder / "optimizer.safetensors").write_bytes(b"damaged")
    assert load_weights(folder).keys() == {"w", "b"}
    with pytest.raises(UsageError, match=r"optimizer\.safetensors"):
        load_checkpoint(folder)
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(UsageError, match=r"model\.safetensors"):
        load_weights(folder)


def test_the_sums_are_no_way_out_of_the_folder(tmp_path: Path) -> None:
    write_model(tmp_path / "model", 1)
    (tmp_path / "secret").write_text("x")
    (tmp_path / "model" / SUMS).unlink()
    (tmp_path / "model" / SUMS).symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="leads out"):
        open_folder(tmp_path / "model")
    (tmp_path / "model" / SUMS).unlink()
    (tmp_path / "model" / SUMS).write_text(f"{'0' * 64}  ../secret\n")
    with pytest.raises(UsageError, match=f"{SUMS}: damaged"):
        open_folder(tmp_path / "model")
