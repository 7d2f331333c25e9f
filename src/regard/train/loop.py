"""The training loop: update, log, validate, save, stop. One for all families."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import Config
from regard.data import Batch
from regard.errors import RegardError
from regard.machine import Machine, give_back_memory
from regard.model import Model
from regard.store import (
    Checkpoint,
    folder_of,
    load_weights_into,
    prune,
    save_checkpoint,
    steps,
    unique_weights,
)
from regard.train.flops import training_flops
from regard.train.initial import freeze
from regard.train.loss import count, ends_cross_entropy, many_cross_entropy, output_cross_entropy
from regard.train.optimizer import load_optimizer, make_optimizer, optimizer_tensors
from regard.train.prepare import Materials
from regard.train.progress import Metrics, Record
from regard.train.schedule import learning_rate
from regard.train.stream import Stream

MEMORY_EVERY = 10  # updates; it costs less than a hundredth of them


@dataclass
class Progress:
    """Where a run is: with weights and optimiser, all that resuming needs."""

    step: int = 0
    epoch: int = 0
    pool: int = 0  # in the epoch
    place: int = 0  # in the pool
    tokens: int = 0  # target tokens learned from
    flops: int = 0  # of all forward and backward passes
    seconds: float = 0.0  # on the clock; of these in updates, in validations and in saving:
    updating: float = 0.0
    waiting: float = 0.0  # for the batches of the updates, and part of their time
    validating: float = 0.0
    saving: float = 0.0
    best_step: int | None = None
    best_score: float | None = None  # higher is better; minus the loss if that is the metric
    best_loss: float | None = None  # of that validation: it decides between equal scores
    worse: int = 0  # validations since the best


@dataclass
class Window:
    """Sums since the last line of metrics."""

    loss: float = 0.0
    count: int = 0
    started: float = field(default_factory=time.perf_counter)


class Trainer:
    def __init__(
        self,
        config: Config,
        folder: Path,
        model: Model,
        stream: Stream,
        materials: Materials,
        machine: Machine,
    ) -> None:
        self.config, self.folder, self.materials, self.machine = config, folder, materials, machine
        self.model = model.to(machine.device)
        self.stream = stream
        self.optimizer = make_optimizer(self.model, config.train, freeze(self.model, config.init))
        self.progress = Progress()
        self.stop_asked = False  # set by a signal: finish the update, save, leave

    def run(self, metrics: Metrics) -> bool:
        """Train until a limit is reached (True) or a stop is asked for (False)."""
        began = time.perf_counter() - self.progress.seconds
        window = Window()
        while not self.limit_reached():
            loss, tokens, norm = self.update()
            self.progress.seconds = time.perf_counter() - began
            window.loss, window.count = window.loss + loss, window.count + tokens
            step = self.progress.step
            if step % MEMORY_EVERY == 0:
                give_back_memory()
            if step % self.config.train.log_every == 0:
                metrics.add(self.train_record(window, norm))
                window = Window()
            if self.is_scheduled(step):
                self.checkpoint(metrics)
                window.started = time.perf_counter()
            elif self.stop_asked:
                self.save()
            if self.stop_asked:
                return False
        if not self.is_scheduled(self.progress.step):
            self.checkpoint(metrics)
        return True

    def limit_reached(self) -> bool:
        train, at = self.config.train, self.progress
        return (
            at.step >= train.steps
            or (train.epochs is not None and self.stream.epochs_done >= train.epochs)
            or (train.minutes is not None and at.seconds >= 60 * train.minutes)
            or (train.patience is not None and at.worse >= train.patience)
        )

    def update(self) -> tuple[float, int, float]:
        """One step of the optimiser: (loss sum, its tokens, norm of the gradient)."""
        began = time.perf_counter()
        batches = [self.stream.next() for _ in range(self.config.train.accumulate)]
        self.progress.waiting += time.perf_counter() - began
        step = self.progress.step + 1
        rate = learning_rate(step, self.config.train, self.config.model.width)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        loss, tokens = self.backward(batches, step)
        norm = clip(self.model, self.config.train.clip)
        if not norm < float("inf"):
            raise RegardError(
                f"the gradient is not finite at step {step} (learning rate {rate:.2e}); lower train.lr or "
                "lengthen train.warmup, then go on from the last checkpoint with --resume"
            )
        self.optimizer.step()
        at, stream = self.progress, self.stream
        at.step, at.tokens = step, at.tokens + tokens
        at.epoch, at.pool, at.place = stream.epoch, stream.pool, stream.place
        self.progress.flops += sum(training_flops(self.model, batch) for batch in batches)
        self.progress.updating += time.perf_counter() - began
        return loss, tokens, norm

    def backward(self, batches: Sequence[Batch], step: int) -> tuple[float, int]:
        """Gradients of the loss per token over all batches: k batches of b equal one of k * b."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        tokens = sum(count(batch.labels) for batch in batches if batch.labels is not None)
        total = 0.0
        for number, batch in enumerate(batches):
            # dropout is a function of (seed, step, number): nothing to store, the same after a resume
            torch.manual_seed(mix(self.config.train.seed, step, number))
            loss = self.loss(batch.to(self.machine.device))
            (loss / tokens).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total, tokens

    def loss(self, batch: Batch) -> Tensor:
        """The sum over the labels; products in the precision of the machine, sums in float32."""
        if batch.labels is None:
            raise ValueError("a training batch needs labels")
        half, kind = self.machine.precision == "bfloat16", self.stream.objective.loss
        output = self.model.output
        with torch.autocast(self.machine.device.type, torch.bfloat16, enabled=half):
            hidden = self.model.hidden(batch)
            logits = output(hidden) if kind != "words" else None
        if logits is None:
            dtype, smoothing = torch.bfloat16 if half else None, self.config.train.label_smoothing
            return output_cross_entropy(hidden, output.weight, batch.labels, smoothing, dtype, output.bias)
        if kind == "ends" and batch.source is not None:
            return ends_cross_entropy(logits, batch.labels, batch.source.positions)
        return many_cross_entropy(logits, batch.labels)

    def train_record(self, window: Window, norm: float) -> Record:
        at = self.progress
        return {
            "kind": "train",
            "step": at.step,
            "steps": self.config.train.steps,
            "minutes": self.config.train.minutes,
            "epoch": round(self.stream.epochs_done, 4),
            "loss": window.loss / max(1, window.count),
            "lr": learning_rate(at.step, self.config.train, self.config.model.width),
            "gradient_norm": norm,
            "tokens": at.tokens,
            "tokens_per_second": window.count / max(1e-9, time.perf_counter() - window.started),
            "seconds": round(at.seconds, 3),
        }

    def is_scheduled(self, step: int) -> bool:
        """Whether every run with this config has a checkpoint here, interrupted or not."""
        train = self.config.train
        every = {train.checkpoint_every, train.validate_every or train.checkpoint_every}
        return step >= train.steps or any(step % number == 0 for number in every)

    def checkpoint(self, metrics: Metrics) -> None:
        """Validate if it is time, then save: a checkpoint knows the validation of its step."""
        train, step = self.config.train, self.progress.step
        due = step % (train.validate_every or train.checkpoint_every) == 0 or self.limit_reached()
        if due and self.materials.valid is not None:
            record = self.validate()
            self.judge(record)
            metrics.add(record)
        self.save()

    def validate(self) -> Record:
        """The loss and the task's scores on held-out text."""
        valid, train = self.materials.valid, self.config.train
        if valid is None:
            raise ValueError("this run has no validation data")
        began = time.perf_counter()
        give_back_memory()
        self.model.eval()
        pick = self.progress.step // train.checkpoint_every
        scores = valid.validate(self.model, self.machine.device, train.validate_sentences, pick)
        self.progress.validating += time.perf_counter() - began
        return {"kind": "valid", "step": self.progress.step, **scores}

    def judge(self, record: Record) -> None:
        """Remember the best validation; count those since."""
        value = record.get(str(self.config.train.metric))
        value = -record["loss"] if value is None or self.config.train.metric == "loss" else value
        at = self.progress
        best = (
            (at.best_score, -at.best_loss) if at.best_score is not None and at.best_loss is not None else None
        )
        if best is None or (value, -record["loss"]) > best:
            at.best_score, at.best_loss, at.best_step, at.worse = value, record["loss"], at.step, 0
        else:
            at.worse += 1

    def save(self) -> None:
        began = time.perf_counter()
        at, train = self.progress, self.config.train
        state = {**asdict(at), "data": self.materials.fingerprint}
        tensors = optimizer_tensors(self.model, self.optimizer)
        save_checkpoint(self.folder, at.step, Checkpoint(unique_weights(self.model), tensors, state))
        kept = self.scheduled_steps()[-max(train.keep, train.average) :]
        prune(self.folder, {at.step, *kept} | ({at.best_step} if at.best_step is not None else set()))
        at.saving += time.perf_counter() - began

    def scheduled_steps(self) -> list[int]:
        return [step for step in steps(self.folder) if self.is_scheduled(step) or step == self.progress.step]

    def averaged_folders(self) -> list[Path]:
        return [folder_of(self.folder, step) for step in self.scheduled_steps()[-self.config.train.average :]]

    def restore(self, checkpoint: Checkpoint) -> None:
        state = dict(checkpoint.state)
        if state.pop("data", None) != self.materials.fingerprint:
            raise RegardError(
                f"{self.folder}: the training data is not what this run began with; "
                "put the files back as they were, or begin a new run"
            )
        load_weights_into(self.model, checkpoint.model, self.folder / "checkpoints")
        load_optimizer(self.model, self.optimizer, checkpoint.optimizer)
        self.progress = as_progress(state, self.folder)
        self.stream = Stream(
            self.stream.dataset,
            self.stream.objective,
            self.stream.tokens_per_batch,
            self.stream.seed,
            self.progress.epoch,
            self.progress.pool,
            self.progress.place,
        )


def as_progress(state: Mapping[str, Any], folder: Path) -> Progress:
    known = {each.name for each in fields(Progress)}
    if not state.keys() <= known or not all(
        each is None or type(each) in (int, float) for each in state.values()
    ):
        raise RegardError(
            f"{folder}: the newest checkpoint's state.json is of another program; begin a new run"
        )
    return Progress(**state)


def clip(model: nn.Module, longest: float) -> float:
    """Scale the gradient down to norm `longest`; 0 only measures."""
    limit = longest or float("inf")
    return float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))


def mix(seed: int, step: int, number: int) -> int:
    """One 63-bit seed from three numbers; near ones give far ones (splitmix64)."""
    value = (seed << 42) ^ (step << 8) ^ number
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        value = (value + 0x9E3779B97F4A7C15) & (2**64 - 1)
        value = ((value ^ (value >> 30)) * factor) & (2**64 - 1)
    return (value ^ (value >> 31)) & (2**63 - 1)
