"""Runs whose numbers, disk or data go wrong: nothing is lost, and one sentence says what to do."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import regard.training.trainer as trainer_module
from qa.survive import runs
from qa.survive.failing import Failing
from regard.errors import RegardError
from regard.storage import checkpoint_folder, checkpoint_steps, is_complete, use_disk
from regard.training import train
from regard.training.progress import is_spike, non_finite_reason, running_mean
from regard.training.trainer import Trainer

SHORT = {"steps": 18, "checkpoint_every": 4, "validate_every": 18, "bad_steps_in_a_row": 2}


@pytest.fixture(autouse=True)
def quick(same_threads: None) -> Iterator[None]:
    with runs.patched(runs.no_end()):
        yield


@pytest.mark.parametrize("kind", ["gradient", "spike"])
def test_one_odd_sample_is_left_out_told_and_found_again(kind: str, tmp_path: Path) -> None:
    assert runs.odd_sample(tmp_path, kind, runs.toy(tmp_path, **SHORT)) == ""


def test_the_watch_over_the_weights_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "non_finite_reason", lambda *numbers: None)
    monkeypatch.setattr(trainer_module, "refuse_non_finite", lambda *tensors: None)
    config = runs.toy(tmp_path, **{**SHORT, "steps": 12, "validate_every": 100})
    with pytest.raises((AssertionError, RegardError)):
        assert runs.odd_sample(tmp_path, "gradient", config) == ""


def test_an_update_with_nothing_to_learn_from_is_left_out(tmp_path: Path) -> None:
    assert runs.empty_batch(tmp_path, runs.toy(tmp_path, **SHORT)) == ""


def test_several_in_a_row_end_the_run_and_it_can_go_on(tmp_path: Path) -> None:
    assert runs.stops(tmp_path, runs.toy(tmp_path, **SHORT)) == ""


def test_going_back_gives_the_same_bits_twice_and_after_a_stop(tmp_path: Path) -> None:
    assert runs.goes_back(tmp_path, runs.toy(tmp_path, **{**SHORT, "bad_steps_in_a_row": 3})) == ""
    lines = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    text = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    section = text[text.index("## Non-finite updates and spikes") :].split("\n## ")[0]
    (record,) = [line for line in lines if line["kind"] == "back"]
    assert record.keys() - {"kind", "step"} == documented(section, "back")
    (kept,) = {tuple(json.loads(file.read_text())) for file in (tmp_path / "one" / "bad").iterdir()}
    assert {"step", "reason", "seed", "batches", "texts"} <= set(kept)


def test_a_roll_back_deletes_the_checkpoints_after_its_target(tmp_path: Path) -> None:
    """A stop during the non-finite updates saves a checkpoint at a scheduled step. After the roll-back that
    step is trained again with other batches, but saving it kept the old folder: a model was published, or
    resumed, that was never validated."""
    fields = {"bad_steps_in_a_row": 3, "on_bad": "back", "keep": 9, "validate_every": 4}
    config = runs.toy(tmp_path, **{**SHORT, **fields})
    with runs.bad_stretch((1, 0), (1, 8)):
        train(config, tmp_path / "whole")
        whole = runs.bits(tmp_path / "whole")
        stop = whole["state"]["trouble"] - 1
        assert stop % 4 == 0 and whole["state"]["backs"] == 1, "the stop has to fall on a scheduled step"
        with runs.stopped(stop, "first"):
            assert train(config, tmp_path / "cut").step == stop
        states = [json.loads((checkpoint_folder(tmp_path / "cut", stop) / "state.json").read_text())]
        assert train(None, tmp_path / "cut", resume=True).finished
    states.append(json.loads((checkpoint_folder(tmp_path / "cut", stop) / "state.json").read_text()))
    assert [state["bad_in_a_row"] for state in states] == [2, 0]
    assert [state["backs"] for state in states] == [0, 1]
    assert runs.bits(tmp_path / "cut") == whole


def test_a_stop_in_the_middle_of_the_trouble_is_saved(tmp_path: Path) -> None:
    """Where a checkpoint was due, nothing is saved while updates go wrong; a signal then left without one."""
    config = runs.toy(tmp_path, **{**SHORT, "bad_steps_in_a_row": 100})
    with runs.bad_stretch((1, 0), (9, 0)), runs.stopped(16, "first"):
        outcome = train(config, tmp_path / "run")
    assert (outcome.step, outcome.finished, checkpoint_steps(tmp_path / "run")[-1]) == (16, False, 16)
    state = json.loads((checkpoint_folder(tmp_path / "run", 16) / "state.json").read_text())
    assert 0 < state["bad_in_a_row"] == state["bad"]


def documented(section: str, kind: str) -> set[str]:
    rows = re.findall(rf"^\| `{kind}` \| (.*?) \|", section, re.M)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_records_of_wrong_numbers_are_documented(tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    section = text[text.index("## Non-finite updates and spikes") :].split("\n## ")[0]
    with runs.spoiling(runs.SPOILS["loss nan"], lambda batch: True), pytest.raises(RegardError):
        train(runs.toy(tmp_path, **SHORT), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (fields,) = {frozenset(line) - {"kind", "step"} for line in lines if line["kind"] == "bad"}
    assert fields == documented(section, "bad")
    assert documented(section, "spike") == {"loss", "usual", "gradient_norm"}


# --- the disk and the data


@pytest.mark.parametrize(
    ("kind", "word"), [("ENOSPC", "the disk is full"), ("EROFS", "make the folder writable")]
)
def test_a_disk_that_fails_in_the_middle_ends_the_run_with_a_sentence(
    kind: str, word: str, tmp_path: Path
) -> None:
    config = runs.toy(tmp_path, **SHORT)
    disk = Failing(1 << 30, kind, stays=True)

    def fails_now(record: object) -> None:
        disk.at = disk.calls + 1 if len(checkpoint_steps(tmp_path / "run")) == 1 else disk.at

    with (
        use_disk(disk),
        pytest.raises(RegardError, match=rf"{word}.*") as caught,
    ):
        train(config, tmp_path / "run", listeners=[SimpleNamespace(record=fails_now)])
    said = str(caught.value)
    assert re.search(r"\([\d,]+ bytes free\); ", said) and str(tmp_path / "run") in said and "\n" not in said
    assert [
        is_complete(checkpoint_folder(tmp_path / "run", step)) for step in checkpoint_steps(tmp_path / "run")
    ] == [True]
    assert train(None, tmp_path / "run", resume=True).finished


def test_prepared_data_that_was_cut_short_is_told_and_the_state_saved(tmp_path: Path) -> None:
    """Reading behind the end of a mapped file once ended the process with SIGBUS, and without a word."""
    config = runs.toy(tmp_path, **SHORT)
    update = Trainer.update

    def cutting(trainer: Trainer):
        if trainer.progress.step == 2:
            file = Path(trainer.stream.dataset.parts[0].shards[0].source.ids.filename)
            file.write_bytes(file.read_bytes()[:200])
        return update(trainer)

    with runs.patched((Trainer, "update", cutting)), pytest.raises(RegardError) as caught:
        train(config, tmp_path / "run")
    assert re.search(
        r"shorter than when the run began; .* the run is saved up to step \d+", str(caught.value)
    )
    assert is_complete(checkpoint_folder(tmp_path / "run", checkpoint_steps(tmp_path / "run")[-1]))


def test_data_that_vanishes_in_the_middle_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    config = runs.toy(tmp_path, **SHORT)
    update = Trainer.update

    def deleting(trainer: Trainer):
        for file in [*(tmp_path / "cache").rglob("*.npy"), tmp_path / "train.tsv"]:
            file.unlink(missing_ok=True)
        return update(trainer)

    with runs.patched((Trainer, "update", deleting)):
        assert train(config, tmp_path / "run").finished
    with pytest.raises(RegardError, match=r"train\.tsv"):
        train(None, tmp_path / "run", resume=True)


def test_an_error_in_an_update_does_not_lose_what_was_learned(tmp_path: Path) -> None:
    def broken(trainer: Trainer, batch: object):
        if trainer.progress.step == 6:
            raise OSError(errno.EIO, "Input/output error")
        return loss(trainer, batch)

    loss = Trainer.loss
    with (
        runs.patched((Trainer, "loss", broken)),
        pytest.raises(RegardError, match="is saved up to step 6"),
    ):
        train(runs.toy(tmp_path, **SHORT), tmp_path / "run")
    assert checkpoint_steps(tmp_path / "run")[-1] == 6
    assert train(None, tmp_path / "run", resume=True).finished


# --- the rules


def test_non_finite_reasons_and_spikes() -> None:
    good, infinite = 1.0, float("inf")
    assert non_finite_reason(good, 5, good) is None and non_finite_reason(good, 0, good) == "empty"
    assert non_finite_reason(float("nan"), 5, good) == non_finite_reason(infinite, 5, infinite) == "loss"
    assert non_finite_reason(good, 5, infinite) == "gradient"
    usual = None
    for _ in range(100):
        usual = running_mean(usual, 3.0)
    assert usual == 3.0 and is_spike(31.0, usual) and not is_spike(29.0, usual) and not is_spike(9.0, 0.01)
    assert not is_spike(1e9, None)
