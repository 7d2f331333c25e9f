"""Several processes train as one: the losses, the samples and the checkpoints of a single process."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from qa.survive.common import TEXTS, patched, write_model
from qa.survive.parallel import changed, free_port, ids, losses, run_of, together
from qa.survive.runs import ODD, bits, no_end, toy
from regard.cli import translate_workers as workers
from regard.cli.translate import TranslateCommand
from regard.config import Config, resolve
from regard.models.families import build, build_meta
from regard.sample import IGNORED
from regard.storage import checkpoint_folder, checkpoint_steps, load_checkpoint
from regard.tasks.spec import TASKS
from regard.training import train
from regard.training.distributed import Distributed, SingleProcess, local_threads, world_size
from regard.training.loss import multi_label_cross_entropy
from regard.training.peers import Peers
from regard.training.stream import Stream, without_labels
from regard.training.trainer import dropout_seed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loopback device is called lo")
UPDATES = 10
KINDS = ("ddp", "fsdp")
ODD_SECOND = 5  # a seed with which the second process soon has the odd sample


def plain(place: Path) -> Config:
    """Double precision and no dropout: what differs is a mistake."""
    config = toy(place, precision="float64", steps=UPDATES, checkpoint_every=5, seed=3)
    return changed(config, {"dropout": 0.0}, validate_every=5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the same run by one process and, started once, by two in several ways."""
    place = tmp_path_factory.mktemp("parallel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(place / "cache"))
        config = plain(place)
        dropping = changed(config, {"dropout": 0.1}, precision="float32")
        runs = [run_of(changed(config, parallel=kind), place / kind) for kind in KINDS]
        runs += [
            run_of(changed(config, parallel=kind, gradients="bfloat16"), place / f"short-{kind}")
            for kind in KINDS
        ]
        runs.append(run_of(dropping, place / "whole"))
        runs.append(run_of(changed(dropping, steps=5), place / "cut"))
        runs.append(run_of(dropping, place / "cut", resume=True))
        odd = changed(dropping, seed=ODD_SECOND)
        runs += [
            run_of(changed(odd, parallel=kind), place / f"odd-{kind}", spoil="gradient") for kind in KINDS
        ]
        assert together(2, place, runs) == ""
        with patched(no_end()):
            train(config, place / "one")
        yield place


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_have_the_losses_of_one(trained, kind):
    """Every update's and both validations'; decoded sentences too."""
    expected, found = losses(trained / "one"), losses(trained / kind)
    assert len(expected) == UPDATES + 2
    assert found == pytest.approx(expected, abs=1e-10, rel=0)
    kept = ("bleu", "chrf", "exact", "sample")
    for one, two in zip(valid(trained / "one"), valid(trained / kind), strict=True):
        assert {key: one[key] for key in kept} == {key: two[key] for key in kept}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_in_bfloat16_are_rounded_and_no_more(trained, kind):
    """The first loss is before any gradient; the batches accumulated in an update are sent once."""
    expected, found = losses(trained / "one"), losses(trained / f"short-{kind}")
    assert found[0] == pytest.approx(expected[0], abs=1e-12)
    assert found != pytest.approx(expected, abs=1e-10, rel=0)
    assert found == pytest.approx(expected, rel=0.01)


def valid(folder: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "valid"]


@pytest.mark.parametrize("kind", KINDS)
def test_their_samples_are_those_of_one_in_its_order(trained, kind):
    found = ids(trained / kind, 2)
    config = plain(trained)
    from regard.training.prepare import prepare_data

    data = prepare_data(config, trained / "one", lambda text: None)
    stream = Stream(data.training, data.objective, config.train.tokens_per_batch, config.train.seed)
    for (epoch, pool, place), numbers in found.items():
        stream.next()
        assert (stream.epoch, stream.pool, stream.batch - 1) == (epoch, pool, place)
        assert stream.batches[place].tolist() == numbers
    assert len(found) == UPDATES * config.train.accumulate


@pytest.mark.parametrize("kind", KINDS)
def test_their_checkpoint_goes_on_in_one_process(trained, kind):
    """Whole weights and optimiser: step 5 of two processes, then steps 6 to 10 of one."""
    import shutil

    folder = trained / f"{kind}-then-one"
    shutil.copytree(trained / kind, folder)
    shutil.rmtree(checkpoint_folder(folder, UPDATES))
    with patched(no_end()):
        train(None, folder, resume=True)
    assert losses(folder) == pytest.approx(losses(trained / "one"), abs=1e-10, rel=0)
    found, expected = (
        load_checkpoint(checkpoint_folder(each, UPDATES)) for each in (folder, trained / "one")
    )
    assert found.state["tokens"] == expected.state["tokens"]
    assert found.state["flops"] > 0
    assert found.optimizer.keys() == expected.optimizer.keys()


def test_two_processes_resume_with_equal_bits(trained):
    """Dropout included: it is a function of seed, step and rank."""
    found, expected = (bits(trained / name) for name in ("cut", "whole"))
    assert losses(trained / "cut") == losses(trained / "whole")
    del found["metrics"], expected["metrics"]  # they tell of the limit, which was another
    assert found == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_one_process_spoils_is_left_out_by_all(trained, kind):
    """The second process has the odd sample, whose gradient is infinite: neither learns from that update, the
    first one names the sample though the other had it, and their weights stay the same.
    """
    told = [json.loads((trained / f"odd-{kind}.{rank}.end").read_text()) for rank in (0, 1)]
    lines = [
        json.loads(line) for line in (trained / f"odd-{kind}" / "metrics.jsonl").read_text().splitlines()
    ]
    bad = [line for line in lines if line["kind"] == "bad"]
    assert [each["bad"] for each in told] == [len(bad)] * 2 and bad
    assert {line["reason"] for line in bad} == {"gradient"}
    for line in bad:
        texts = json.loads((trained / f"odd-{kind}" / line["file"]).read_text())["texts"]
        odd = [name for name, pair in texts.items() if ODD in pair[0].split()]
        assert len(odd) == 1 and int(odd[0].split("-")[-1]) % 2 == 1  # a sample of the second process
    if kind == "ddp":  # by the other each has other weights
        assert told[0]["weights"] == told[1]["weights"]
    assert all(
        torch.isfinite(each).all() for each in load_checkpoint(last(trained / f"odd-{kind}")).model.values()
    )


def last(folder: Path) -> Path:
    return checkpoint_folder(folder, checkpoint_steps(folder)[-1])


def test_a_process_without_a_share_learns_nothing(trained):
    """Of a batch that is smaller than the number of processes."""
    config = plain(trained)
    from regard.training.prepare import prepare_data

    data = prepare_data(config, trained / "one", lambda text: None)
    whole = Stream(data.training, data.objective, 128, 1)
    many = len(whole.batches[0]) + 1
    shares = [Stream(data.training, data.objective, 128, 1, rank=r, world_size=many) for r in range(many)]
    labels = [share.next().labels for share in shares]
    assert all(len(each) == 1 for each in labels)
    assert [bool((each != IGNORED).any()) for each in labels] == [True] * (many - 1) + [False]
    assert sum(int((each != IGNORED).sum()) for each in labels) == int((whole.next().labels != IGNORED).sum())
    assert set(without_labels(whole.rows.sample(0, None)).labels) == {IGNORED}
    assert multi_label_cross_entropy(torch.randn(2, 1, 3), torch.full((2, 3), IGNORED)) == 0


def test_by_itself_a_process_asks_nobody(monkeypatch):
    dist = SingleProcess()
    assert world_size() == 1
    assert dist.all_reduce(3, 0.1) == (3, 0.1)
    assert [dist.map_sharded([1, 2], list), dist.on_rank0(lambda: 5)] == [[1, 2], 5]
    assert local_threads(0) == 0
    monkeypatch.setenv("WORLD_SIZE", "64")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "64")
    assert (local_threads(0), local_threads(3)) == (1, 3)


