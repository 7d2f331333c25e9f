"""Real runs in this process, stopped at chosen places or fed with wrong numbers."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard.training.model_folder as model_folder
import regard.training.trainer as trainer_module
from qa.result import Result
from qa.survive.common import patched
from regard.batch import Batch
from regard.config import Config, resolve
from regard.errors import RegardError
from regard.sample import IGNORED
from regard.storage import checkpoint_folder, checkpoint_steps, load_checkpoint
from regard.training import train
from regard.training.trainer import Trainer

LETTERS = "abcdefghijkl"
ODD = "zz"  # a word that a single training pair has
CLOCKS = ("seconds", "updating", "waiting", "validating", "saving", "tokens_per_second")


def toy(place: Path, **fields: object) -> Config:
    """Letters and the same backwards; one pair has an odd word."""
    chance, found = random.Random(1), dict[str, str]()
    while len(found) < 500:
        words = [chance.choice(LETTERS) for _ in range(chance.randint(2, 6))]
        found[" ".join(words)] = " ".join(words[::-1])
    rows = [f"{left}\t{right}\n" for left, right in found.items()]
    place.mkdir(parents=True, exist_ok=True)
    (place / "train.tsv").write_text("".join(rows[10:]) + f"a {ODD} b\tb a\n")
    (place / "valid.tsv").write_text("".join(rows[:10]))
    tree = {
        "data": {"train": str(place / "train.tsv"), "valid": str(place / "valid.tsv"), "leaks": "keep"},
        "text": {"kind": "word", "vocabulary": 300},
        "model": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16, "dropout": 0.1, "max_length": 20},
        "train": {
            "steps": 60,
            "tokens_per_batch": 128,
            "accumulate": 2,
            "checkpoint_every": 7,
            "validate_every": 14,
            "validate_sentences": 2,
            "log_every": 1,
            "threads": 1,
            **fields,
        },
    }
    return resolve(tree)


def no_end() -> tuple[Any, str, Any]:
    """Scores, card and report are not what is looked at here."""
    return model_folder, "write_model_folder", lambda trainer, metrics: []


def bits(folder: Path) -> dict[str, Any]:
    """All that two runs must have in common: every loss, and the whole last checkpoint."""
    last = checkpoint_folder(folder, checkpoint_steps(folder)[-1])
    state = json.loads((last / "state.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    saved = load_checkpoint(last)
    tensors = {
        f"{name} {key}": tensor.numpy().tobytes()
        for name, tensors in (("model", saved.model), ("optimizer", saved.optimizer))
        for key, tensor in tensors.items()
    }
    return {
        "step": last.name,
        "state": {name: value for name, value in state.items() if name not in CLOCKS},
        "metrics": [{name: value for name, value in line.items() if name not in CLOCKS} for line in lines],
        **tensors,
    }


# --- exact resume


@contextmanager
def stopped(step: int, inside: str) -> Iterator[None]:
    """A signal while this step's batch is computed, or while the checkpoint after it is validated."""
    loss, validate = Trainer.loss, Trainer.validate
    calls = iter(range(1 << 30))

    def computing(trainer: Trainer, batch: Batch) -> Tensor:
        now = trainer.progress.step + 1 == step and inside in ("first", "second")
        if now and next(calls) == ("first", "second").index(inside):
            os.kill(os.getpid(), signal.SIGINT)
        return loss(trainer, batch)

    def validating(trainer: Trainer, *more: Any) -> Any:
        if trainer.progress.step == step and inside == "validation":
            os.kill(os.getpid(), signal.SIGINT)
        return validate(trainer, *more)

    with patched((Trainer, "loss", computing), (Trainer, "validate", validating)):
        yield


def resume(count: int, seed: int) -> Result:
    """Stop at each of the first `count` steps, some of them two or three times, and compare every bit."""
    chance, wrong, stops = random.Random(seed), list[str](), 0
    with tempfile.TemporaryDirectory() as name, patched(no_end()):
        place = Path(name)
        config = toy(place, average=2, seed=seed)
        train(config, place / "whole")
        expected = bits(place / "whole")
        epochs = expected["state"]["epoch"]
        for other in range(2 if count >= 60 else 0):  # a seed is a run
            train(config, place / f"again-{other}")
            wrong += [] if bits(place / f"again-{other}") == expected else [f"fresh run {other} differs"]
        for step in range(1, count + 1):
            folder = place / f"cut-{step}"
            for nth, at in enumerate([step, step + 7, step + 20][: 1 + step % 3]):
                inside = "validation" if at % 14 == 0 else chance.choice(["first", "second"])
                with stopped(at, inside):
                    outcome = train(config if nth == 0 else None, folder, resume=nth > 0)
                stops += 1
                if at < 60 and outcome.step != at:
                    wrong.append(f"step {step}: stopped at {outcome.step} instead of {at}")
            train(None, folder, resume=True)
            if bits(folder) != expected:
                wrong.append(f"step {step}, seed {seed}: resumed {1 + step % 3} times, and other bits")
    figure = f"{count - len(wrong)} of {count} resumed runs have every loss and every bit of the uncut one"
    more = {"stops": stops, "epochs": epochs}
    return Result("resume", count, len(wrong), figure, seed, more, wrong)


