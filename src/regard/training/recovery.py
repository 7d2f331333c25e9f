"""What a run does about wrong numbers: tell, keep the samples; after several in a row stop or go back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from regard.storage import load_latest
from regard.training.parallel import Agreed, crew
from regard.training.progress import Metrics
from regard.training.trouble import FOLDER, MEANINGS, Bad, keep_samples, suspects

if TYPE_CHECKING:
    from regard.training.loop import Trainer

SHOWN = 20  # samples that are named
BACKS = 3  # times that a run goes back without getting past the trouble
CLOCKS = ("seconds", "updating", "waiting", "validating", "saving")


def tell_bad(trainer: Trainer, bad: Bad, metrics: Metrics) -> bool:
    """Record an update that was left out, with the samples to blame; whether the run went back."""
    at, train = trainer.progress, trainer.config.train
    with spared(trainer):
        crew().once(lambda: tell(trainer, bad, metrics))
    if at.bad_in_a_row >= train.bad_steps_in_a_row:
        if train.on_bad == "back":
            go_back(trainer, bad, metrics)
            return True
        stop(trainer, bad, "")
    return False


@contextmanager
def spared(trainer: Trainer) -> Iterator[None]:
    """With a model that one process can try samples on."""
    learning, trainer.model = trainer.model, crew().spare(trainer.model)
    try:
        yield
    finally:
        trainer.model = learning


def tell(trainer: Trainer, bad: Bad, metrics: Metrics) -> None:
    at, train, stream = trainer.progress, trainer.config.train, trainer.stream
    if stream.ranks > 1:  # the samples of all
        batches = [stream.whole(place.epoch, place.pool, place.place) for place in bad.places]
        bad = replace(bad, batches=batches)
    blamed = suspects(bad, trainer.measure)
    names = [bad.places[batch].row(row) for batch, row in blamed[:SHOWN]]
    more = {
        "seed": train.seed,
        "loss": trainer.stream.objective.loss,
        "texts": {name: text_of(trainer, bad, *each) for name, each in zip(names, blamed)},
    }
    file = keep_samples(trainer.folder, bad, blamed, at.backs, more)
    metrics.add(bad.record(names, file, at.bad_in_a_row))
    metrics.listener.say(
        f"step {bad.step}: {MEANINGS[bad.reason]}, the update is left out "
        f"({len(blamed)} samples to blame{f', see {file}' if file else ''})"
    )


def text_of(trainer: Trainer, bad: Bad, batch: int, row: int) -> list[str]:
    """What a sample says, as far as its ids are pieces of text."""
    found = bad.batches[batch]
    pairs = ((found.source, trainer.materials.source), (found.target, trainer.materials.output))
    return [
        tokenizer.decode(tokens.ids[row][tokens.positions[row] >= 0].tolist())
        for tokens, tokenizer in pairs
        if tokens is not None
    ]


def tell_spike(trainer: Trainer, loss: float, norm: float, metrics: Metrics) -> None:
    at = trainer.progress
    metrics.add({"kind": "spike", "step": at.step, "loss": loss, "usual": at.usual, "gradient_norm": norm})


def stop(trainer: Trainer, bad: Bad, why: str) -> NoReturn:
    at = trainer.progress
    times, at.bad_in_a_row = at.bad_in_a_row, 0  # whoever goes on wants the next batches to be tried
    raise Agreed(
        f"{MEANINGS[bad.reason]} at step {bad.step}, {times} times in a row (learning rate {bad.rate:.2e}); "
        f"{why}the samples are in {trainer.folder / FOLDER}: mend the data, or begin a run with a lower "
        "train.lr, a longer train.warmup or train.clip; --resume goes on with the batches after these"
    )


def go_back(trainer: Trainer, bad: Bad, metrics: Metrics) -> None:
    """To the last checkpoint before the trouble, and on with the batches after it; those between are skipped.

    That follows from the run alone, so that a run which is killed meanwhile comes to the same weights.
    """
    before, stream = trainer.progress, trainer.stream
    if before.backs_in_a_row >= BACKS:
        stop(trainer, bad, f"going back {BACKS} times did not help; ")
    first = bad.step - before.bad_in_a_row + 1
    checkpoint = load_latest(trainer.folder, metrics.listener.say, last=first - 1)
    if checkpoint is None:
        stop(trainer, bad, "there is no checkpoint to go back to; ")
    trainer.restore(checkpoint)
    at = trainer.progress
    for name in ("bad", "spikes", *CLOCKS):
        setattr(at, name, getattr(before, name))
    at.bad_in_a_row, at.trouble = 0, bad.step
    at.backs, at.backs_in_a_row = before.backs + 1, before.backs_in_a_row + 1
    at.epoch, at.pool, at.place = stream.epoch, stream.pool, stream.place
    trainer.stream = stream
    metrics.rewind(at.step)
    metrics.add(
        {"kind": "back", "step": at.step, "from": bad.step, "bad": [first, bad.step], "backs": at.backs}
    )
    metrics.listener.say(
        f"went back to step {at.step}; goes on with the batches after those of step {bad.step}"
    )
