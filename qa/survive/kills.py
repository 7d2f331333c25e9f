"""Kill a short run at random moments, resume it, and compare the bits with an uncut run.

Every life of a run is a child of this process, which has loaded all that a run
loads and has not used it, so that a life costs its training and little more. A checkpoint whose save has
returned is acknowledged: after every death it, or a newer one, must be whole.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regard.training.run as run_module
import regard.training.trainer as trainer_module
from qa.result import Result
from regard import cli
from regard.storage import Disk, checkpoint_folder, checkpoint_steps, is_complete, use_disk

CONFIG = """
[data]
train = "pairs.tsv"
valid = "valid.tsv"
leaks = "keep"
[text]
kind = "word"
vocabulary = 300
[model]
width = 32
layers = 1
heads = 4
feed_forward = 64
[train]
steps = {steps}
tokens_per_batch = 256
accumulate = 2
checkpoint_every = 5
validate_every = 20
validate_sentences = 2
threads = 1
"""
STEPS = 120
LIVES = (0.1, 0.8)  # seconds
SAVE = 40  # calls: a save and the deletion of an old one have fewer
CLOCKS = ("seconds", "updating", "waiting", "validating", "saving")
QUICK, QUICKER = 2.0, 0.5  # seconds in which a life saves and leaves, and leaves after a second signal


def digest(folder: Path) -> str:
    """Of the final model, and of weights, optimiser and position in the last checkpoint."""
    last = checkpoint_folder(folder, checkpoint_steps(folder)[-1])
    state = json.loads((last / "state.json").read_text())
    kept = {name: value for name, value in state.items() if name not in CLOCKS}
    found = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    for path in (folder / "model.safetensors", last / "model.safetensors", last / "optimizer.safetensors"):
        found.update(path.read_bytes())
    return found.hexdigest()


# --- one life


class Bomb(Disk):
    """The process kills itself at a call of a save: before it, after it, or in the middle of a write."""

    def __init__(self, at: int, when: str) -> None:
        self.at, self.when, self.armed, self.calls = at, when, False, 0

    def strikes(self) -> bool:
        self.calls += self.armed
        return self.armed and self.calls == self.at

    def write(self, handle: int, content: memoryview) -> int:
        if self.strikes():
            super().write(handle, content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write(handle, content)


def _bombed(name: str) -> Any:
    def call(self: Bomb, *arguments: Any) -> Any:
        now = self.strikes()
        if now and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = getattr(Disk, name)(self, *arguments)
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call


for _name in ("make_folder", "create", "sync", "rename", "remove", "remove_folder", "sync_folder"):
    setattr(Bomb, _name, _bombed(_name))


def live(arguments: list[str], log: Path, said: Path, bomb: Bomb | None) -> None:
    """In the child, deaf so far: train, and write down what is acknowledged. Never returns."""
    os.setsid()
    for number in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
    marks = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(marks, b"life\n")
    trainer_class = trainer_module.Trainer
    save, whole, run = trainer_module.storage.save_checkpoint, trainer_class.save, run_module.run_updates

    def acknowledged(folder: Path, step: int, *more: Any) -> Path:
        path = save(folder, step, *more)
        os.write(marks, f"{step}\n".encode())
        return path

    def armed(trainer: trainer_module.Trainer) -> None:
        if bomb is not None:
            bomb.armed = True
        whole(trainer)
        if bomb is not None:
            bomb.armed = False

    def marked(trainer: trainer_module.Trainer, metrics: Any) -> bool:
        os.write(marks, b"begin\n")
        finished = run(trainer, metrics)
        os.write(marks, b"end\n")
        return finished

    trainer_module.storage.save_checkpoint, trainer_class.save = acknowledged, armed  # type: ignore
    run_module.run_updates = marked
    code = 70
    try:
        with use_disk(bomb or Disk()):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
            cli.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:  # before the program has begun: it leaves as Python does
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            said.with_suffix(".modules").write_text("\n".join(list(sys.modules)))
        finally:  # whatever comes meanwhile, a second signal too: the parent's code must not go on here
            os._exit(code)


@dataclass
class Death:
    code: int  # of the exit, negative for a signal
    marks: list[str]  # of all lives of the run, and of this one
    own: list[str]
    said: str
    leaving: float = 0.0  # seconds from the signal to the exit
    orphans: int = 0

    @property
    def acknowledged(self) -> int:
        return max((int(mark) for mark in self.marks if mark.isdigit()), default=0)


ASKING = (signal.SIGINT, signal.SIGTERM)
# what is done to a living child, from its number and its marks; the moment of the signal
Strike = Callable[[int, Callable[[], list[str]]], float]


def one_life(work: Path, folder: Path, resume: bool, bomb: Bomb | None, strike: Strike | None) -> Death:
    arguments = ["train", str(work / "run.toml"), "--output", str(folder), *(["--resume"] if resume else [])]
    log, said = folder.with_suffix(".log"), folder.with_suffix(".said")
    before = log.stat().st_size if log.exists() else 0

    def marks(first: int = before) -> list[str]:
        return log.read_bytes()[first:].decode().split() if log.exists() else []

    # An early signal would raise in the child before it is on its own, and unwind what is its parent's: the
    # folder of the whole trial would go.
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
    child = os.fork()
    if child == 0:
        live(arguments, log, said, bomb)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
    moment = strike(child, marks) if strike is not None else 0.0
    _, status = os.waitpid(child, 0)
    leaving = time.monotonic() - moment
    code = os.waitstatus_to_exitcode(status)
    told = said.read_text() if said.exists() else ""
    return Death(code, marks(0), marks(), told, leaving, in_session(child))


def in_session(session: int) -> int:
    """How many processes a life has left behind."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            count += int(path.read_text().rpartition(")")[2].split()[3]) == session
        except (OSError, ValueError, IndexError):
            continue
    return count