# --- numbers that are not finite


class Wrong(torch.autograd.Function):
    """Passes the loss, and spoils its gradient."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Tensor:
        return gradient[0] * float("inf")


Spoil = Callable[[Tensor], Tensor]
SPOILS: dict[str, Spoil] = {
    "loss nan": lambda loss: loss * float("nan"),
    "loss inf": lambda loss: loss + float("inf"),
    "gradient": lambda loss: Wrong.apply(loss),
    "spike": lambda loss: loss * 100,
}


@contextmanager
def spoiling(spoil: Spoil, when: Callable[[Batch], bool]) -> Iterator[None]:
    """The loss of some batches is wrong."""
    plain = trainer_module.batch_loss

    def wrong(model: Any, batch: Batch, *more: Any) -> Tensor:
        loss = plain(model, batch, *more)
        return spoil(loss) if when(batch) else loss

    with patched((trainer_module, "batch_loss", wrong)):
        yield


def has_odd(folder: Path) -> Callable[[Batch], bool]:
    from regard.inputs.text import load_tokenizer

    known: list[int] = []

    def when(batch: Batch) -> bool:
        if not (folder / "tokenizer.json").is_file():  # the first pass of DDP, before the run has its files
            return False
        if not known:
            known.append(load_tokenizer(folder / "tokenizer.json").encode(ODD)[0])
        return batch.source is not None and bool((batch.source.ids == known[0]).any())

    return when


def odd_sample(place: Path, kind: str, config: Config) -> str:
    """One sample spoils its batch in every epoch: what is wrong with what the run makes of it."""
    folder = place / "run"
    with spoiling(SPOILS[kind], has_odd(folder)), watched() as found:
        train(config, folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    told = [line for line in lines if line["kind"] == ("spike" if kind == "spike" else "bad")]
    last = [line for line in lines if line["kind"] == "train"][-1]
    counted = last["spikes" if kind == "spike" else "bad"]
    if found:
        return found[0]
    if not told or counted != len(told):
        return f"{counted} counted, {len(told)} told"
    if kind == "spike":
        return "" if all(line["loss"] > 10 * line["usual"] for line in told) else f"told {told}"
    for line in told:
        texts = json.loads((folder / line["file"]).read_text())["texts"]
        if list(texts)[: len(line["samples"])] != line["samples"]:
            return f"names {line['samples']}"
        if sum(ODD in pair[0].split() for pair in texts.values()) != 1:
            return "the odd sample is not among those of its batch"
    return ""


def local(tensor: Tensor) -> Tensor:
    """What this process has of a tensor."""
    own: Callable[[], Tensor] | None = getattr(tensor, "to_local", None)
    return tensor.detach() if own is None else own().detach()


@contextmanager
def watched() -> Iterator[list[str]]:
    """Weights and optimiser stay as they were in a bad update, and are always finite."""
    update, found = Trainer.update, list[str]()

    def tensors(trainer: Trainer) -> dict[str, Tensor]:
        state = trainer_module.optimizer_tensors(trainer.model, trainer.optimizer)
        own = trainer_module.storage.unique_weights(trainer.model) | state
        return {name: local(each).clone() for name, each in own.items()}

    def looked(trainer: Trainer) -> Any:
        before = tensors(trainer)
        result = update(trainer)
        after = tensors(trainer)
        if result.reason is not None and not all(torch.equal(before[name], after[name]) for name in before):
            found.append(f"step {trainer.progress.step} changed the weights")
        if not all(bool(torch.isfinite(each).all()) for each in after.values()):
            found.append(f"step {trainer.progress.step} left something that is not finite")
        return result

    with patched((Trainer, "update", looked)):
        yield found


def empty_batch(place: Path, config: Config) -> str:
    """Nothing to learn from in one update."""
    take = Trainer.next_batch

    def taken(trainer: Trainer) -> Any:
        batch, at = take(trainer)
        if trainer.progress.step == 4 and batch.labels is not None:
            batch = type(batch)(batch.source, batch.target, torch.full_like(batch.labels, IGNORED))
        return batch, at

    with patched((Trainer, "next_batch", taken)), watched() as found:
        outcome = train(config, place / "run")
    lines = [json.loads(line) for line in (place / "run" / "metrics.jsonl").read_text().splitlines()]
    told = [line["reason"] for line in lines if line["kind"] == "bad"]
    return found[0] if found else "" if told == ["empty"] and outcome.finished else f"told {told}"


@contextmanager
def bad_stretch(first: tuple[int, int], last: tuple[int, int]) -> Iterator[None]:
    """Batches of these places (epoch, place) have no loss."""
    now = [False]
    backward = Trainer.backward

    def computing(trainer: Trainer, *arguments: Any) -> Any:
        now[0] = first <= (trainer.stream.epoch, trainer.stream.batch) < last
        return backward(trainer, *arguments)

    with spoiling(SPOILS["loss nan"], lambda batch: now[0]), patched((Trainer, "backward", computing)):
        yield


def stops(place: Path, config: Config) -> str:
    """Several in a row end the run with a sentence; what was learned is saved, and it can go on."""
    with bad_stretch((1, 0), (9, 0)), watched() as found:
        try:
            train(config, place / "run")
            return "it did not stop"
        except RegardError as error:
            said = str(error)
    if found or "is not finite at step" not in said or "is saved up to step" not in said or "\n" in said:
        return found[0] if found else f"said {said!r}"
    return "" if train(None, place / "run", resume=True).finished else "it did not go on"


def goes_back(place: Path, config: Config) -> str:
    """Two runs come to the same bits, and so does one that is stopped in the middle of the trouble."""
    own = config.model_copy(update={"train": config.train.model_copy(update={"on_bad": "back"})})
    for name in ("one", "two"):
        with bad_stretch((1, 0), (1, 8)):
            train(own, place / name)
    expected = bits(place / "one")
    with bad_stretch((1, 0), (1, 8)):
        with stopped(expected["state"]["trouble"] - 1, "first"):
            train(own, place / "cut")
        train(None, place / "cut", resume=True)
    if expected["state"]["backs"] != 1 or expected["state"]["step"] != config.train.steps:
        return f"went back {expected['state']['backs']} times"
    differing = [name for name in ("two", "cut") if bits(place / name) != expected]
    return f"{differing[0]} differs" if differing else ""


def numbers(count: int, seed: int) -> Result:
    """All kinds of wrong numbers, `count` times with other seeds."""
    wrong, n = list[str](), 0
    with tempfile.TemporaryDirectory() as name, patched(no_end()):
        for round_ in range(max(1, count)):
            short = {"steps": 24, "checkpoint_every": 4, "validate_every": 24, "bad_steps_in_a_row": 3}
            cases: dict[str, Callable[[Path, Config], str]] = {
                "empty": empty_batch,
                "stop": stops,
                "back": goes_back,
            }
            for kind in SPOILS:
                cases[kind] = lambda place, config, kind=kind: odd_sample(place, kind, config)  # type: ignore[misc]
            for kind, case in cases.items():
                place = Path(name) / f"{round_}-{kind}"
                found = case(place, toy(place, seed=seed + round_, **short))
                n += 1
                wrong += [f"{kind}, seed {seed + round_}: {found}"] if found else []
    figure = f"{n - len(wrong)} of {n} kinds of wrong numbers never reached the weights, and were told"
    return Result("non-finite", n, len(wrong), figure, seed, {}, wrong)


# --- what saving costs


def saving(count: int, seed: int) -> Result:
    """The share of a run's time that goes into checkpoints, with the packaged phrasebook and its tiny model.

    A checkpoint every hundred updates: five times as often as the usual 500.
    """
    tree = {
        "data": {"train": "phrasebook"},
        "task": {"source": "en", "target": "de"},
        "model": {"preset": "transformer-tiny"},
        "train": {
            "steps": count,
            "tokens_per_batch": 1024,
            "checkpoint_every": 100,
            "validate_sentences": 10,
            "seed": seed,
            "threads": 1,
        },
    }
    save, spent = Trainer.save, list[float]()

    def timed(trainer: Trainer) -> None:
        began = time.perf_counter()
        save(trainer)
        spent.append(time.perf_counter() - began)

    with tempfile.TemporaryDirectory() as name, patched(no_end(), (Trainer, "save", timed)):
        train(resolve(tree), Path(name) / "run")
        lines = [json.loads(line) for line in (Path(name) / "run/metrics.jsonl").read_text().splitlines()]
    seconds = [line["seconds"] for line in lines if line["kind"] == "train"][-1]
    share = sum(spent) / seconds
    figure = f"{100 * share:.2f} % of {seconds:.0f} s went into {len(spent)} checkpoints"
    more = {"share": round(share, 4), "slowest_save_s": round(max(spent), 3)}
    return Result("saving", count, int(share >= 0.03), figure, seed, more)
