"""A training run from top to bottom; `train` is its outline, the functions below follow its order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard import storage
from regard.config import Config, load_config, resolve, to_toml
from regard.config.schema import InputKind, Recipe, TaskName
from regard.data.corpora import check_data
from regard.device import Machine, choose_machine
from regard.errors import RegardError, UsageError
from regard.models.families import Model, build, build_meta, parameters
from regard.storage.inputs import input_size, output_size
from regard.training.distributed import (
    SingleProcess,
    connect,
    is_rank0,
    local_device,
    local_threads,
    restarts,
)
from regard.training.instability import handle_non_finite
from regard.training.listeners import Ending, Listeners, Record, RunInfo, as_listeners, trackers
from regard.training.optimizer import epochs_as_steps
from regard.training.prepare import Log, TrainingData, prepare_data
from regard.training.progress import Metrics, NullMetrics, record_spike
from regard.training.stream import Stream
from regard.training.trainer import Trainer, Window, stop_on_signal


@dataclass(frozen=True)
class Outcome:
    folder: Path
    finished: bool  # False: interrupted, can be resumed
    step: int
    records: list[Record]  # scores of the final model on valid and test
    task: TaskName = "translate"
    seconds: float = 0.0  # of all resumptions
    machine: str = ""
    promised: Recipe = field(default_factory=Recipe)
    input: InputKind = "text"


@dataclass(frozen=True)
class Run:
    """A run that was opened: its folder is locked, its config is final.

    Only `train.steps` of a run that sets `train.epochs` alone follows from the data (`epochs_as_steps`).
    """

    config: Config
    folder: Path
    machine: Machine
    pretrained: storage.Initial | None  # of `[init] from`; None once the run has checkpoints


def train(
    config: Config | Mapping[str, Any] | str | Path | None,
    folder: str | Path,
    resume: bool = False,
    listeners: Sequence[object] = (),
    strict: bool = False,
    listener: object = None,
) -> Outcome:
    """Train into `folder`. With `resume` continue from its newest valid checkpoint, bit for bit.

    `config` is a TOML file, its content as dictionaries, or a `Config`; None for a run that is resumed.
    `listeners` get what the run reports (`Listener`), as do the trackers of `train.track`.
    `strict` stops before training if the check of the data finds anything. Under torchrun all processes call
    this and train one model together.
    """
    folder, resume = Path(folder), resume or restarts() > 0
    everyone = as_listeners(listeners, listener) if is_rank0() else []
    if isinstance(config, str | Path):
        config = load_config(Path(config))
    elif isinstance(config, Mapping):
        config = resolve(dict(config))
    if config is not None and not resume:
        check_data(config.data, config.task)  # before the folder is created
    with locked(folder, config, resume):
        run = open_or_resume(config, folder, resume)
        run.machine.use()
        with connect(run.machine.device, run.config, resume) as dist:
            everyone += trackers(run.config) if dist.is_rank0 else []
            return train_run(run, dist, resume, Listeners(everyone), strict)


def train_run(run: Run, dist: SingleProcess, resume: bool, listeners: Listeners, strict: bool) -> Outcome:
    """The outline of every run; all ranks execute it."""
    config, folder, machine, log = run.config, run.folder, run.machine, listeners.log
    pretrained = run.pretrained
    if pretrained is not None and (config.init.new_tokens or config.init.trim):
        from regard.training.vocabulary import fit_vocabulary

        pretrained = fit_vocabulary(pretrained, config, log)
    data = dist.rank0_first(lambda: prepare_data(config, folder, log, strict, pretrained))
    dist.agree({"data": {"train": data.fingerprint, "valid": data.valid and data.valid.fingerprint}})
    trainer = make_trainer(config, folder, data, machine, dist, pretrained, log)
    if resume:
        from regard.training.checkpoints import latest_checkpoint

        if (checkpoint := latest_checkpoint(folder, log, dist)) is not None:
            trainer.restore(checkpoint)
            log(f"resuming after step {trainer.progress.step}")
    dist.agree({"step": trainer.progress.step})
    # only now: a run whose data cannot be read, or has changed, is left as it is
    dist.on_rank0(lambda: write_run_files(trainer))
    metrics = (Metrics if dist.is_rank0 else NullMetrics)(folder, listeners)
    listeners.start(run_info(trainer, metrics))
    ending: Ending = "failed"
    try:
        log(f"{parameters(trainer.model):,} parameters; {machine_summary(machine, dist)}")
        with stop_on_signal(trainer):
            finished = run_updates(trainer, metrics)
        records: list[Record] = []
        if finished:
            from regard.training.model_folder import write_model_folder

            trainer.model = dist.unsharded(trainer.model)
            records = dist.on_rank0(lambda: write_model_folder(trainer, metrics))
        ending = "finished" if finished else "stopped"
    finally:
        listeners.end(ending)
    progress, used = trainer.progress, machine_summary(machine, dist)
    task, recipe = config.task.name, config.recipe
    kind = config.task.input
    return Outcome(folder, finished, progress.step, records, task, progress.seconds, used, recipe, kind)


# --- open


@contextmanager
def locked(folder: Path, config: Config | None, resume: bool) -> Iterator[None]:
    """Create the folder and lock it, on rank 0 for all processes of the run."""
    check_folder(folder, config, resume)
    if config is not None:
        check_needs(config)
    if not is_rank0():
        yield
        return
    with storage.friendly_os_errors(folder):  # fail now if the folder cannot be written
        storage.make_folders(folder)
    with storage.folder_lock(folder):
        for place in (folder, folder / "checkpoints"):
            storage.remove_partials(place)
        yield


def check_folder(folder: Path, config: Config | None, resume: bool) -> None:
    """Refuse to write over another run or into a folder of something else."""
    if (folder / "run.toml").is_file():
        if not resume:
            raise UsageError(
                f"{folder} already holds a run; resume it, or choose another folder", code="E_RUN_EXISTS"
            )
        return
    if config is None:
        raise UsageError(
            f"{folder} holds no run to resume; give its TOML file to begin one", code="E_RUN_MISSING"
        )
    if folder.is_file() or (
        folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())
    ):
        raise UsageError(
            f"{folder} is not empty and holds no run; choose another folder", code="E_RUN_FOLDER"
        )


def check_needs(config: Config) -> None:
    """Fail now if sacreBLEU's tokenizer or a tracker's package is missing, not at the first validation."""
    if config.task.name == "translate":
        from regard.metrics.bleu import bleu_tokenization, make_bleu

        make_bleu(bleu_tokenization(config.train.bleu_tokenize, config.task.target))
    trackers(config)


def open_or_resume(config: Config | None, folder: Path, resume: bool) -> Run:
    """The config of the run with everything decided: resumed fields, the pretrained shape, the machine."""
    check_folder(folder, config, resume)  # again, now that the folder is locked
    stored = None
    if (folder / "run.toml").is_file():
        with storage.verified(folder, weights=False):
            stored = load_config(folder / "run.toml")
    if stored is not None:
        from regard.training.initial import resumed_config

        config = stored if config is None else resumed_config(config, stored, folder)
    if config is None:
        raise ValueError("check_folder refuses a folder without a run and without a config")
    check_needs(config)
    pretrained = None
    if config.init.model is not None and not storage.checkpoint_steps(folder):  # else it is not needed
        from regard.training.initial import with_shape

        pretrained = storage.read_model(Path(config.init.model), config.model.head)
        config = with_shape(config, pretrained.config)
    device, threads = local_device(config.train.device), local_threads(config.train.threads)
    machine = choose_machine(device, config.train.precision, threads, config.model.width)
    return Run(with_machine(config, machine), folder, machine, pretrained)


def with_machine(config: Config, machine: Machine) -> Config:
    """The config with the machine's decisions, so that a resume uses the same."""
    update = {"device": str(machine.device), "precision": machine.precision, "threads": machine.threads}
    return config.model_copy(update={"train": config.train.model_copy(update=update)})


