"""`regard sweep`: runs with varied fields, chosen and pruned by Optuna, on several processes, resumable.

Each trial is a run folder. Optuna's journal is the only record of what was tried: a trial that runs there,
and has no process, continues from its checkpoint.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from regard import storage
from regard.config import Config
from regard.config.sweep import Range, SweepConfig, grid
from regard.data.corpora import check_data
from regard.device import default_threads
from regard.errors import RegardError, UsageError, extra
from regard.training.listeners import Listener, Record, RunInfo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess

    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

JOURNAL, IDENTITY = "sweep.journal", "sweep.json"
VALIDATIONS = ("valid", "average")  # kinds of records with the metric
MAX_FAILURES = 5  # in a row
LOCKED_SECONDS = 600  # to wait for a process of a sweep that was killed: it saves after its update


@dataclass
class TrialResult:
    """What a worker reports of a run at its end."""

    finished: bool
    step: int
    error: str = ""


# --- the worker process


class TrialListener(Listener):
    """Reports validations to the sweep, which answers whether to stop; stops, too, if the sweep is gone."""

    def __init__(self, line: Connection[Any, Any], metric: str) -> None:
        self.line, self.metric = line, metric

    def start(self, run: RunInfo) -> None:
        self.run = run
        for record in run.records:  # of a trial that continues
            self.report(record)

    def record(self, record: Record) -> None:
        self.report(record)
        with self.stop_if_gone():
            if self.line.poll():  # the sweep stops, or is gone
                self.line.recv()
                self.run.stop()

    def report(self, record: Record) -> None:
        value = record.get(self.metric)
        if record["kind"] in VALIDATIONS and isinstance(value, int | float) and math.isfinite(value):
            with self.stop_if_gone():
                self.line.send((record["step"], float(value)))
                if self.line.recv():
                    self.run.stop()

    @contextmanager
    def stop_if_gone(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            self.run.stop()


def work(line: Connection[Any, Any], metric: str) -> None:
    """The worker process: train until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a run has its own handler, which saves
    Thread(target=end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while (task := line.recv()) is not None:
            if isinstance(task, tuple):  # else an answer that came after the end of a run
                config, folder = task
                line.send(run_trial(config, folder, TrialListener(line, metric)))


def end_with_parent() -> None:
    """If the sweep is killed, its runs save and end."""
    if (parent := parent_process()) is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def run_trial(config: Config, folder: Path, listener: Listener) -> TrialResult:
    from regard.training.run import train

    exists, started = (folder / "run.toml").is_file(), time.monotonic()
    while True:
        try:
            outcome = train(config, folder, resume=exists, listeners=[listener])
            return TrialResult(outcome.finished, outcome.step)
        except KeyboardInterrupt:
            return TrialResult(False, 0)
        except RegardError as error:
            waiting = time.monotonic() - started < LOCKED_SECONDS
            if error.code != "E_FOLDER_LOCKED" or not waiting:
                return TrialResult(False, 0, str(error))
            time.sleep(0.5)
        except Exception as error:
            return TrialResult(False, 0, f"{type(error).__name__}: {error}")


# --- the sweep


@dataclass
class Sweep:
    config: SweepConfig
    folder: Path
    study: Study
    jobs: int
    log: Callable[[str], None]
    threads: int
    busy: dict[Connection[Any, Any], Trial] = field(default_factory=dict)
    idle: list[Connection[Any, Any]] = field(default_factory=list)
    processes: dict[Connection[Any, Any], BaseProcess] = field(default_factory=dict)
    pruned: set[int] = field(default_factory=set)
    stopping: bool = False
    failures_in_a_row: int = 0

    def run(self) -> bool:
        """All trials; False if Ctrl-C ended it."""
        interrupted = self.cut_off()
        try:
            while True:
                while len(self.busy) < self.jobs and (trial := self.next_trial(interrupted)) is not None:
                    self.begin(trial)
                if not self.busy:
                    return True
                self.receive()
        except KeyboardInterrupt:
            self.log("saving the runs; Ctrl-C again ends at once")
            self.stopping = True
            for line in self.busy:
                with suppress(OSError):
                    line.send("stop")
            while self.busy:
                self.receive()
            return False
        finally:
            self.close()

    def cut_off(self) -> list[Trial]:
        """The trials that an earlier process began and did not end."""
        from optuna.trial import Trial, TrialState

        trials = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [Trial(self.study, trial._trial_id) for trial in trials]

    def next_trial(self, interrupted: list[Trial]) -> Trial | None:
        from optuna.trial import TrialState

        if interrupted:
            return interrupted.pop(0)
        trials = self.study.get_trials(deepcopy=False)
        number = sum(trial.state != TrialState.WAITING for trial in trials)
        if number >= self.config.trials:
            return None
        # a sampler's random numbers are a function of (seed, trial): the same after a resume
        self.study.sampler = make_sampler(self.config, number)
        return self.study.ask()

    def begin(self, trial: Trial) -> None:
        values = {name: suggest(trial, name, each) for name, each in self.config.file.fields.items()}
        folder = trial_folder(self.folder, trial.number)
        try:
            config = self.config.trial(values)
        except RegardError as error:  # these values do not go together
            self.end(trial, TrialResult(False, 0, str(error)))
            return
        if "threads" not in self.config.tree.get("train", {}):
            train = config.train.model_copy(update={"threads": self.threads})
            config = config.model_copy(update={"train": train})
        line = self.idle.pop() if self.idle else self.start_process()
        self.busy[line] = trial
        with suppress(OSError):  # it died: `receive` handles that
            line.send((config, folder))

    def start_process(self) -> Connection[Any, Any]:
        context = get_context("spawn")
        parent, child = context.Pipe()
        process = context.Process(target=work, args=(child, self.config.metric))
        process.start()
        child.close()
        self.processes[parent] = process
        return parent

    def receive(self) -> None:
        """Wait for one message of a worker, and answer it."""
        line: Any = wait(list(self.busy))[0]
        trial = self.busy[line]
        try:
            message = line.recv()
        except (EOFError, OSError):
            process = self.processes.pop(line)
            process.join()
            del self.busy[line]
            self.end(trial, TrialResult(False, 0, f"its process ended with code {process.exitcode}"))
            return
        if isinstance(message, TrialResult):
            del self.busy[line]
            self.idle.append(line)
            self.end(trial, message)
            return
        step, value = message
        if step not in self.stored(trial).intermediate_values:
            trial.report(value, step)
        if trial.should_prune():
            self.pruned.add(trial.number)
        with suppress(OSError):
            line.send(self.stopping or trial.number in self.pruned)

    def end(self, trial: Trial, result: TrialResult) -> None:
        from optuna.trial import TrialState

        values = self.stored(trial).intermediate_values
        state, value = TrialState.COMPLETE, None
        if result.error or (result.finished and not values):
            state = TrialState.FAIL
            result.error = result.error or f"no validation had {self.config.metric}"
            trial.set_user_attr("error", result.error)
        elif result.finished:
            value = (max if self.config.direction == "maximize" else min)(values.values())
        elif trial.number in self.pruned:
            state = TrialState.PRUNED
        else:  # interrupted: it stays a running one, to be continued
            return
        trial.set_user_attr("step", max([result.step, *values]))
        self.study.tell(trial, value, state)
        self.log(describe(trial.number, state.name.lower(), self.config.metric, value, result.error))
        self.failures_in_a_row = self.failures_in_a_row + 1 if state == TrialState.FAIL else 0
        if self.failures_in_a_row >= MAX_FAILURES:
            raise RegardError(
                f"{MAX_FAILURES} trials in a row failed: {result.error}; the same command tries the others",
                code="E_SWEEP_FAILED",
            )

    def stored(self, trial: Trial) -> FrozenTrial:
        return self.study.get_trials(deepcopy=False)[trial.number]

    def close(self) -> None:
        for line in [*self.idle, *self.busy]:
            with suppress(OSError):
                line.send(None)
            if line in self.busy:
                self.processes[line].terminate()
        for process in self.processes.values():
            process.join()


def describe(number: int, state: str, metric: str, value: float | None, error: str) -> str:
    score = f"  {metric} {value:.6g}" if value is not None else ""
    return f"trial {number}: {state}{score}" + (f" ({error})" if error else "")


def trial_folder(folder: Path, number: int) -> Path:
    return folder / f"trial-{number:04d}"


def sweep(
    config: SweepConfig, folder: Path, jobs: int = 1, log: Callable[[str], None] = lambda text: None
) -> tuple[bool, list[FrozenTrial]]:
    """Run the trials that `folder` lacks; whether all are done, and all trials."""
    with extra("sweep"):
        import optuna
    check_data(config.base.data, config.base.task)
    with storage.friendly_os_errors(folder):
        storage.make_folders(folder)
    with storage.folder_lock(folder):
        check_identity(config, folder)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(
            storage=open_journal(folder / JOURNAL),
            study_name="sweep",
            direction=config.direction,
            pruner=make_pruner(config),
            load_if_exists=True,
        )
        if config.file.sampler == "grid":
            for values in itertools.islice(grid(config.file), config.trials):
                study.enqueue_trial(
                    {name: category(value) for name, value in values.items()}, skip_if_exists=True
                )
        threads = max(1, default_threads() // jobs)
        finished = Sweep(config, folder, study, jobs, log, threads).run()
        return finished, study.get_trials()


def open_journal(path: Path) -> Any:
    """For the process that has the folder's lock: removes what a process that was killed left."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    if path.is_file() and not (content := path.read_bytes()).endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])
    return JournalStorage(JournalFileBackend(str(path), JournalFileOpenLock(str(path))))


def check_identity(config: SweepConfig, folder: Path) -> None:
    """Refuse a folder of another sweep, or of something else."""
    path = folder / IDENTITY
    if not path.is_file():
        if any(not each.name.startswith(".") for each in folder.iterdir()):
            raise UsageError(
                f"{folder} is not empty and holds no sweep; choose another folder", code="E_SWEEP_FOLDER"
            )
        storage.write_json(path, config.identity)
        return
    stored = storage.read_json(path)
    for name in {**stored, **config.identity}:
        if stored.get(name) != config.identity.get(name):
            what = "the base run" if name == "run" else name
            raise UsageError(
                f"{folder}: {what} is not what this sweep began with; only trials may change; restore it, or "
                "choose another folder",
                code="E_SWEEP_CHANGED",
            )


def category(value: Any) -> Any:
    """A value as Optuna stores it; a list as text."""
    return value if isinstance(value, bool | int | float | str) else repr(value)


def suggest(trial: Trial, name: str, values: list[Any] | Range) -> Any:
    """The trial's value of a field."""
    if isinstance(values, list):
        texts = [category(value) for value in values]
        return values[texts.index(trial.suggest_categorical(name, texts))]
    if values.is_whole:
        step = int(values.step or 1)
        return trial.suggest_int(name, int(values.low), int(values.high), step=step, log=values.log)
    return trial.suggest_float(name, values.low, values.high, step=values.step, log=values.log)


def make_sampler(config: SweepConfig, number: int) -> Any:
    from optuna.samplers import RandomSampler, TPESampler

    seed = (config.file.seed * 1_000_003 + number) % 2**32
    if config.file.sampler == "tpe":
        return TPESampler(seed=seed, constant_liar=True)
    return RandomSampler(seed=seed)


def make_pruner(config: SweepConfig) -> Any:
    from optuna import pruners

    train = config.base.train
    if config.file.pruner == "median":
        return pruners.MedianPruner()
    if config.file.pruner == "hyperband":
        every = train.validate_every or train.checkpoint_every
        return pruners.HyperbandPruner(min_resource=every, max_resource=max(every, train.steps))
    return pruners.NopPruner()
