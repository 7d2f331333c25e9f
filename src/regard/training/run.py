"""A run from its config to its model folder: begin or resume, train, choose, write."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch

from regard.config import Config, differing_field, load_config, to_toml
from regard.config.schema import Recipe, TaskName
from regard.device import Machine, choose_machine, release_memory
from regard.errors import RegardError, UsageError
from regard.metrics.bleu import bleu_tokenization, make_bleu
from regard.models import build, parameters
from regard.storage import (
    Checkpoint,
    Initial,
    average_weights,
    checkpoint_folder,
    checkpoint_steps,
    folder_lock,
    friendly_os_errors,
    is_complete,
    load_checkpoint,
    load_latest,
    load_weights_into,
    make_folders,
    read_model,
    remove_checksums,
    remove_partials,
    unique_weights,
    verified,
    write_card,
    write_checksums,
    write_identity,
    write_json,
    write_text,
    write_weights,
)
from regard.training.evaluation.base import FILES
from regard.training.flops import measured_peak
from regard.training.initial import load_initial, with_shape
from regard.training.loop import Trainer
from regard.training.parallel import crew, gathered, own_device, own_threads, restarts
from regard.training.prepare import Materials, names, prepare
from regard.training.progress import Listener, Metrics, Record, Silent, Unheard
from regard.training.report import evaluate_command, finish_report, main_scores
from regard.training.schedule import counted
from regard.training.stream import Stream

# What may differ when a run is resumed: where it ends and what it keeps. (With other `steps` a rate that
# falls to the end falls to another one.)
LIMITS = (
    *("train.steps", "train.epochs", "train.minutes", "train.patience", "train.keep", "train.log_every"),
    *("train.bad_steps_in_a_row", "train.on_bad", "train.parallel", "recipe.expected", "recipe.time"),
)


@dataclass(frozen=True)
class Outcome:
    folder: Path
    finished: bool  # False: interrupted, to be resumed
    step: int
    records: list[Record]  # of the final model, on valid and test
    task: TaskName = "translate"
    seconds: float = 0.0  # of all resumptions
    machine: str = ""
    promised: Recipe = field(default_factory=Recipe)


def train(
    config: Config | None,
    folder: Path,
    resume: bool = False,
    listener: Listener | None = None,
    strict: bool = False,
) -> Outcome:
    """Train into `folder`. With `resume` go on from its newest valid checkpoint, with equal bits.

    `strict` stops before training where a check of the data found anything. Under torchrun all processes call
    this, and train one model together.
    """
    given, resume = config, resume or restarts() > 0
    config = open_run(given, folder, resume)
    if config.task.name == "translate":
        # what the scores need is better missed now than at the first validation
        make_bleu(bleu_tokenization(config.train.bleu_tokenize, config.task.target))
    initial = (
        read_model(Path(config.init.model), config.model.head)
        if config.init.model and not begun(folder)
        else None
    )
    if initial is not None:
        config = with_shape(config, initial.config)
    device, threads = own_device(config.train.device), own_threads(config.train.threads)
    machine = choose_machine(device, config.train.precision, threads, config.model.width)
    config = pinned(config, machine)
    machine.use()
    with gathered(machine.device), crew_in(folder):
        if crew().is_voice:
            open_run(given, folder, resume)  # again: another run may have been here meanwhile
            for place in (folder, folder / "checkpoints"):
                remove_partials(place)
        heard = listener if listener is not None and crew().is_voice else Silent()
        return train_in(config, folder, resume, heard, strict, initial, machine)


@contextmanager
def crew_in(folder: Path) -> Iterator[None]:
    """The voice holds the folder for all processes of this run."""
    if crew().is_voice:
        with friendly_os_errors(folder):  # a place that cannot be written is better known before the work
            make_folders(folder)
    with folder_lock(folder) if crew().is_voice else nullcontext():
        yield


def train_in(
    config: Config,
    folder: Path,
    resume: bool,
    listener: Listener,
    strict: bool,
    initial: Initial | None,
    machine: Machine,
) -> Outcome:
    materials = crew().voice_first(lambda: prepare(config, folder, listener.say, strict, initial))
    trainer = make_trainer(config, folder, materials, machine, initial, listener)
    if resume and (checkpoint := newest(folder, listener)) is not None:
        trainer.restore(checkpoint)
        listener.say(f"resuming after step {trainer.progress.step}")
    # only now: a run whose data cannot be read, or has changed, is not touched
    config = trainer.config
    crew().once(lambda: write_beginning(config, folder, materials))
    metrics = (Metrics if crew().is_voice else Unheard)(folder, listener)
    metrics.rewind(trainer.progress.step)
    used = f"{machine.device}, {machine.precision}, {machine.threads} threads"
    used += f", {crew().size} processes" if crew().size > 1 else ""
    listener.say(f"{parameters(trainer.model):,} parameters; {used}")
    with stopping(trainer):
        finished = trainer.run(metrics)
    records: list[Record] = []
    if finished:
        trainer.model = crew().readable(trainer.model)
        records = crew().once(lambda: finish(trainer, metrics))
    at = trainer.progress
    return Outcome(
        folder, finished, at.step, records, config.task.name, at.seconds, used, promised=config.recipe
    )


def write_beginning(config: Config, folder: Path, materials: Materials) -> None:
    """What a run is: its config, data and tokenizers."""
    remove_checksums(folder)
    write_text(folder / "run.toml", to_toml(config))
    write_json(folder / "data.json", materials.record)
    write_identity(
        folder,
        config,
        materials.source,
        materials.target,
        materials.split_above,
        materials.labels,
        materials.may_refuse,
    )
    write_checksums(folder)


def open_run(config: Config | None, folder: Path, resume: bool) -> Config:
    """The config to go by; refuse to write over another run."""
    stored = folder / "run.toml"
    if not stored.is_file():
        if config is None:
            raise UsageError(f"{folder} holds no run to resume; give its TOML file to begin one")
        if folder.is_file() or (
            folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())
        ):
            raise UsageError(f"{folder} is not empty and holds no run; choose another folder with --out")
        return config
    if not resume:
        raise UsageError(
            f"{folder} already holds a run; go on with --resume, or choose another folder with --out"
        )
    with verified(folder, weights=False):
        before = load_config(stored)
    if config is None:
        return before
    train = config.train.model_copy(update=decided(config, before))
    own = config.model_copy(update={"train": train, "version": before.version})
    if own.init.model is not None and own.init.model == before.init.model:
        own = with_shape(own, before.model)  # the folder's, as when the run began
    if field := differing_field(own, before, ignore=LIMITS):
        raise UsageError(
            f"{field} is not what {folder} began with; only limits ({', '.join(LIMITS)}) may change "
            "when resuming"
        )
    return own


def newest(folder: Path, listener: Listener) -> Checkpoint | None:
    """The last whole checkpoint. A run that has some but no whole one does not silently begin anew."""
    found = load_latest(folder, listener.say)
    if found is None and checkpoint_steps(folder):
        raise RegardError(
            f"{folder / 'checkpoints'}: none of {len(checkpoint_steps(folder))} checkpoints is whole; put one back from "
            "a copy, or delete them all to begin again from the first step"
        )
    return found


def begun(folder: Path) -> bool:
    """Whether a run has a checkpoint to go on from: then it needs nothing of the model it began with."""
    return bool(checkpoint_steps(folder))


def decided(config: Config, before: Config) -> dict[str, object]:
    """What followed from the machine, and from the first limit of steps, stays as it was."""
    kept: dict[str, object] = {}
    for name, undecided in (("device", "auto"), ("precision", "auto"), ("threads", 0)):
        if getattr(config.train, name) == undecided:
            kept[name] = getattr(before.train, name)
    if config.train.device == "cuda" and before.train.device.startswith("cuda:"):  # one of several processes
        kept["device"] = before.train.device
    if config.train.steps != before.train.steps:
        kept["warmup"] = before.train.warmup
    return kept


def pinned(config: Config, machine: Machine) -> Config:
    """The config with what the machine decided, so that resuming obeys it."""
    found = {"device": str(machine.device), "precision": machine.precision, "threads": machine.threads}
    return config.model_copy(update={"train": config.train.model_copy(update=found)})


def make_trainer(
    config: Config,
    folder: Path,
    materials: Materials,
    machine: Machine,
    initial: Initial | None = None,
    listener: Listener | None = None,
) -> Trainer:
    torch.manual_seed(config.train.seed)
    target = materials.target
    said = materials.labels or (
        None if target is None or materials.source.shares_vocabulary(target) else target
    )
    model = build(config.model, len(materials.source), None if said is None else len(said))
    if machine.precision == "float64":
        model = model.double()
    if initial is not None:
        (listener or Silent()).say(load_initial(model, initial.weights, config.init))
    train = config.train
    stream = Stream(
        materials.training,
        materials.objective,
        train.tokens_per_batch,
        train.seed,
        rank=crew().rank,
        ranks=crew().size,
    )
    config = config.model_copy(update={"train": counted(train, stream.batches_per_epoch)})
    return Trainer(config, folder, model, stream, materials, machine)


def open_trainer(config: Config, folder: Path) -> Trainer:
    """A trainer that is ready to update, for measurements: no run is begun in `folder`."""
    train = config.train
    machine = choose_machine(train.device, train.precision, train.threads, config.model.width)
    machine.use()
    config = pinned(config, machine)
    return make_trainer(config, folder, prepare(config, folder, Silent().say), machine)


@contextmanager
def stopping(trainer: Trainer) -> Iterator[None]:
    """Ctrl-C or a polite kill: finish the update and save. A second one leaves at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        if trainer.stop_asked:
            raise KeyboardInterrupt
        trainer.stop_asked = True

    names = [signal.SIGINT, signal.SIGTERM]
    try:
        before = [(name, signal.signal(name, ask)) for name in names]
    except ValueError:  # not in the main thread: the caller handles signals
        before = []
    try:
        yield
    finally:
        for name, handler in before:
            signal.signal(name, handler)