def test_fsdp_needs_no_full_model_on_a_device(monkeypatch):
    """Each process built the whole model, moved it to its device and copied it before it was sharded. Now it
    is built on the meta device and sharded; then rank 0 hands out one parameter after the other."""
    shape = resolve({"data": {"train": "phrasebook"}, "model": {"width": 16, "heads": 2}}).model
    model, weights = build_meta(shape, 40), dict(build(shape, 40).named_parameters())
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(free_port()))
        dist, device = Distributed(torch.device("cpu"), Peers(0, 1, 60.0, "test")), torch.device("cpu")
        assert dist.shards("fsdp") and not dist.shards("ddp") and not SingleProcess().shards("fsdp")
        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.Module, "to", lambda *_: pytest.fail("a full model on a device"))
            dist.wrap(model, lambda batch: torch.zeros(()), "fsdp", device)
            assert all(parameter.is_meta for parameter in (*dist.skeleton.parameters(), *model.parameters()))
            dist.fill_shards(model, weights)
        assert all(hasattr(parameter, "to_local") for parameter in model.parameters())
        assert model.output.weight is model.target.tokens.weight, "shared parameters stay shared"
        copy = dist.unsharded(model)
    finally:
        torch.distributed.destroy_process_group()
    assert dict.fromkeys(weights, True) == {
        name: torch.equal(tensor, weights[name]) for name, tensor in copy.named_parameters()
    }
    assert copy.output.weight is copy.target.tokens.weight, "shared parameters stay shared"