def machine_summary(machine: Machine, dist: SingleProcess) -> str:
    processes = f", {dist.world_size} processes" if dist.world_size > 1 else ""
    return f"{machine.device}, {machine.precision}, {machine.threads} threads{processes}"


# --- model and trainer


def build_model(
    config: Config,
    data: TrainingData,
    machine: Machine,
    pretrained: storage.Initial | None = None,
    log: Log = lambda text: None,
    meta: bool = False,
) -> Model:
    """Initial weights by the run's seed, or of the pretrained model where they fit; or on the meta device."""
    torch.manual_seed(config.train.seed)
    make, outputs = build_meta if meta else build, output_size(data.source, data.target, data.labels)
    model = make(config.model, input_size(data.source), outputs)
    if machine.precision == "float64":
        model = model.double()
    if pretrained is not None and not meta:
        from regard.training.initial import load_initial

        log(load_initial(model, pretrained.weights, config.init))
    if config.init.lora is not None or config.train.gradient_checkpointing:
        from regard.training.checkpointing import add_parts

        add_parts(model, config)
    return model


def make_trainer(
    config: Config,
    folder: Path,
    data: TrainingData,
    machine: Machine,
    dist: SingleProcess | None = None,
    pretrained: storage.Initial | None = None,
    log: Log = lambda text: None,
) -> Trainer:
    """With FSDP, rank 0 alone has all initial weights at once, and only until they are divided."""
    dist, train = dist or SingleProcess(), config.train
    sharded, weights = dist.shards(train.parallel), {}
    model = None if sharded and not dist.is_rank0 else build_model(config, data, machine, pretrained, log)
    if sharded:
        weights = dict(model.named_parameters()) if model is not None else {}
        model = build_model(config, data, machine, meta=True)
    assert model is not None
    stream = Stream(
        data.training,
        data.objective,
        train.tokens_per_batch,
        train.seed,
        rank=dist.rank,
        world_size=dist.world_size,
        version=config.version,
    )
    config = config.model_copy(update={"train": epochs_as_steps(train, stream.batches_per_epoch)})
    return Trainer(config, folder, model, stream, data, machine, dist, weights)