def finish(trainer: Trainer, metrics: Metrics) -> list[Record]:
    """Choose the model, write it to the folder's root, score it, write card, curves and report."""
    config, folder, materials = trainer.config, trainer.folder, trainer.materials
    chosen = choose(trainer, metrics)
    remove_checksums(folder)
    write_weights(folder, config.model, unique_weights(trainer.model))
    write_checksums(folder)
    records = []
    for kind, held in (("final-valid", materials.valid), ("test", materials.test)):
        if held is not None:
            release_memory()
            found = held.final(trainer.model.eval(), trainer.machine.device, folder / FILES[kind])
            record = {"kind": kind, "step": trainer.progress.step, **found, "sentences": len(held)}
            metrics.add(record)
            records.append(record)
    facts = {
        "data": names(config.data.train, config.task),
        "steps": trainer.progress.step,
        "chosen": chosen,
        "command": evaluate_command(config, folder.resolve().name),
    }
    scores = card_scores(config.task.name, records)
    write_card(folder, config, parameters(trainer.model), facts, scores, materials.record)
    metrics.add(run_record(trainer, chosen))
    finish_report(folder, metrics.listener.say)
    return records


def choose(trainer: Trainer, metrics: Metrics) -> str:
    """Load the best checkpoint, or the average of the newest if it is better on the validation data."""
    at, model, folder = trainer.progress, trainer.model, trainer.folder
    averaged = whole(trainer.averaged_folders(), metrics) if trainer.config.train.average > 1 else []
    best = at.best_step
    if averaged:
        load_weights_into(model, average_weights(averaged), folder)
        name = f"average of the checkpoints {', '.join(path.name for path in averaged)}"
        if trainer.materials.valid is None:
            return name
        worse = at.worse
        record = trainer.validate()
        trainer.judge(record)
        metrics.add({**record, "kind": "average"})
        if at.worse <= worse:
            return name
    if best is None:
        if averaged:
            raise ValueError("an average without validation is chosen above")
        return f"last checkpoint, step {at.step}"
    if not whole([checkpoint_folder(folder, best)], metrics):
        last = newest(folder, metrics.listener)
        if last is None:
            raise RegardError(f"{folder}: its checkpoints are gone; begin a new run")
        load_weights_into(model, last.model, folder)
        return f"last checkpoint, step {last.state['step']}, because the best one is damaged"
    load_weights_into(model, load_checkpoint(checkpoint_folder(folder, best)).model, folder)
    return f"best checkpoint by {trainer.config.train.metric} on the validation data, step {best}"