def lost(folder: Path, death: Death) -> str:
    """What is wrong after a death."""
    whole = [step for step in checkpoint_steps(folder) if is_complete(checkpoint_folder(folder, step))]
    if max(whole, default=0) < death.acknowledged:
        return f"step {death.acknowledged} was acknowledged, and {whole} are whole"
    return ""


def uncut(work: Path, updates: int) -> str:
    """The bits of a run that nobody disturbs. What it loaded is loaded here too, for the lives to come."""
    lines = [f"{a} {b} {c}\t{c} {b} {a}\n" for a in "abcdef" for b in "ghijkl" for c in "mnopqr"]
    (work / "pairs.tsv").write_text("".join(lines))
    (work / "valid.tsv").write_text("".join(lines[::50]))
    (work / "run.toml").write_text(CONFIG.format(steps=updates))
    death = one_life(work, work / "whole", False, None, None)
    if death.code:
        raise SystemExit(f"the run failed: {death.said}")
    for name in (work / "whole.modules").read_text().split("\n"):
        with suppress(Exception):  # some are made by others, and have no file of their own
            importlib.import_module(name)
    return digest(work / "whole")


def kills(count: int, seed: int, work: Path, updates: int = STEPS) -> Result:
    """Runs one after another, each killed until it is through."""
    expected = uncut(work, updates)
    chance, wrong = random.Random(seed), list[str]()
    made = aimed = finished = number = 0
    resume = False
    while made < count or resume:
        folder = work / f"cut-{number}"
        bomb, strike = None, None
        if made < count and made % 2:
            bomb = Bomb(chance.randrange(1, SAVE), chance.choice(["before", "after"]))
        elif made < count:
            strike = after(chance.uniform(*LIVES), moment_of(chance), signal.SIGKILL)
        death = one_life(work, folder, resume and (folder / "run.toml").is_file(), bomb, strike)
        if found := lost(folder, death):
            wrong.append(f"run {number}, kill {made} of seed {seed}: {found}")
        if death.code == -signal.SIGKILL:
            made, aimed, resume = made + 1, aimed + (bomb is not None), True
            continue
        if death.code or digest(folder) != expected or list(folder.rglob(".*.partial")):
            wrong.append(
                f"run {number} of seed {seed} ended with {death.code}, other bits, or rests: {death.said}"
            )
        finished, number, resume = finished + 1, number + 1, False
    figure = f"{made} kills, {aimed} inside a save: {len(wrong)} acknowledged checkpoints or bits lost"
    more = {"runs": finished, "updates_of_a_run": updates}
    return Result("kills", made, len(wrong), figure, seed, more, wrong)


