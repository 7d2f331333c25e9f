"""B1 and B8: kill a short run at random moments, resume it, and compare the bits with an uncut run.

    python bench/kills.py --kills 200 --seed 1       # B1, SIGKILL: half at any moment, half inside a save
    python bench/kills.py --signals 100 --seed 1     # B8, SIGTERM and SIGINT: save and leave

Each prints one JSON line. Every life of a run is a child of this process, which has torch loaded and has not
used it, so that a life costs its training and little more. A checkpoint whose save has returned is
acknowledged: after every death it, or a newer one, must be whole.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import regard.train.loop as loop
from regard import cli
from regard.store import Disk, folder_of, is_whole, standing_in, steps
from survive.common import Bar

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
STEPS = 60
CLOCKS = ("seconds", "updating", "waiting", "validating", "saving")
QUICK, QUICKER = 2.0, 0.5  # seconds of a save and leave, of a second signal; times of an idle machine


def digest(folder: Path) -> str:
    """Of the final model, and of weights, optimiser and position in the last checkpoint."""
    last = folder_of(folder, steps(folder)[-1])
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
    """In the child: train, and write down what is acknowledged. Never returns."""
    os.setsid()
    for number in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
    marks = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(marks, b"life\n")
    save, whole, run = loop.save_checkpoint, loop.Trainer.save, loop.Trainer.run

    def acknowledged(folder: Path, step: int, *more: Any) -> Path:
        path = save(folder, step, *more)
        os.write(marks, f"{step}\n".encode())
        return path

    def armed(trainer: loop.Trainer) -> None:
        if bomb is not None:
            bomb.armed = True
        whole(trainer)
        if bomb is not None:
            bomb.armed = False

    def marked(trainer: loop.Trainer, metrics: Any) -> bool:
        os.write(marks, b"begin\n")
        finished = run(trainer, metrics)
        os.write(marks, b"end\n")
        return finished

    loop.save_checkpoint, loop.Trainer.save, loop.Trainer.run = acknowledged, armed, marked  # type: ignore
    code = 70
    try:
        with standing_in(bomb or Disk()):
            cli.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@dataclass
class Death:
    code: int  # of the exit, negative for a signal
    marks: list[str]
    said: str
    leaving: float = 0.0  # seconds from the signal to the exit
    orphans: int = 0

    @property
    def acknowledged(self) -> int:
        return max((int(mark) for mark in self.marks if mark.isdigit()), default=0)


Strike = Callable[[int, Path], float]  # what is done to a living child; the moment of the signal


def one_life(work: Path, folder: Path, resume: bool, bomb: Bomb | None, strike: Strike | None) -> Death:
    arguments = ["train", str(work / "run.toml"), "--out", str(folder), *(["--resume"] if resume else [])]
    log, said = folder.with_suffix(".log"), folder.with_suffix(".said")
    child = os.fork()
    if child == 0:
        live(arguments, log, said, bomb)
    moment = strike(child, log) if strike is not None else 0.0
    _, status = os.waitpid(child, 0)
    leaving = time.monotonic() - moment
    marks = ["life", *(log.read_text().split() if log.exists() else [])]
    code = os.waitstatus_to_exitcode(status)
    return Death(code, marks, said.read_text() if said.exists() else "", leaving, in_session(child))


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
    whole = [step for step in steps(folder) if is_whole(folder_of(folder, step))]
    if max(whole, default=0) < death.acknowledged:
        return f"step {death.acknowledged} was acknowledged, and {whole} are whole"
    return ""


def uncut(work: Path, updates: int) -> tuple[str, float]:
    """The bits of a run that nobody disturbs, and its seconds."""
    lines = [f"{a} {b} {c}\t{c} {b} {a}\n" for a in "abcdef" for b in "ghijkl" for c in "mnopqr"]
    (work / "pairs.tsv").write_text("".join(lines))
    (work / "valid.tsv").write_text("".join(lines[::50]))
    (work / "run.toml").write_text(CONFIG.format(steps=updates))
    began = time.monotonic()
    death = one_life(work, work / "whole", False, None, None)
    if death.code:
        raise SystemExit(f"the run failed: {death.said}")
    return digest(work / "whole"), time.monotonic() - began


def trial(kills: int, seed: int, work: Path, updates: int = STEPS) -> Bar:
    """B1: runs one after another, each killed until it is through."""
    began = time.monotonic()
    expected, length = uncut(work, updates)
    chance, wrong = random.Random(seed), list[str]()
    made = aimed = finished = number = 0
    resume = False
    while made < kills or resume:
        folder = work / f"cut-{number}"
        bomb, strike = None, None
        if made < kills and made % 2:
            bomb = Bomb(chance.randrange(1, 100), chance.choice(["before", "after"]))
        elif made < kills:
            strike = after(chance.uniform(0.0, length), signal.SIGKILL)
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
    more = {"runs": finished, "uncut_seconds": round(length, 1), "seconds": round(time.monotonic() - began)}
    return Bar("B1 kill -9", made, len(wrong), figure, seed, more, wrong)


def after(seconds: float, *numbers: int, between: float = 0.0) -> Strike:
    """One or two signals after some time."""

    def strike(child: int, log: Path) -> float:
        moment = time.monotonic() + seconds
        for place, number in enumerate(numbers):
            time.sleep(max(0.0, moment + place * between - time.monotonic()))
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                moment = time.monotonic() if place == 0 else moment
                os.kill(child, number)
        return moment + between * (len(numbers) - 1)

    return strike


def signals(count: int, seed: int, work: Path, updates: int = STEPS) -> Bar:
    """B8: asked to stop, a run saves and leaves; asked twice, it leaves at once."""
    expected, length = uncut(work, updates)
    chance, wrong, slowest, second = random.Random(seed), list[str](), 0.0, 0.0
    made = saved = number = 0
    resume = False
    while made < count or resume:
        folder = work / f"cut-{number}"
        asked = [chance.choice([signal.SIGTERM, signal.SIGINT])] * chance.choice([1, 1, 1, 2])
        strike = after(chance.uniform(0.0, length), *asked, between=0.05) if made < count else None
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
        own = death.marks[len(death.marks) - death.marks[::-1].index("life") :]  # of this life
        training = "begin" in own and "end" not in own
        if len(asked) == 1 and "saved after step" in death.said:
            saved, slowest = saved + 1, max(slowest, death.leaving)
            step = int(death.said.rpartition("saved after step ")[2].split(";")[0])
            if death.code != 130 or not is_whole(folder_of(folder, step)):
                wrong.append(f"{where}: step {step} is not whole")
        elif len(asked) == 2:
            second = max(second, death.leaving)
        elif training or death.code not in (130, -signal.SIGTERM):
            wrong.append(f"{where}: it did not save: {death.said[-300:]}")
    figure = f"{saved} of {made} fell into the training: saved in {slowest:.2f} s, after two {second:.2f} s"
    return Bar("B8 signals", made, len(wrong), figure, seed, {"slowest_s": round(slowest, 3)}, wrong)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--signals", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        os.environ["REGARD_CACHE"] = str(Path(name) / "cache")
        for make, count in ((trial, options.kills), (signals, options.signals)):
            if count:
                work = Path(name) / make.__name__
                work.mkdir()
                bar = make(count, options.seed, work)
                print(bar.line(), flush=True)
                print("\n".join(bar.wrong[:20]), file=sys.stderr)
                failures += bar.failures
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