def whole(folders: list[Path], metrics: Metrics) -> list[Path]:
    """Those checkpoints that are as they were written; others are named aloud and passed over."""
    found = [path for path in folders if is_complete(path)]
    for path in folders:
        if path not in found:
            metrics.listener.say(f"{path}: damaged, and passed over")
    return found


def run_record(trainer: Trainer, chosen: str) -> Record:
    """What the whole run was and cost; times are seconds, all resumptions included."""
    at, machine, materials = trainer.progress, trainer.machine, trainer.materials
    tokenizers = (materials.source,) if materials.target is None else (materials.source, materials.target)
    return {
        "kind": "run",
        "step": at.step,
        "epochs": trainer.stream.epochs_done,
        "tokens": at.tokens,
        "chosen": chosen,
        "parameters": parameters(trainer.model),
        "vocabulary": [len(tokenizer) for tokenizer in tokenizers],
        "device": str(machine.device),
        "precision": machine.precision,
        "threads": machine.threads,
        "seconds": at.seconds,
        "updating": at.updating,
        "waiting": at.waiting,
        "validating": at.validating,
        "saving": at.saving,
        "flops": at.flops,
        "peak": measured_peak(machine),
    }


def card_scores(task: TaskName, records: list[Record]) -> dict[str, str]:
    """The numbers of the final records that a reader of the card looks for."""
    found = {}
    for record in records:
        for measure in main_scores(task):
            if measure.value_in(record) is not None:
                signature = record.get(f"{measure.key}_signature")
                name = f"{record['kind']}: {measure.name}" + (f" ({signature})" if signature else "")
                found[name] = measure.format({**record, f"{measure.key}_interval": None})
    return found