def moment_of(chance: random.Random) -> str:
    """From when a life is measured: its first moment, or, three of four times, that of its training."""
    return chance.choice(["life", "begin", "begin", "begin"])


def after(seconds: float, since: str, *numbers: int, between: float = 0.0) -> Strike:
    """One or two signals, some time after the life has come to a mark."""

    def strike(child: int, marks: Callable[[], list[str]]) -> float:
        while not ended(child) and since not in marks():
            time.sleep(0.005)
        moment = time.monotonic() + seconds
        for place, number in enumerate(numbers):
            while time.monotonic() < moment + place * between and not ended(child):
                time.sleep(0.001)
            if not ended(child):
                moment = time.monotonic() if place == 0 else moment
                os.kill(child, number)
        return moment + between * (len(numbers) - 1)

    return strike


def ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def signals(count: int, seed: int, work: Path, updates: int = STEPS) -> Result:
    """Asked to stop, a run saves and leaves; asked twice, it leaves at once."""
    expected = uncut(work, updates)
    chance, wrong, slowest, second = random.Random(seed), list[str](), 0.0, 0.0
    made = saved = twice = number = 0
    resume = False
    while made < count or resume:
        folder = work / f"cut-{number}"
        asked = [chance.choice([signal.SIGTERM, signal.SIGINT])] * chance.choice([1, 1, 1, 2])
        # a second one soon enough to come before the save has ended, mostly
        waits, since = chance.uniform(*LIVES), moment_of(chance)
        strike = after(waits, since, *asked, between=0.02) if made < count else None
        death = one_life(work, folder, resume and (folder / "run.toml").is_file(), None, strike)
        where = f"run {number}, signal {made} of seed {seed}: {asked} gave {death.code}"
        if (found := lost(folder, death)) or death.orphans:
            wrong.append(f"{where}: {found or 'a process is left'}")
        if death.code == 0:
            if digest(folder) != expected:
                wrong.append(f"run {number} of seed {seed} has other bits")
            number, resume = number + 1, False
            continue
        made, resume = made + 1, True
        training = "begin" in death.own and "end" not in death.own
        if len(asked) == 1 and "saved after step" in death.said:
            saved, slowest = saved + 1, max(slowest, death.leaving)
            step = int(death.said.rpartition("saved after step ")[2].split(";")[0])
            if death.code != 130 or not is_complete(checkpoint_folder(folder, step)):
                wrong.append(f"{where}: step {step} is not whole")
            if death.leaving > QUICK:
                wrong.append(f"{where}: it left after {death.leaving:.2f} s")
        elif len(asked) == 2:
            twice, second = twice + 1, max(second, death.leaving)
            if death.leaving > QUICKER:
                wrong.append(f"{where}: it left {death.leaving:.2f} s after the second")
        elif training or death.code not in (130, -signal.SIGTERM):
            wrong.append(f"{where}: it did not save: {death.said[-300:]}")
    figure = (
        f"{saved} of {made} fell into the training: saved and left in {slowest:.2f} s; "
        f"{twice} were asked twice: left in {second:.2f} s"
    )
    return Result("signals", made, len(wrong), figure, seed, {"runs": number}, wrong)
