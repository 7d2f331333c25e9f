"""Runs whose numbers, disk or data go wrong: nothing is lost, and one sentence says what to do."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard.training.loop as loop
from regard.batch import collate
from regard.errors import RegardError
from regard.sample import Sample
from regard.storage import checkpoint_folder, checkpoint_steps, is_complete, use_disk
from regard.training import train
from regard.training.trouble import (
    TRIALS,
    as_batch,
    as_lists,
    follow,
    halved,
    is_spike,
    picked,
    what_is_wrong,
)
from survive import runs
from survive.failing import Failing

SHORT = {"steps": 18, "checkpoint_every": 4, "validate_every": 18, "bad_steps_in_a_row": 2}


@pytest.fixture(autouse=True)
def quick(same_threads: None) -> Iterator[None]:
    with runs.patched(runs.no_end()):
        yield


@pytest.mark.parametrize("kind", ["gradient", "spike"])
def test_one_odd_sample_is_left_out_told_and_found_again(kind: str, tmp_path: Path) -> None:
    assert runs.odd_sample(tmp_path, kind, runs.toy(tmp_path, **SHORT)) == ""


def test_the_watch_over_the_weights_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "what_is_wrong", lambda *numbers: None)
    monkeypatch.setattr(loop, "refuse_broken", lambda *tensors: None)
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
    section = text[text.index("## When numbers go wrong") :].split("\n## ")[0]
    (record,) = [line for line in lines if line["kind"] == "back"]
    assert record.keys() - {"kind", "step"} == documented(section, "back")
    (kept,) = {tuple(json.loads(file.read_text())) for file in (tmp_path / "one" / "bad").iterdir()}
    assert {"step", "reason", "seed", "batches", "texts"} <= set(kept)


def test_a_stop_in_the_middle_of_the_trouble_is_saved(tmp_path: Path) -> None:
    """Where a checkpoint was due, nothing is saved while updates go wrong; a signal then left without one."""
    config = runs.toy(tmp_path, **{**SHORT, "bad_steps_in_a_row": 100})
    with runs.bad_stretch((1, 0), (9, 0)), runs.stopped(17, "first"):  # while the 16th is looked at
        outcome = train(config, tmp_path / "run")
    assert (outcome.step, outcome.finished, checkpoint_steps(tmp_path / "run")[-1]) == (16, False, 16)
    state = json.loads((checkpoint_folder(tmp_path / "run", 16) / "state.json").read_text())
    assert 0 < state["bad_in_a_row"] == state["bad"]


def documented(section: str, kind: str) -> set[str]:
    rows = re.findall(rf"^\| `{kind}` \| (.*?) \|", section, re.M)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_records_of_wrong_numbers_are_documented(tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    section = text[text.index("## When numbers go wrong") :].split("\n## ")[0]
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
        runs.patched((runs.run.Silent, "record", lambda self, record: fails_now(record))),
    ):
        train(config, tmp_path / "run")
    said = str(caught.value)
    assert re.search(r"\([\d,]+ bytes free\); ", said) and str(tmp_path / "run") in said and "\n" not in said
    assert [
        is_complete(checkpoint_folder(tmp_path / "run", step)) for step in checkpoint_steps(tmp_path / "run")
    ] == [True]
    assert train(None, tmp_path / "run", resume=True).finished


def test_prepared_data_that_was_cut_short_is_told_and_the_state_saved(tmp_path: Path) -> None:
    """Reading behind the end of a mapped file once ended the process with SIGBUS, and without a word."""
    config = runs.toy(tmp_path, **SHORT)
    update = loop.Trainer.update

    def cutting(trainer: loop.Trainer):
        if trainer.progress.step == 2:
            file = Path(trainer.stream.dataset.parts[0].shards[0].source.ids.filename)
            file.write_bytes(file.read_bytes()[:200])
        return update(trainer)

    with runs.patched((loop.Trainer, "update", cutting)), pytest.raises(RegardError) as caught:
        train(config, tmp_path / "run")
    assert re.search(
        r"shorter than when the run began; .* what was learned up to step \d+ is saved", str(caught.value)
    )
    assert is_complete(checkpoint_folder(tmp_path / "run", checkpoint_steps(tmp_path / "run")[-1]))


def test_data_that_vanishes_in_the_middle_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    config = runs.toy(tmp_path, **SHORT)
    update = loop.Trainer.update

    def deleting(trainer: loop.Trainer):
        for file in [*(tmp_path / "cache").rglob("*.npy"), tmp_path / "train.tsv"]:
            file.unlink(missing_ok=True)
        return update(trainer)

    with runs.patched((loop.Trainer, "update", deleting)):
        assert train(config, tmp_path / "run").finished
    with pytest.raises(RegardError, match=r"train\.tsv"):
        train(None, tmp_path / "run", resume=True)


def test_an_error_in_an_update_does_not_lose_what_was_learned(tmp_path: Path) -> None:
    def broken(trainer: loop.Trainer, batch: object):
        if trainer.progress.step == 6:
            raise OSError(errno.EIO, "Input/output error")
        return loss(trainer, batch)

    loss = loop.Trainer.loss
    with (
        runs.patched((loop.Trainer, "loss", broken)),
        pytest.raises(RegardError, match="up to step 6 is saved"),
    ):
        train(runs.toy(tmp_path, **SHORT), tmp_path / "run")
    assert checkpoint_steps(tmp_path / "run")[-1] == 6
    assert train(None, tmp_path / "run", resume=True).finished


# --- laws


@given(rows=st.integers(1, 40), data=st.data())
def test_halving_finds_the_rows_to_blame(rows: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, rows - 1), max_size=3))
    batch = collate([Sample(source=[5, number], target=[1, 2], labels=[3, number]) for number in range(rows)])

    def is_bad(part):
        return bool(set(part.source.ids[:, 1].tolist()) & bad)

    assert halved(batch, list(range(rows)), is_bad, iter(range(TRIALS))) == sorted(bad)
    assert set(bad) <= set(halved(batch, list(range(rows)), is_bad, iter(range(3))))


def test_a_batch_is_read_back_as_it_was_written() -> None:
    batch = collate([Sample(source=[5, 6], target=[1, 2, 3], labels=[3, 4, 5]), Sample([7], [1], [9])])
    again = as_batch(json.loads(json.dumps(as_lists(batch))))
    assert as_lists(again) == as_lists(batch)
    assert np.array_equal(picked(batch, [1]).labels, batch.labels[1:])


def test_what_is_wrong_with_numbers() -> None:
    good, infinite = 1.0, float("inf")
    assert what_is_wrong(good, 5, good) is None and what_is_wrong(good, 0, good) == "empty"
    assert what_is_wrong(float("nan"), 5, good) == what_is_wrong(infinite, 5, infinite) == "loss"
    assert what_is_wrong(good, 5, infinite) == "gradient"
    usual = None
    for _ in range(100):
        usual = follow(usual, 3.0)
    assert usual == 3.0 and is_spike(31.0, usual) and not is_spike(29.0, usual) and not is_spike(9.0, 0.01)
    assert not is_spike(1e9, None)
