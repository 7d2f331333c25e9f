"""The training loop: update, log, validate, save, stop. One for all families."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from regard.batch import Batch
from regard.config import Config
from regard.device import Machine, release_memory
from regard.errors import RegardError
from regard.models import Model
from regard.storage import (
    Checkpoint,
    checkpoint_folder,
    checkpoint_steps,
    load_weights_into,
    prune,
    save_checkpoint,
    unique_weights,
)
from regard.training.flops import training_flops
from regard.training.initial import freeze
from regard.training.loss import batch_loss, count
from regard.training.optimizer import in_proportion, load_optimizer, make_optimizer, optimizer_tensors
from regard.training.parallel import crew
from regard.training.prepare import Materials
from regard.training.progress import Metrics, Record
from regard.training.recovery import tell_bad, tell_spike
from regard.training.schedule import learning_rate
from regard.training.state import Progress, as_progress, clip, mix, refuse_broken
from regard.training.stream import Stream
from regard.training.trouble import Bad, Place, follow, is_spike, what_is_wrong

MEMORY_EVERY = 10  # updates; it costs less than a hundredth of them


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
        rates = freeze(self.model, config.init)
        if config.init.model is None:  # else the weights have the sizes that they have
            rates = in_proportion(self.model, rates)
        self.shared_loss = crew().spread(self.model, lambda batch: self.loss(batch), config.train.parallel)
        self.optimizer = make_optimizer(self.model, config.train, rates)
        self.progress = Progress()
        self.stop_asked = False  # set by a signal: finish the update, save, leave
        self.bad: Bad | None = None  # the last update, if it was left out
        self.settled = True  # weights and progress are of the same step
        self.saved: int | None = None  # the step of the last checkpoint that this process wrote or read

    def run(self, metrics: Metrics) -> bool:
        """Train until a limit is reached (True) or a stop is asked for (False).

        Whatever ends it otherwise, what was learned is saved if that can be done.
        """
        try:
            return self.go_on(metrics)
        except Exception as error:
            kept = crew().may_save(error) and self.save_if_possible()
            if not kept or not isinstance(error, RegardError | OSError):
                raise
            saved = f"{error}; what was learned up to step {self.progress.step} is saved"
            raise RegardError(saved) from error

    def go_on(self, metrics: Metrics) -> bool:
        began = time.perf_counter() - self.progress.seconds
        window = Window()
        while not self.limit_reached():
            loss, tokens, norm = self.update()
            self.progress.seconds = crew().by_voice(time.perf_counter() - began)
            if self.bad is None:
                self.look_at(loss / tokens, norm, metrics)
            elif tell_bad(
                self, self.bad, metrics
            ):  # it went back: that step has its lines and its checkpoint
                window = Window()
                continue
            window.loss, window.count = window.loss + loss, window.count + tokens
            step = self.progress.step
            if step % MEMORY_EVERY == 0:
                release_memory()
            if step % self.config.train.log_every == 0:
                metrics.add(self.train_record(window, norm))
                window = Window()
            if self.is_scheduled(step):
                paused = time.perf_counter()
                self.checkpoint(metrics)
                window.started += time.perf_counter() - paused
            if crew().any(self.stop_asked):
                if self.saved != step:
                    self.save()
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
        """One step of the optimiser: (loss sum, its tokens, norm of the gradient).

        With a loss or gradient that is not finite weights and optimiser stay as they are, and all else goes
        on: the next step has the next batches.
        """
        began = time.perf_counter()
        taken = [self.take() for _ in range(self.config.train.accumulate)]
        batches = [batch for batch, _ in taken]
        self.progress.waiting += time.perf_counter() - began
        step = self.progress.step + 1
        rate = learning_rate(step, self.config.train, self.config.model.width)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        loss, tokens, flops = self.backward(batches, step)
        norm = clip(self.model, self.config.train.clip)
        wrong = what_is_wrong(loss, tokens, norm)
        self.settled = False
        if wrong is None:
            self.optimizer.step()
        at, stream = self.progress, self.stream
        at.step = step
        at.epoch, at.pool, at.place = stream.epoch, stream.pool, stream.place
        self.settled, self.bad = True, None
        if wrong is not None:
            self.bad = Bad(step, wrong, loss, norm, rate, [place for _, place in taken], batches)
            loss, tokens = 0.0, 0
        at.tokens += tokens
        at.bad, at.bad_in_a_row = (at.bad, 0) if wrong is None else (at.bad + 1, at.bad_in_a_row + 1)
        self.progress.flops += flops
        self.progress.updating += time.perf_counter() - began
        return loss, tokens, norm

    def take(self) -> tuple[Batch, Place]:
        """The next batch, and where it is from."""
        batch, stream = self.stream.next(), self.stream
        return batch, Place(stream.epoch, stream.pool, stream.place - 1)

    def look_at(self, loss: float, norm: float, metrics: Metrics) -> None:
        """Count a loss per token that is far above the usual: its gradient was clipped like any other."""
        at = self.progress
        if is_spike(loss, at.usual):
            at.spikes += 1
            tell_spike(self, loss, norm, metrics)
        else:
            at.usual = follow(at.usual, loss)
        if at.step > at.trouble:
            at.backs_in_a_row = 0

    def backward(self, batches: Sequence[Batch], step: int) -> tuple[float, int, int]:
        """Gradients of the loss per token over all batches: k batches of b equal one of k * b.

        (loss sum, its tokens, operations), over all processes: one count divides the loss of each.
        """
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        own = sum(count(batch.labels) for batch in batches if batch.labels is not None)
        tokens = int(crew().sum(own)[0])
        divisor = max(1, tokens) / crew().size  # gradients become the mean over processes, not the sum
        total = 0.0
        for number, batch in enumerate(batches):
            # dropout is a function of (seed, step, number, rank): nothing to store, the same after a resume
            torch.manual_seed(mix(self.config.train.seed, step, number, crew().rank))
            with crew().in_step(last=number == len(batches) - 1):
                loss = self.shared_loss(batch.to(self.machine.device))
                (loss / divisor).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        operations = sum(training_flops(self.model, batch) for batch in batches)
        total, flops = crew().sum(total, operations)
        return total, tokens, int(flops)

    def measure(self, batch: Batch) -> tuple[float, float]:
        """Loss and norm of the gradient of a batch alone, without dropout; nothing is learned."""
        self.model.eval()
        self.model.zero_grad(set_to_none=True)
        loss = self.loss(batch.to(self.machine.device))
        loss.backward()  # type: ignore[no-untyped-call]
        norm = clip(self.model, 0.0)
        self.model.zero_grad(set_to_none=True)
        return loss.item(), norm

    def loss(self, batch: Batch) -> Tensor:
        kind, smoothing = self.stream.objective.loss, self.config.train.label_smoothing
        return batch_loss(self.model, batch, kind, smoothing, self.machine)

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
            "gradient_norm": norm if math.isfinite(norm) else None,
            "bad": at.bad,
            "spikes": at.spikes,
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
        trouble, last = self.progress.bad_in_a_row > 0, self.limit_reached()
        if trouble and not last:  # the weights are those of before, and may be what is wrong
            return
        due = step % (train.validate_every or train.checkpoint_every) == 0 or last
        if due and self.materials.valid is not None and not trouble:
            record = self.validate()
            self.judge(record)
            metrics.add(record)
        metrics.sync()  # before the checkpoint: what is resumed after a power cut has its lines
        self.save()

    def validate(self) -> Record:
        """The loss and the task's scores on held-out text."""
        valid, train = self.materials.valid, self.config.train
        if valid is None:
            raise ValueError("this run has no validation data")
        began = time.perf_counter()
        release_memory()
        model = crew().readable(self.model).eval()
        pick = self.progress.step // train.checkpoint_every
        found = valid.validate(model, self.machine.device, train.validate_sentences, pick)
        scores = crew().once(lambda: found)  # the same for all, to the last bit
        self.progress.validating += time.perf_counter() - began
        return {"kind": "valid", "step": self.progress.step, **scores}

    def judge(self, record: Record) -> None:
        """Remember the best validation; count those since."""
        value = record.get(str(self.config.train.metric))
        value = -record["loss"] if value is None or self.config.train.metric == "loss" else value
        at = self.progress
        if not math.isfinite(record["loss"]):  # than which everything would be neither better nor worse
            at.worse += 1
            return
        best = (
            (at.best_score, -at.best_loss) if at.best_score is not None and at.best_loss is not None else None
        )
        if best is None or (value, -record["loss"]) > best:
            at.best_score, at.best_loss, at.best_step, at.worse = value, record["loss"], at.step, 0
        else:
            at.worse += 1

    def save(self) -> None:
        began = time.perf_counter()
        weights = crew().whole(unique_weights(self.model))
        tensors = crew().whole(optimizer_tensors(self.model, self.optimizer))
        self.saved = self.progress.step  # or it failed, and is not tried again
        crew().once(lambda: self.write(weights, tensors))
        self.progress.saving += time.perf_counter() - began

    def write(self, weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
        at, train = self.progress, self.config.train
        state = {**asdict(at), "data": self.materials.fingerprint}
        refuse_broken(weights, tensors, at.step)
        save_checkpoint(self.folder, at.step, Checkpoint(weights, tensors, state))
        kept = self.scheduled_steps()[-max(train.keep, train.average) :]
        prune(self.folder, {at.step, *kept} | ({at.best_step} if at.best_step is not None else set()))

    def save_if_possible(self) -> bool:
        """On the way out of a failure: whether there is a checkpoint of where the run is."""
        if not self.settled or self.progress.step == 0 or self.saved == self.progress.step:
            return False
        try:
            self.save()
        except (RegardError, OSError, MemoryError):
            return False
        return True

    def scheduled_steps(self) -> list[int]:
        """Of the checkpoints up to here; later ones are broken, or were gone back from."""
        at = self.progress.step
        return [
            step
            for step in checkpoint_steps(self.folder)
            if step == at or (step < at and self.is_scheduled(step))
        ]

    def averaged_folders(self) -> list[Path]:
        return [
            checkpoint_folder(self.folder, step)
            for step in self.scheduled_steps()[-self.config.train.average :]
        ]

    def restore(self, checkpoint: Checkpoint) -> None:
        state = dict(checkpoint.state)
        if state.pop("data", None) != self.materials.fingerprint:
            raise RegardError(
                f"{self.folder}: the training data is not what this run began with; "
                "put the files back as they were, or begin a new run"
            )
        places = dict(self.model.named_parameters())
        own = {name: crew().own(each, places.get(name, each)) for name, each in checkpoint.model.items()}
        load_weights_into(self.model, own, self.folder / "checkpoints")
        load_optimizer(self.model, self.optimizer, checkpoint.optimizer)
        self.progress = as_progress(state, self.folder)
        self.saved = self.progress.step
        at = self.progress
        self.stream = replace(self.stream, epoch=at.epoch, pool=at.pool, place=at.place)
