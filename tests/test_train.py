"""The real trainer: it learns, accumulates exactly, and resumes with the same bits from every step."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import pytest
import tomli_w
import torch
from safetensors.torch import load_file

from regard.batch import collate
from regard.config import Config, load_config, parse_model, resolve, to_tree
from regard.device import choose_machine, release_memory
from regard.errors import RegardError, UsageError
from regard.storage import checkpoint_folder, checkpoint_steps
from regard.tasks import load
from regard.training import Listener, train
from regard.training.prepare import prepare_data
from regard.training.progress import read_metrics
from regard.training.run import make_trainer, with_machine
from regard.training.trainer import dropout_seed
from sampled import sampled
from samples import of_family, random_samples

LETTERS = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]


def pairs(change, count: int, seed: int) -> list[tuple[str, str]]:
    """Distinct lines of letters, and what `change` makes of them."""
    chance, found = random.Random(seed), {}
    while len(found) < count:
        words = [chance.choice(LETTERS) for _ in range(chance.randint(2, 6))]
        found[" ".join(words)] = " ".join(change(words))
    return list(found.items())


def write_tsv(path: Path, rows: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{left}\t{right}\n" for left, right in rows))
    return str(path)


def toy(tmp_path: Path, change=list, count: int = 400, **train_fields: object) -> Config:
    rows = pairs(change, count + 50, seed=1)
    tree = {
        "data": {
            "train": write_tsv(tmp_path / "train.tsv", rows[50:]),
            "valid": write_tsv(tmp_path / "valid.tsv", rows[:50]),
        },
        "text": {"kind": "word", "vocabulary": 400},
        "model": {"width": 32, "layers": 1, "heads": 4, "feed_forward": 64, "dropout": 0.1, "max_length": 20},
        "train": {"steps": 12, "tokens_per_batch": 128, "checkpoint_every": 4, "threads": 1, **train_fields},
        "decode": {"max_length": 12},  # before it has learnt, a model writes on and on
    }
    return resolve(tree)


def final_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Weights of the folder, and weights and optimiser of its last checkpoint."""
    last = checkpoint_folder(folder, checkpoint_steps(folder)[-1])
    files = [folder / "model.safetensors", last / "model.safetensors", last / "optimizer.safetensors"]
    return {f"{n}:{name}": t for n, file in enumerate(files) for name, t in load_file(file).items()}


def assert_same_bits(one: Path, other: Path) -> None:
    left, right = final_tensors(one), final_tensors(other)
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name], right[name])] == []
    ignore = {"seconds", "updating", "waiting", "validating", "saving"}
    states = [
        json.loads((checkpoint_folder(f, checkpoint_steps(f)[-1]) / "state.json").read_text())
        for f in (one, other)
    ]
    assert {k: v for k, v in states[0].items() if k not in ignore} == {
        k: v for k, v in states[1].items() if k not in ignore
    }


@pytest.mark.parametrize(
    ("name", "change"),
    [
        pytest.param("copy", list, marks=pytest.mark.slow),
        ("reverse", lambda words: words[::-1]),
        pytest.param("sort", sorted, marks=pytest.mark.slow),
    ],
)
def test_the_trainer_learns(tmp_path, name, change):
    """Copying, reversing and sorting letters: untrained none is right, trained nearly all unseen ones."""
    config = toy(
        tmp_path,
        change,
        count=3000,
        steps=250,
        tokens_per_batch=512,
        checkpoint_every=250,
        lr=1e-2,
        schedule="linear",
        label_smoothing=0.0,
    )
    own = {"dropout": 0.0, "layers": 2, "norm": "pre"}
    still = config.model_copy(update={"model": config.model.model_copy(update=own)})
    config = still.model_copy(update={"train": still.train.model_copy(update={"warmup": 40})})
    one_step = config.model_copy(update={"train": config.train.model_copy(update={"steps": 1})})
    untrained = train(one_step, tmp_path / "raw")
    trained = train(config, tmp_path / name)
    unseen = pairs(change, 3150, seed=1)[3050:]
    model = load(tmp_path / name, device="cpu", threads=1)
    right = sum(model.translate(left) == answer for left, answer in unseen)
    assert untrained.records[0]["exact"] < 0.05
    assert trained.records[0]["exact"] >= 0.9 and right >= 90