def test_dropout_of_the_first_rank_is_that_of_one_process():
    assert dropout_seed(1, 2, 3) == dropout_seed(1, 2, 3, rank=0)
    numbers = [(step, batch, rank) for step in range(9) for batch in (0, 1) for rank in range(9)]
    for version in (1, 2):
        assert len({dropout_seed(1, *each, version=version) for each in numbers}) == 162


def test_translating_with_workers_keeps_the_order_and_survives(tmp_path, monkeypatch, capsys):
    """One of two processes is killed, then the command is cut off before the output is there."""
    model, output = tmp_path / "model", tmp_path / "out.txt"
    write_model(model, seed=1)
    lines = [f"{text} {number}" for number, text in enumerate(TEXTS[:24])]
    job = TranslateCommand(scores=True)
    job.shows_all = False
    job.options = {name: each.default for name, each in TASKS["translate"].options.items()} | {"beam": 1}
    job.model, job.device, job.threads, job.precision, job.as_json = [model], "cpu", 1, "auto", False
    start_process, started = workers.WorkerProcesses.start, list[int]()

    def start_and_kill(processes):
        line = start_process(processes)
        process = processes.running[line][0]
        started.append(process.pid)
        if len(started) == 1:
            os.kill(process.pid, signal.SIGKILL)
        return line

    def cut_off(parts, output):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(workers.WorkerProcesses, "start", start_and_kill)
        patch.setattr(workers, "join", cut_off)
        with pytest.raises(KeyboardInterrupt):
            workers.translate_in_parts(job, lines, 2, output, at_once=5)
    assert len(started) == 3
    assert "done again" in capsys.readouterr().err
    assert not output.exists()

    def nothing_to_do(processes, portion):
        raise AssertionError(f"portion {portion.first} is done twice")

    monkeypatch.setattr(workers.WorkerProcesses, "start", lambda processes: None)
    monkeypatch.setattr(workers.WorkerProcesses, "give", nothing_to_do)
    workers.translate_in_parts(job, lines, 2, output, at_once=5)
    assert "5 of 5 portions were there" in capsys.readouterr().err
    job.open()
    expected = [row for start in range(0, 24, 5) for row in job(lines[start : start + 5], start + 1)]
    assert output.read_text().splitlines() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out.txt"]