def open_trainer(config: Config, folder: Path) -> Trainer:
    """A trainer that is ready to update, for measurements: no run is begun in `folder`."""
    train = config.train
    machine = choose_machine(train.device, train.precision, train.threads, config.model.width)
    machine.use()
    config = with_machine(config, machine)
    return make_trainer(config, folder, prepare_data(config, folder, lambda text: None), machine)


def write_run_files(trainer: Trainer) -> None:
    """Config, data record and tokenizers."""
    folder, config, data = trainer.folder, trainer.config, trainer.data
    storage.remove_checksums(folder)
    storage.write_text(folder / "run.toml", to_toml(config))
    storage.write_json(folder / "data.json", data.record)
    storage.write_identity(
        folder, config, data.source, data.target, data.split_above, data.labels, data.may_refuse
    )
    storage.write_checksums(folder)


def run_info(trainer: Trainer, metrics: Metrics) -> RunInfo:
    """For the listeners; the records after the trainer's step are removed."""

    def stop() -> None:
        trainer.stop_requested = True

    step, reported = trainer.progress.step, metrics.last_steps()
    records = metrics.rewind(step)
    return RunInfo(trainer.folder, trainer.config, step, stop, records, reported)


# --- the loop


def run_updates(trainer: Trainer, metrics: Metrics) -> bool:
    """Train until a limit is reached (True) or a stop is requested (False).

    After any error the progress so far is saved if possible.
    """
    try:
        return loop(trainer, metrics)
    except Exception as error:
        saved = trainer.dist.can_save_after(error) and trainer.save_if_possible()
        if not saved or not isinstance(error, RegardError | OSError):
            raise
        code = getattr(error, "code", None)
        raise RegardError(
            f"{error}; the run is saved up to step {trainer.progress.step}", code=code
        ) from error


def loop(trainer: Trainer, metrics: Metrics) -> bool:
    """update -> log -> validate -> save"""
    window, log_every = Window(), trainer.config.train.log_every
    for step in trainer:
        if step.reason is None:
            record_spike(trainer.progress, step.loss / step.tokens, step.gradient_norm, metrics)
            window.loss, window.tokens = window.loss + step.loss, window.tokens + step.tokens
        elif handle_non_finite(trainer, step, metrics):  # rolled back
            window = Window()
            continue
        if step.number % log_every == 0:
            metrics.add(trainer.train_record(window, step.gradient_norm))
            window = Window()
        if trainer.is_scheduled(step.number):
            with window.paused():
                validate_and_save(trainer, metrics)
    if trainer.stopped:
        if trainer.saved_step != trainer.progress.step:
            trainer.save()
        return False
    if not trainer.is_scheduled(trainer.progress.step):
        validate_and_save(trainer, metrics)
    return True


def validate_and_save(trainer: Trainer, metrics: Metrics) -> None:
    """Validate if it is due, then save: a checkpoint includes the validation of its step."""
    train, step = trainer.config.train, trainer.progress.step
    unstable, is_last = trainer.progress.non_finite_in_a_row > 0, trainer.limit_reached()
    if unstable and not is_last:  # the weights have not changed, and may be the cause
        return
    is_due = step % (train.validate_every or train.checkpoint_every) == 0 or is_last
    if is_due and trainer.data.valid is not None and not unstable:
        record = trainer.validate()
        trainer.update_best(record)
        metrics.add(record)
    metrics.sync()  # before the checkpoint: a run resumed after a power cut has all its records
    trainer.save()