def trainer_for(tmp_path: Path, family: str = "transformer", **fields: object):
    config = toy(tmp_path, precision="float64", **fields)
    own = {**config.model.model_dump(exclude={"positions"}), "family": family, "dropout": 0.0}
    config = config.model_copy(update={"model": parse_model(of_family(own))})
    machine = choose_machine("cpu", "float64", 1)
    config = with_machine(config, machine)
    data = prepare_data(config, tmp_path / "run", lambda text: None)
    return make_trainer(config, tmp_path / "run", data, machine)


def test_the_words_of_a_t5_learn_as_fast_as_those_of_others(tmp_path: Path) -> None:
    """They begin at unit size and its queries small, but a step of Adam is as long for all: a T5 of width 128
    stood at a loss of 4.5 where the Transformer of its size had 3.2, and never learned its two tasks."""
    rate = 1e-3
    trainer = trainer_for(tmp_path, "t5", schedule="constant", lr=rate, warmup=0, clip=0.0)
    before = {name: tensor.detach().clone() for name, tensor in trainer.model.named_parameters()}
    trainer.update()
    after = {name: tensor.detach() for name, tensor in trainer.model.named_parameters()}
    moved = {name: float((after[name] - before[name]).abs().max()) for name in after}
    assert moved["source.tokens.weight"] == pytest.approx(rate * 32**0.5, rel=0.01)
    assert moved["decoder.blocks.0.cross.query.weight"] == pytest.approx(rate * 8**-0.5, rel=0.01)
    assert moved["decoder.blocks.0.cross.key.weight"] == pytest.approx(rate, rel=0.01)


