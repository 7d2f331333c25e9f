"""The trainer: one optimizer update at a time, validation, checkpoints. The same for all model families."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor

from regard import storage
from regard.batch import Batch
from regard.config import Config
from regard.config.schema import LABELLING, LOWER_IS_BETTER
from regard.device import Machine, release_memory
from regard.errors import RegardError
from regard.models.families import Model
from regard.training.distributed import SingleProcess, shard_of
from regard.training.flops import training_flops
from regard.training.loss import batch_loss, count
from regard.training.optimizer import (
    clip_gradients,
    freeze,
    learning_rate,
    load_optimizer,
    make_optimizer,
    optimizer_tensors,
    scale_by_init,
)
from regard.training.prepare import TrainingData
from regard.training.progress import Progress, Record, Step, non_finite_reason, progress_from_state
from regard.training.stream import Position, Stream

TRIM_MEMORY_EVERY = 10  # updates; costs less than a hundredth of their time


@dataclass
class Window:
    """Sums since the last `train` record."""

    loss: float = 0.0
    tokens: int = 0
    started: float = field(default_factory=time.perf_counter)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Validation and saving do not count as training time."""
        paused = time.perf_counter()
        yield
        self.started += time.perf_counter() - paused


class Trainer:
    def __init__(
        self,
        config: Config,
        folder: Path,
        model: Model,
        stream: Stream,
        data: TrainingData,
        machine: Machine,
        dist: SingleProcess | None = None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> None:
        """`weights`: the initial ones of a model on the meta device, on rank 0."""
        self.config, self.folder, self.data, self.machine = config, folder, data, machine
        self.dist = dist or SingleProcess()
        self.model, self.stream = model, stream
        multipliers = freeze(model, config.init, config.task.name in LABELLING)
        if config.init.model is None:  # pretrained weights do not have the scale of the initialisation
            multipliers = scale_by_init(model, multipliers)
        self.loss_function = self.dist.wrap(
            model,
            lambda batch: self.loss(batch),
            config.train.parallel,
            machine.device,
            config.train.gradients,
        )
        self.dist.fill_shards(model, weights or {})
        self.dist.warm_up(lambda: self.loss_function(stream.example().to(machine.device)))
        self.optimizer = make_optimizer(model, config.train, multipliers)
        self.progress = Progress()
        self.stop_requested = False  # by a signal: finish the update, save, end
        self.stopped = False  # the iteration ended because of it, on all ranks
        self.is_consistent = True  # weights and progress are of the same step
        self.saved_step: int | None = None  # of the last checkpoint that this process wrote or read
        self.started = time.perf_counter()

    def __iter__(self) -> Iterator[Step]:
        """Updates until a limit is reached or a stop is requested."""
        self.started = time.perf_counter() - self.progress.seconds
        if self.dist.any(self.stop_requested) and not self.limit_reached():
            self.stopped = True
            return
        while not self.limit_reached():
            yield self.update()
            if self.progress.step % TRIM_MEMORY_EVERY == 0:
                release_memory()
            if self.dist.any(self.stop_requested):
                self.stopped = True
                return

    def limit_reached(self) -> bool:
        train, progress = self.config.train, self.progress
        return (
            progress.step >= train.steps
            or (train.epochs is not None and self.stream.epochs_done >= train.epochs)
            or (train.minutes is not None and progress.seconds >= 60 * train.minutes)
            or (train.patience is not None and progress.validations_since_best >= train.patience)
        )

    # --- one update

    def update(self) -> Step:
        """One step of the optimizer.

        If loss or gradient is not finite, weights and optimizer state stay as they are and everything else
        advances: the next step has the next batches.
        """
        started = time.perf_counter()
        taken = [self.next_batch() for _ in range(self.config.train.accumulate)]
        self.progress.data_seconds += time.perf_counter() - started
        number = self.progress.step + 1
        rate = learning_rate(number, self.config.train, self.config.model.width)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["multiplier"]
        loss, tokens, flops = self.backward([batch for batch, _ in taken], number)
        norm = clip_gradients(self.model, self.config.train.clip)
        reason = non_finite_reason(loss, tokens, norm)
        self.is_consistent = False
        if reason is None:
            self.optimizer.step()
        progress, stream = self.progress, self.stream
        progress.step = number
        progress.epoch, progress.pool, progress.batch = stream.epoch, stream.pool, stream.batch
        self.is_consistent = True
        progress.flops += flops
        if reason is None:
            progress.tokens += tokens
            progress.non_finite_in_a_row = 0
        else:
            progress.non_finite += 1
            progress.non_finite_in_a_row += 1
        progress.update_seconds += time.perf_counter() - started
        return Step(number, loss, tokens, norm, rate, [position for _, position in taken], reason)

    def next_batch(self) -> tuple[Batch, Position]:
        batch = self.stream.next()
        return batch, self.stream.last_position

    def backward(self, batches: Sequence[Batch], step: int) -> tuple[float, int, int]:
        """Gradients of the loss per token over all batches: k batches of b rows equal one of k * b rows.

        Returns (loss sum, tokens, floating-point operations) over all ranks.
        """
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        dist, train = self.dist, self.config.train
        tokens = int(
            dist.all_reduce(sum(count(batch.labels) for batch in batches if batch.labels is not None))[0]
        )
        divisor = max(1, tokens) / dist.world_size  # ranks average gradients; the loss needs their sum
        version = self.config.version
        losses = []
        for number, batch in enumerate(batches):
            # dropout is a function of (seed, step, batch, rank): nothing to store, the same after a resume
            torch.manual_seed(dropout_seed(train.seed, step, number, dist.rank, version))
            with dist.gradient_sync(enabled=number == len(batches) - 1):
                loss = self.loss_function(batch.to(self.machine.device))
                (loss / divisor).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        operations = sum(training_flops(self.model, batch) for batch in batches)
        elapsed = time.perf_counter() - self.started if dist.is_rank0 else 0.0  # clocks of ranks differ
        total, flops, self.progress.seconds = dist.all_reduce(
            sum(loss.item() for loss in losses), operations, elapsed
        )
        return total, tokens, int(flops)

    def loss(self, batch: Batch) -> Tensor:
        kind, smoothing = self.stream.objective.loss, self.config.train.label_smoothing
        return batch_loss(self.model, batch, kind, smoothing, self.machine)

    def train_record(self, window: Window, gradient_norm: float) -> Record:
        progress, train = self.progress, self.config.train
        return {
            "kind": "train",
            "step": progress.step,
            "steps": train.steps,
            "minutes": train.minutes,
            "epoch": round(self.stream.epochs_done, 4),
            "loss": window.loss / max(1, window.tokens),
            "lr": learning_rate(progress.step, train, self.config.model.width),
            "gradient_norm": gradient_norm,
            "bad": progress.non_finite,
            "spikes": progress.spikes,
            "tokens": progress.tokens,
            "tokens_per_second": window.tokens / max(1e-9, time.perf_counter() - window.started),
            "seconds": round(progress.seconds, 3),
        }

    # --- validation

    def validate(self, dist: SingleProcess | None = None) -> Record:
        """Loss and scores of the task on the validation set, computed by the ranks of `dist` together."""
        valid, train = self.data.valid, self.config.train
        if valid is None:
            raise ValueError("this run has no validation data")
        dist = dist or self.dist
        started = time.perf_counter()
        release_memory()
        model = dist.unsharded(self.model).eval()
        pick = self.progress.step // train.checkpoint_every
        scores = valid.validate(model, train.validate_sentences, pick, dist)
        scores = dist.on_rank0(lambda: scores)  # equal on all ranks to the last bit
        self.progress.validation_seconds += time.perf_counter() - started
        return {"kind": "valid", "step": self.progress.step, **scores}

    def update_best(self, record: Record) -> None:
        """Remember the best validation; count those since."""
        value = record.get(str(self.config.train.metric))
        metric = self.config.train.metric if value is not None else "loss"
        value = -record[metric] if metric in LOWER_IS_BETTER else value
        progress = self.progress
        best = None
        if progress.best_score is not None and progress.best_loss is not None:
            best = (progress.best_score, -progress.best_loss)
        is_finite = math.isfinite(record["loss"])  # NaN compares false with everything
        if is_finite and (best is None or (value, -record["loss"]) > best):
            progress.best_score, progress.best_loss = value, record["loss"]
            progress.best_step, progress.validations_since_best = progress.step, 0
        else:
            progress.validations_since_best += 1

    # --- checkpoints

    def is_scheduled(self, step: int) -> bool:
        """Whether every run with this config has a checkpoint at this step, interrupted or not."""
        train = self.config.train
        every = {train.checkpoint_every, train.validate_every or train.checkpoint_every}
        return step >= train.steps or any(step % number == 0 for number in every)

    def scheduled_steps(self) -> list[int]:
        """Of the checkpoints up to the current step."""
        now = self.progress.step
        return [
            step
            for step in storage.checkpoint_steps(self.folder)
            if step == now or (step < now and self.is_scheduled(step))
        ]

    def save(self) -> None:
        started = time.perf_counter()
        progress, train = self.progress, self.config.train
        self.saved_step = progress.step  # even if it fails: do not try again
        state = {**progress.to_state(), "data": self.data.fingerprint}
        weights, optimizer = storage.unique_weights(self.model), optimizer_tensors(self.model, self.optimizer)
        checkpoint = storage.Checkpoint(weights, optimizer, state)
        if self.dist.world_size == 1:
            refuse_non_finite({**weights, **optimizer}, progress.step)
            storage.save_checkpoint(self.folder, progress.step, checkpoint)
        else:
            from regard.training.checkpoints import save_together

            save_together(self.dist, self.folder, progress.step, checkpoint)
        kept = {progress.step, *self.scheduled_steps()[-max(train.keep, train.average) :]}
        kept |= set() if progress.best_step is None else {progress.best_step}
        self.dist.on_rank0(lambda: storage.prune(self.folder, kept))
        progress.save_seconds += time.perf_counter() - started

    def save_if_possible(self) -> bool:
        """After a failure: whether a checkpoint of the current step was written."""
        if not self.is_consistent or self.progress.step in (0, self.saved_step):
            return False
        try:
            self.save()
        except (RegardError, OSError, MemoryError):
            return False
        return True

    def restore(self, checkpoint: storage.Checkpoint) -> None:
        state = dict(checkpoint.state)
        if state.pop("data", None) != self.data.fingerprint:
            raise RegardError(
                f"{self.folder}: the training data is not what this run began with; "
                "put the files back as they were, or begin a new run",
                code="E_DATA_CHANGED",
            )
        parameters = dict(self.model.named_parameters())
        weights = {name: shard_of(checkpoint.model, name, parameters.get(name)) for name in checkpoint.model}
        storage.load_weights_into(self.model, weights, self.folder / "checkpoints")
        load_optimizer(self.model, self.optimizer, checkpoint.optimizer)
        self.progress = progress = progress_from_state(state, self.folder)
        self.saved_step = progress.step
        self.stream = replace(self.stream, epoch=progress.epoch, pool=progress.pool, batch=progress.batch)


def refuse_non_finite(tensors: Mapping[str, Tensor], step: int) -> None:
    """A learning rate that is far too high can overflow weights although every gradient was finite."""
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise RegardError(
                f'"{name}" is not finite after step {step}, so that it was not saved; lower train.lr, or set '
                "train.clip, in a new run: the last checkpoint of this one is intact",
                code="E_RUN_DIVERGED",
            )


def dropout_seed(seed: int, step: int, batch: int, rank: int = 0, version: int = 1) -> int:
    """One 63-bit seed from four numbers; near ones give distant ones (splitmix64).

    Runs begun by version 1 keep its mixing, which uses the lowest 22 bits of the seed and 8 of the batch.
    """
    mask, mixed = 2**64 - 1, 0
    if version > 1:
        for number in (seed, step, batch, rank):
            mixed = splitmix64((mixed ^ number) & mask)
        return mixed & (2**63 - 1)
    mixed = (seed << 42) ^ (step << 8) ^ batch ^ (rank * 0xD1342543DE82EF95 & mask)
    return splitmix64(mixed) & (2**63 - 1)


def splitmix64(value: int) -> int:
    mask = 2**64 - 1
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        value = (value + 0x9E3779B97F4A7C15) & mask
        value = ((value ^ (value >> 30)) * factor) & mask
    return value ^ (value >> 31)


@contextmanager
def stop_on_signal(trainer: Trainer) -> Iterator[None]:
    """SIGINT and SIGTERM: finish the update and save. A second signal ends at once."""

    def request_stop(number: int, frame: FrameType | None) -> None:
        if trainer.stop_requested:
            raise KeyboardInterrupt
        trainer.stop_requested = True

    try:
        before = [(each, signal.signal(each, request_stop)) for each in (signal.SIGINT, signal.SIGTERM)]
    except ValueError:  # not in the main thread: the caller handles signals
        before = []
    try:
        yield
    finally:
        for each, handler in before:
            signal.signal(each, handler)
