"""Disk errors: the k-th call of a save fails, for every k; nothing old is damaged, nothing is left."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

from qa.result import Result
from qa.survive import system
from qa.survive.common import checkpoint, newest_step
from regard.errors import RegardError
from regard.storage import Disk, prune, save_checkpoint, use_disk

KINDS = ("ENOSPC", "EIO", "EDQUOT", "EROFS", "EINTR", "short")
PASSES = ("EINTR", "short")  # which a save must survive


class Failing(Disk):
    """Call number `at` fails, and with `stays` all after it: a disk that is full stays full."""

    def __init__(self, at: int, kind: str, stays: bool = False) -> None:
        self.at, self.kind, self.stays, self.calls, self.struck = at, kind, stays, 0, 0

    def strikes(self) -> bool:
        self.calls += 1
        now = self.calls == self.at or (self.stays and self.calls > self.at)
        self.struck += now
        return now

    def write(self, handle: int, content: memoryview) -> int:
        if not self.strikes():
            return super().write(handle, content)
        if self.kind == "short":
            return super().write(handle, content[: max(1, len(content) // 3)])
        raise self.error()

    def error(self) -> OSError:
        number = getattr(errno, self.kind)
        return OSError(number, os.strerror(number))


def _failing(name: str) -> Any:
    def call(self: Failing, *arguments: Any) -> Any:
        if self.strikes() and self.kind != "short":
            if name == "close":
                Disk.close(self, *arguments)  # the system closes, and tells of a late failure
            raise self.error()
        return getattr(Disk, name)(self, *arguments)

    return call


for _name in ("make_folder", "create", "sync", "close", "rename", "remove", "remove_folder", "sync_folder"):
    setattr(Failing, _name, _failing(_name))


def begun(run: Path) -> None:
    for step in (5, 10):
        save_checkpoint(run, step, checkpoint(step))


def save(run: Path) -> str:
    """A save and the deletion of an old one: the sentence that they end with, if they do not pass."""
    try:
        save_checkpoint(run, 15, checkpoint(15))
        prune(run, {10, 15})
    except RegardError as error:
        return str(error)
    return ""


def judged(run: Path, said: str) -> str:
    """After a save that said this: what is wrong with it, with what it left, or with the next one."""
    if said and (str(run) not in said or "bytes free" not in said or "\n" in said or "; " not in said):
        return f"said {said!r}"
    found = newest_step(run, [])
    if found not in ((10, 15) if said else (15,)):
        return f"loads {found} after {said!r}"
    save_checkpoint(run, 20, checkpoint(20))
    prune(run, {10, 20})
    if (left := sorted(path.name for path in (run / "checkpoints").iterdir())) != ["step-10", "step-20"]:
        return f"the next save leaves {left}"
    return "" if newest_step(run, []) == 20 else "the next save does not load"


def trial(run: Path, at: int, kind: str, stays: bool) -> tuple[Failing, str]:
    """One save with a fault: the disk that stood in, and what went wrong."""
    begun(run)
    other = Failing(at, kind, stays)
    try:
        with use_disk(other):
            said = save(run)
    except BaseException as error:
        return other, f"{type(error).__name__} {error}"
    if said and kind in PASSES:
        return other, f"did not survive: {said}"
    return other, judged(run, said)


def failing(count: int, seed: int) -> Result:
    """Every k of every kind, so that neither the number nor the seed matters; with a count also real ones."""
    wrong, n, most = list[str](), 0, 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        for kind in KINDS:
            for stays in (False, True) if kind not in PASSES else (False,):
                for at in range(1, 10_000):
                    other, found = trial(Path(place) / f"{kind}-{stays}-{at}", at, kind, stays)
                    if not other.struck:
                        break
                    n, most = n + 1, max(most, at)
                    wrong += [f"{kind} at call {at}{' and after' if stays else ''}: {found}"] if found else []
        confirmed, missing = dict[str, int](), list[str]()
        for name, confirm in (("strace", system.traced), ("full_tmpfs", system.full)) if count else ():
            tried, found, why = confirm(Path(place) / name)
            n, confirmed[name] = n + tried, tried
            wrong, missing = wrong + found, missing + ([f"{name}: {why}"] if why else [])
    figure = f"{n - len(wrong)} of {n} faults, at each of {most} calls, leave every old checkpoint whole"
    more = {"kinds": list(KINDS), "confirmed": confirmed, "not_possible_here": missing}
    return Result("disk-errors", n, len(wrong), figure, seed, more, wrong)