def test_accumulation_equals_the_large_batch(tmp_path):
    """Unequal batches: a mean of means would weigh the short one's words more."""
    trainer = trainer_for(tmp_path)
    samples = random_samples(9, 3, longest=12, vocabulary=16)
    parts = [collate(samples[:1]), collate(samples[1:3]), collate(samples[3:])]
    gradients = []
    for batches in ([collate(samples)], parts):
        trainer.backward(batches, step=1)
        gradients.append({n: p.grad.clone() for n, p in trainer.model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-13, rtol=1e-9)


class StopAt(Listener):
    """Ctrl-C at a step, as a person would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def record(self, record):
        if record["kind"] == "train" and record["step"] == self.step:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("stops", sampled([(1, 4, 11), (3, 6, 8)], (1, 4, 11)))
def test_resuming_from_every_step_gives_the_same_bits(tmp_path, stops):
    """Over epoch borders, inside the checkpoint interval, with dropout, accumulation and averaging."""
    options = {
        "log_every": 1,
        "accumulate": 2,
        "average": 2,
        "validate_sentences": 5,
        "tokens_per_batch": 512,
    }
    config = toy(tmp_path, **options)
    whole = train(config, tmp_path / "whole")
    assert whole.finished and whole.step == 12
    again = train(config, tmp_path / "again")
    assert_same_bits(tmp_path / "whole", tmp_path / "again")
    assert again.records[0]["loss"] == whole.records[0]["loss"]
    for stop in stops:
        folder = tmp_path / f"cut-{stop}"
        first = train(config, folder, listeners=[StopAt(stop)])
        assert not first.finished and first.step == stop
        second = train(None if stop % 2 else config, folder, resume=True)
        assert second.finished
        assert_same_bits(tmp_path / "whole", folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 13))


def test_a_torn_checkpoint_is_passed_over(tmp_path):
    config = toy(tmp_path)
    train(config, tmp_path / "whole")
    folder = tmp_path / "torn"
    train(config, folder)
    newest = checkpoint_folder(folder, 12) / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-7])
    train(None, folder, resume=True)
    assert_same_bits(tmp_path / "whole", folder)


def test_runs_are_not_overwritten_and_not_mixed(tmp_path):
    config, folder = toy(tmp_path), tmp_path / "run"
    train(config, folder)
    with pytest.raises(UsageError, match="already holds a run"):
        train(config, folder)
    other = config.model_copy(update={"train": config.train.model_copy(update={"seed": 9})})
    with pytest.raises(UsageError, match=r"train\.seed"):
        train(other, folder, resume=True)
    longer = config.model_copy(update={"train": config.train.model_copy(update={"steps": 16})})
    assert train(longer, folder, resume=True).step == 16
    (tmp_path / "train.tsv").write_text((tmp_path / "train.tsv").read_text() + "a b\ta b\n")
    with pytest.raises(RegardError, match="data is not what this run began with"):
        train(None, folder, resume=True)
    with pytest.raises(UsageError, match="no run to resume"):
        train(None, tmp_path / "nothing", resume=True)


def test_limits_and_early_stopping(tmp_path):
    config = toy(tmp_path, steps=1000, epochs=0.5, tokens_per_batch=64, validate_sentences=0)
    outcome = train(config, tmp_path / "half")
    state = json.loads((checkpoint_folder(tmp_path / "half", outcome.step) / "state.json").read_text())
    assert 5 < outcome.step < 1000 and state["epoch"] == 0
    assert len(checkpoint_steps(tmp_path / "half")) <= 4, "keep = 3, and the best"
    # a rate of nearly nothing: no validation is better than the first by much, so patience runs out
    stale = toy(tmp_path, steps=1000, lr=1e-12, checkpoint_every=2, patience=2, metric="bleu")
    assert train(stale, tmp_path / "stale").step < 20


def test_a_run_of_so_many_epochs_warms_up_in_a_tenth_of_them(tmp_path):
    """`epochs = 3` and no word of steps: the warm-up was the 4,000 updates of a run of 100,000, so that a
    fine-tuning of a few hundred was over before its rate had risen, and learned nothing."""
    tree = to_tree(toy(tmp_path, epochs=1.5, tokens_per_batch=128, lr=1e-3, schedule="linear", log_every=1))
    for name in ("steps", "warmup"):
        del tree["train"][name]
    config = resolve(tree)
    outcome = train(config, tmp_path / "run")
    run = load_config(tmp_path / "run" / "run.toml").train
    assert run.steps < 1000 and run.warmup == max(1, run.steps // 10)
    assert abs(outcome.step - run.steps) <= 2
    rates = [json.loads(line)["lr"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
             if '"train"' in line]  # fmt: skip
    assert max(rates) > 0.8 * run.lr and rates[-1] < 0.2 * run.lr
    assert train(config, tmp_path / "run", resume=True).step == outcome.step
    more = resolve({**tree, "train": {**tree["train"], "epochs": 3.0}})
    assert train(more, tmp_path / "run", resume=True).step == pytest.approx(2 * outcome.step, abs=3)
    assert load_config(tmp_path / "run" / "run.toml").train.warmup == run.warmup, "as it began"


def test_the_best_checkpoint_is_chosen(tmp_path):
    """A dozen pairs learned by heart: the loss on unseen ones rises, and the last checkpoint must not win."""
    config = toy(
        tmp_path, count=12, steps=120, checkpoint_every=20, lr=1e-2, metric="loss", label_smoothing=0.0
    )
    outcome = train(config, tmp_path / "run")
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = {r["step"]: r["loss"] for r in records if r["kind"] == "valid"}
    assert min(losses, key=losses.__getitem__) != 120, "this run must get worse, or the test shows nothing"
    assert outcome.records[0]["loss"] == pytest.approx(min(losses.values()), rel=1e-9)


@pytest.mark.usefixtures("reports")
def test_a_run_leaves_a_picture_a_card_and_metrics(tmp_path):
    outcome = train(toy(tmp_path), tmp_path / "run")
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
    card = (tmp_path / "run" / "README.md").read_text()
    assert card.startswith("---\nlanguage:") and "BLEU" in card and "train.tsv" in card
    assert str(tmp_path) not in card, "a card goes out into the world: no paths of this machine"
    assert outcome.records[0]["kind"] == "final-valid"


def test_two_sentences_in_a_line_are_both_translated(tmp_path):
    """A model of single sentences once answered the first and dropped the second without a word."""
    rows = [(f"{left} .", f"{right} .") for left, right in pairs(list, 800, seed=2)]
    config = toy(
        tmp_path, steps=150, tokens_per_batch=512, checkpoint_every=150, lr=5e-3, label_smoothing=0.0
    )
    write_tsv(tmp_path / "train.tsv", rows)
    train(config, tmp_path / "single")
    assert load(tmp_path / "single", device="cpu", threads=1).folder.split_above == 0
    two = [(f"{a[0]} {a[0].upper()}", f"{a[1]} {a[1].upper()}") for a in rows]
    write_tsv(tmp_path / "train.tsv", two)
    short = config.model_copy(update={"train": config.train.model_copy(update={"steps": 1})})
    train(short, tmp_path / "double")
    assert load(tmp_path / "double", device="cpu", threads=1).folder.split_above > 4
    model = load(tmp_path / "single", device="cpu", threads=1)
    apart = [model.translate("a b c ."), model.translate("D e f .")]
    assert model.translate("a b c . D e f .") == " ".join(apart)


def test_seeds_of_steps_are_far_apart():
    numbers = [(seed, step, batch) for seed in range(4) for step in range(300) for batch in range(3)]
    for version in (1, 2):
        seeds = {dropout_seed(*each, version=version) for each in numbers}
        assert len(seeds) == 4 * 300 * 3 and all(0 <= seed < 2**63 for seed in seeds)


def test_dropout_depends_on_all_bits_of_the_seed_and_on_every_accumulated_batch():
    """Version 1 shifted the seed by 42 bits: seeds 1 and 2^22 + 1 had the same dropout, and the 257th batch
    of a step that of the first batch of another one."""
    assert dropout_seed(1, 5, 0, version=2) != dropout_seed(1 + 2**22, 5, 0, version=2)
    assert dropout_seed(1, 4, 256, version=2) != dropout_seed(1, 5, 0, version=2)


def test_runs_of_version_1_keep_their_dropout():
    """They resume bit for bit: numbers computed by the code of version 1."""
    assert dropout_seed(1, 5, 0) == dropout_seed(1 + 2**22, 5, 0) == 2877531774059333903
    assert dropout_seed(7, 1000, 3, rank=2) == 1255174235810090724


def test_a_diverging_run_stops_before_the_weights_are_lost(tmp_path):
    config = toy(tmp_path, lr=1e38, warmup=1, clip=0.0)
    with pytest.raises(RegardError, match="not finite"):
        train(config, tmp_path / "run")
    assert not checkpoint_steps(tmp_path / "run"), "nothing that is not finite is saved"


def test_learned_positions_end_somewhere(tmp_path):
    """Decoding once ran past the last learned position, in the first validation of such a run."""
    config = toy(tmp_path, steps=4, checkpoint_every=2)
    long_line = " ".join(LETTERS * 3)
    (tmp_path / "valid.tsv").write_text(f"a b c\ta b c\n{long_line}\t{long_line}\n")
    learned = config.model.model_copy(update={"positions": "learned"})
    said: list[str] = []

    class Listening(Listener):
        def log(self, text: str) -> None:
            said.append(text)

    outcome = train(config.model_copy(update={"model": learned}), tmp_path / "run", listeners=[Listening()])
    assert outcome.records[0]["sentences"] == 1
    assert any("left out 1 of data.valid" in text for text in said)
    model = load(tmp_path / "run", device="cpu", threads=1)
    assert model.translate(long_line)  # cut into parts that fit
    with pytest.raises(UsageError) as caught:
        model.score([long_line], [long_line])
    assert caught.value.code == "E_TOO_LONG"


def test_equal_scores_are_decided_by_the_loss(tmp_path):
    """Two validations with BLEU 0 once kept the earlier, worse one."""
    trainer = trainer_for(tmp_path)
    for step, loss in ((10, 4.9), (20, 3.8), (30, 3.9)):
        trainer.progress.step = step
        trainer.update_best({"kind": "valid", "step": step, "bleu": 0.0, "loss": loss})
    assert trainer.progress.best_step == 20 and trainer.progress.validations_since_best == 1


def test_a_run_whose_data_cannot_be_read_has_not_begun(tmp_path):
    """Its folder once "held a run" that could neither be begun again nor resumed."""
    config = toy(tmp_path)
    good = (tmp_path / "train.tsv").read_text()
    (tmp_path / "train.tsv").write_text(good, encoding="utf-16")
    with pytest.raises(UsageError, match="UTF-16"):
        train(config, tmp_path / "run")
    (tmp_path / "train.tsv").write_text(good)
    assert train(config, tmp_path / "run").finished


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone keeps what is free, and can be asked for it")
def test_free_memory_goes_back_to_the_system():
    """Batches of all sizes once left three gigabytes where one was in use."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    blocks = [bytearray(b"x") * 50_000 for _ in range(4000)]  # 200 MB, each too small to be mapped alone
    kept = blocks[::100]
    del blocks
    before = resident()
    release_memory()
    assert resident() < before - 100_000_000
    assert len(kept) == 40


def strict_metrics(folder: Path) -> list[dict]:
    """As a parser reads them that knows JSON only: NaN and Infinity are errors."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_metrics_are_json_even_if_a_validation_loss_is_not_a_number(tmp_path, monkeypatch):
    """`"loss": NaN` was written, which jq and JavaScript do not read."""
    from regard.training.evaluation.translation import TranslationEvaluation

    validate, calls = TranslationEvaluation.validate, []

    def broken(self, *arguments):
        record = validate(self, *arguments)
        calls.append(record)
        return {**record, "loss": float("nan"), "chrf": float("inf")} if len(calls) == 1 else record

    monkeypatch.setattr(TranslationEvaluation, "validate", broken)
    train(toy(tmp_path, steps=8), tmp_path / "run")
    first, second = (each for each in strict_metrics(tmp_path / "run") if each["kind"] == "valid")
    assert (first["loss"], first["chrf"]) == (None, None) and second["loss"] > 0
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[0]["step"] == 4
    state = json.loads((checkpoint_folder(tmp_path / "run", 8) / "state.json").read_text())
    assert state["best_step"] == 8


def test_a_run_is_resumed_with_its_file_after_the_pretrained_folder_is_gone(tmp_path):
    """A relative `init.from` stays relative once its folder does not exist, and was taken for another model,
    although a run with a checkpoint needs nothing of it."""
    config = toy(tmp_path, steps=4)
    train(config, tmp_path / "base")
    tree = to_tree(config)
    del tree["model"]
    tree["init"] = {"from": "base"}
    (tmp_path / "tuned.toml").write_text(tomli_w.dumps(tree))
    cut = ["train.minutes=1e-9"]
    assert train(load_config(tmp_path / "tuned.toml", cut), tmp_path / "run").step == 1
    shutil.rmtree(tmp_path / "base")
    resumed = load_config(tmp_path / "tuned.toml")
    assert resumed.init.model == "base"
    assert train(resumed, tmp_path / "run", resume=True).step == 4
    (tmp_path / "tuned.toml").write_text(tomli_w.dumps({**tree, "init": {"from": "other"}}))
    with pytest.raises(UsageError, match=r"init\.from is not what"):
        train(load_config(tmp_path / "tuned.toml"), tmp_path / "run", resume=True)


def test_a_listener_with_the_old_method_still_hears_of_a_run(tmp_path):
    class Old:
        texts: list[str] = []

        def say(self, text: str) -> None:
            self.texts.append(text)

        def record(self, record: object) -> None:
            pass

    train(toy(tmp_path, steps=1), tmp_path / "run", listeners=[Old()])
    assert any("parameters" in text for text in Old.texts)
