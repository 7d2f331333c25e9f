"""Non-finite updates: record them; after several in a row stop or roll back.

An update whose loss or gradient is not finite, or whose batches have no labels, never reaches the weights.
The check is free: it reads the loss and the gradient norm, which are computed anyway.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn

from regard.batch import Batch, Tokens
from regard.errors import CollectiveError
from regard.inputs.text import Tokenizer
from regard.storage import checkpoint_steps, friendly_os_errors, make_folders, prune, write_json
from regard.training.progress import Metrics, Reason, Step

if TYPE_CHECKING:
    from regard.training.trainer import Trainer

MEANINGS: dict[Reason | None, str] = {
    "loss": "the loss is not finite",
    "gradient": "the gradient is not finite",
    "empty": "there is nothing to learn from",
}
FOLDER = "bad"
MAX_FILES = 100  # in it; further updates are recorded without their texts
MAX_NAMES = 20  # samples named in a record
MAX_ROLLBACKS = 3  # without passing the step that went wrong
CLOCKS = ("seconds", "update_seconds", "data_seconds", "validation_seconds", "save_seconds")


def handle_non_finite(trainer: Trainer, update: Step, metrics: Metrics) -> bool:
    """Record the skipped update; after several in a row stop, or roll back (True)."""
    trainer.dist.on_rank0(lambda: record_non_finite(trainer, update, metrics))
    train = trainer.config.train
    if trainer.progress.non_finite_in_a_row < train.bad_steps_in_a_row:
        return False
    if train.on_bad != "back":
        stop(trainer, update, "")
    roll_back(trainer, update, metrics)
    return True


def record_non_finite(trainer: Trainer, update: Step, metrics: Metrics) -> None:
    """A line of metrics.jsonl, and the texts of the update's samples in `bad/step-N.json`."""
    progress = trainer.progress
    batches = [(at, trainer.stream.full_batch(at)) for at in update.positions]
    texts = {
        f"{at.epoch}-{at.pool}-{at.batch}-{row}": sample_texts(trainer, batch, row)
        for at, batch in batches
        for row in range(0 if batch.labels is None else len(batch.labels))
    }
    file = write_samples(trainer, update, texts)
    metrics.add(
        {
            "kind": "bad",
            "step": update.number,
            "reason": update.reason,
            "loss": update.loss,
            "gradient_norm": update.gradient_norm,
            "lr": update.learning_rate,
            "samples": list(texts)[:MAX_NAMES],
            "file": file,
            "in_a_row": progress.non_finite_in_a_row,
        }
    )
    metrics.listener.log(
        f"step {update.number}: {MEANINGS[update.reason]}, the update is skipped "
        f"(one of {len(texts)} samples{f', see {file}' if file else ''})"
    )


def sample_texts(trainer: Trainer, batch: Batch, row: int) -> list[str]:
    """Source and target of one sample, decoded as far as its ids are tokens of text."""
    data = trainer.data
    sides = ((batch.source, data.source), (batch.target, data.target or data.source))
    return [
        tokenizer.decode(tokens.ids[row][tokens.positions[row] >= 0].tolist())
        for tokens, tokenizer in sides
        if isinstance(tokens, Tokens) and isinstance(tokenizer, Tokenizer)
    ]


def write_samples(trainer: Trainer, update: Step, texts: dict[str, list[str]]) -> str | None:
    """The file's name, or None if there are `MAX_FILES` already."""
    folder, attempt = trainer.folder / FOLDER, trainer.progress.rollbacks
    with friendly_os_errors(folder):
        make_folders(folder)
        if sum(1 for _ in folder.iterdir()) >= MAX_FILES:
            return None
    name = f"{FOLDER}/step-{update.number}{f'-again-{attempt}' if attempt else ''}.json"
    content: dict[str, Any] = {
        "step": update.number,
        "reason": update.reason,
        "meaning": MEANINGS[update.reason],
        "learning_rate": update.learning_rate,
        "seed": trainer.config.train.seed,
        "batches": [asdict(position) for position in update.positions],
        "texts": texts,
    }
    write_json(trainer.folder / name, content)
    return name


def stop(trainer: Trainer, update: Step, why: str) -> NoReturn:
    progress = trainer.progress
    times, progress.non_finite_in_a_row = progress.non_finite_in_a_row, 0  # --resume tries the next batches
    raise CollectiveError(
        f"{MEANINGS[update.reason]} at step {update.number}, {times} times in a row (learning rate "
        f"{update.learning_rate:.2e}); {why}the samples are in {trainer.folder / FOLDER}: correct the data, "
        "or begin a run with a lower train.lr, a longer train.warmup or train.clip; --resume continues with "
        "the batches after these",
        code="E_RUN_DIVERGED",
    )


def roll_back(trainer: Trainer, update: Step, metrics: Metrics) -> None:
    """Restore the last checkpoint before the non-finite updates; continue with the batches after them.

    Checkpoints after that one are deleted: they belong to steps that are now done with other batches. All
    this follows from the run alone, so that a run killed meanwhile comes to the same weights.
    """
    before, stream = trainer.progress, trainer.stream
    if before.rollbacks_in_a_row >= MAX_ROLLBACKS:
        stop(trainer, update, f"{MAX_ROLLBACKS} roll-backs did not help; ")
    first = update.number - before.non_finite_in_a_row + 1
    from regard.training.checkpoints import latest_checkpoint

    checkpoint = latest_checkpoint(trainer.folder, metrics.listener.log, trainer.dist, last=first - 1)
    if checkpoint is None:
        stop(trainer, update, "there is no checkpoint to roll back to; ")
    trainer.restore(checkpoint)
    progress = trainer.progress
    for name in ("non_finite", "spikes", *CLOCKS):
        setattr(progress, name, getattr(before, name))
    progress.non_finite_in_a_row, progress.last_non_finite = 0, update.number
    progress.rollbacks, progress.rollbacks_in_a_row = before.rollbacks + 1, before.rollbacks_in_a_row + 1
    progress.epoch, progress.pool, progress.batch = stream.epoch, stream.pool, stream.batch
    trainer.stream = stream
    target = progress.step
    trainer.dist.on_rank0(
        lambda: prune(trainer.folder, {step for step in checkpoint_steps(trainer.folder) if step <= target})
    )
    metrics.rewind(target)
    bad = [first, update.number]
    metrics.add(
        {"kind": "back", "step": target, "from": update.number, "bad": bad, "backs": progress.rollbacks}
    )
    metrics.listener.log(
        f"rolled back to step {target}; continues with the batches after those of step {update.number}"
    )
