"""Open model folders that somebody made to do harm: none may run code, crash, hang or take memory.

Every case follows from its seed
and number. Cases run in a process of their own: one that crashes or hangs is a finding, and the rest goes on.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from qa.hostile.bombs import bombs
from qa.hostile.folders import Folder, bases, harmful, lay, mutated
from qa.result import Result
from regard.errors import RegardError
from regard.storage import open_folder, read_model

LONGEST = 1.0  # seconds that a mutated folder may take
HANGS = 20.0  # seconds after which a case is ended
MEMORY = 64 << 20  # bytes that a refusal may take
REFUSAL = 0.2  # seconds of the processor that the refusal of a bomb may take
WORDS = {
    "code": "hostile folders ran no code and opened nothing outside",
    "mutations": "changed folders opened or gave our own error, in time and memory",
    "bombs": "size bombs were refused in time and memory",
}
TEXT = "a b, é1\n漢 ab"


@dataclass
class Finding:
    """What one case did."""

    case: str
    outcome: str  # opened, refused, or what went wrong
    reason: str = ""
    seconds: float = 0.0
    working: float = 0.0  # seconds of the processor
    memory: int = 0  # bytes above what the process had

    @property
    def is_good(self) -> bool:
        return self.outcome in ("opened", "refused")

    def __str__(self) -> str:
        cost = f"{self.seconds:.3f} s, {self.memory >> 20} MiB"
        return f"{self.case}: {self.outcome} {self.reason} ({cost})"


def attempt(path: Path) -> tuple[str, str]:
    """Open a folder and use what it has for texts; any error but ours is somebody else's to explain."""
    try:
        found = open_folder(path)
        for tokenizer in (found.source, found.target):
            tokenizer.decode(tokenizer.encode(TEXT))
            tokenizer.tokens(tokenizer.spans(TEXT)[0])
        return "opened", ""
    except RegardError as error:
        return "refused" if told_in_one_line(str(error)) else "flooded", str(error)[:500]


def told_in_one_line(said: str) -> bool:
    """A sentence (or one a field of run.toml), without signs that move a terminal's cursor."""
    return len(said) < 5000 and all(line.isprintable() for line in said.split("\n"))


def tried(case: str, path: Path) -> Finding:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    idle = time.process_time()
    NOW.append(path.resolve())
    seconds = working = 0.0
    try:
        outcome, reason = attempt(path)
        seconds, working = time.perf_counter() - began, time.process_time() - idle
        with suppress(RegardError):  # what a training begins with, on the same way
            read_model(path)
    except MemoryError as error:
        outcome, reason = "memory", str(error)
    except BaseException as error:  # also the library's panics
        outcome, reason = type(error).__name__, str(error)[:300]
    finally:
        NOW.clear()
    seconds, working = seconds or time.perf_counter() - began, working or time.process_time() - idle
    taken = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    return Finding(case, outcome, reason, seconds, working, taken)


# --- cases in a process of their own

Cases = Iterator[tuple[str, Folder]]


def in_child(cases: Callable[[int], Cases], first: int, prepare: Callable[[], None]) -> Iterator[Finding]:
    """The findings of the cases from a number on, until one of them ends the process."""
    own, other = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=work, args=(cases, first, prepare, other))
    child.start()
    other.close()
    last = ""
    try:
        while True:
            if not own.poll(HANGS):
                yield Finding(last, "hang", f"more than {HANGS} s")
                return
            told = own.recv()
            if told is None:
                return
            if isinstance(told, str):
                last = told
            else:
                yield told
    except EOFError:
        child.join()
        yield Finding(last, "crash", f"exit code {child.exitcode}")
    finally:
        child.kill()
        child.join()
        own.close()


def work(cases: Callable[[int], Cases], first: int, prepare: Callable[[], None], to: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a panic of the library prints
    with tempfile.TemporaryDirectory() as place:
        prepare()
        for number, (name, folder) in enumerate(cases(first)):
            path = Path(place) / str(number)
            lay(path, folder)
            to.send(name)
            to.send(tried(name, path))
            remove(path)
    to.send(None)


def remove(path: Path) -> None:
    """A folder without following its links."""
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            remove(Path(entry.path))
        else:
            Path(entry.path).unlink()
    path.rmdir()


def all_of(cases: Callable[[int], Cases], prepare: Callable[[], None] = lambda: None) -> Iterator[Finding]:
    """The findings of all cases, in as many processes as it takes."""
    done = 0
    while True:
        ended = True
        for finding in in_child(cases, done, prepare):
            done += 1
            ended = finding.outcome not in ("hang", "crash")
            yield finding
        if ended:
            return


def warm_folders() -> dict[str, Folder]:
    """The good folders that cases are made of, each opened once."""
    folders = bases()
    warm(folders)
    return folders


def warm(folders: dict[str, Folder]) -> None:
    """Open what is good once, so that all code is loaded; and see that it is good."""
    with tempfile.TemporaryDirectory() as place:
        for name, folder in folders.items():
            lay(Path(place) / name, folder)
            outcome, reason = attempt(Path(place) / name)
            if outcome != "opened":
                raise SystemExit(f"the unchanged folder {name} does not open: {reason}")
        with suppress(RegardError):
            open_folder(Path(place) / "nothing")


# --- the trials


def code(folders: dict[str, Folder], count: int, seed: int) -> Result:
    """No code of a folder runs, and no file outside of it is opened."""
    with tempfile.TemporaryDirectory() as outside:
        canary = Path(outside) / "ran"

        def cases(first: int) -> Cases:
            return ((f"{n}", harmful(folders, seed, n, canary)) for n in range(first, count))

        found = list(all_of(cases, watch))
        good = {finding.case: harmful(folders, seed, int(finding.case), canary).may_open for finding in found}
        ran = canary.exists()
    wrong = [f for f in found if not f.is_good or (f.outcome == "opened" and not good[f.case])]
    if ran:
        wrong.append(Finding("the canary", "code ran"))
    return finished("code", found, wrong, seed, {})


RISKY = ("pickle.", "marshal.", "exec", "compile", "import", "subprocess.", "socket.", "ctypes.", "os.")
HARMLESS = ("os.scandir", "os.listdir", "os.putenv", "os.unsetenv")


NOW: list[Path] = []  # the folder that is being opened


class Watched(Exception):
    """Something happened that no data may cause."""


def watch() -> None:
    """From now on this process refuses to do what a folder must not make it do, while one is opened."""
    places = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, *sys.path) if p}
    own = Path(tempfile.gettempdir()).resolve()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not NOW:
            return
        if event.startswith(RISKY) and event not in HARMLESS:
            raise Watched(f"{event} {arguments[:1]!r}")
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            opened = Path(os.path.realpath(os.fsdecode(arguments[0])))
            inside = opened.is_relative_to(NOW[0]) and opened.is_relative_to(own)
            if not inside and not any(opened.is_relative_to(place) for place in places):
                raise Watched(f"open {opened}")

    sys.addaudithook(hook)


def mutations(folders: dict[str, Folder], count: int, seed: int, first: int = 0) -> Result:
    """Only our errors, none slow, none that takes memory."""

    def cases(done: int) -> Cases:
        return ((f"{n}", mutated(folders, seed, n)) for n in range(first + done, first + count))

    found = list(all_of(cases))
    wrong = [f for f in found if not f.is_good or f.seconds > LONGEST]
    slowest = max(found, key=lambda finding: finding.seconds)
    largest = max(found, key=lambda finding: finding.memory)
    wrong += [largest] if largest.memory > MEMORY and largest not in wrong else []
    figures = {
        "opened": sum(f.outcome == "opened" for f in found),
        "slowest s": round(slowest.seconds, 3),
        "slowest": slowest.case,
        "most memory MiB": round(largest.memory / 2**20, 1),
        "largest": largest.case,
    }
    return finished("mutations", found, wrong, seed, figures)


def size_bombs(folders: dict[str, Folder]) -> Result:
    """Small folders that would take gigabytes or minutes are refused at once, with little memory to do it."""
    listed = list(bombs(folders))
    one = [lambda _, each=each: iter([each]) for each in listed]
    found = [next(in_child(cases, 0, little_memory)) for cases in one]
    # what other processes on the machine take is not the refusal's: time is the processor's
    wrong = [f for f in found if f.outcome != "refused" or f.working > REFUSAL or f.memory > MEMORY]
    figures = {
        "slowest ms": round(1000 * max(f.working for f in found), 1),
        "slowest": max(found, key=lambda f: f.working).case,
        "on the clock ms": round(1000 * max(f.seconds for f in found), 1),
        "most memory MiB": round(max(f.memory for f in found) / 2**20, 1),
        "largest": max(found, key=lambda f: f.memory).case,
    }
    return finished("bombs", found, wrong, 0, figures)


def little_memory() -> None:
    """From now on this process can have `MEMORY` bytes more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def finished(
    name: str, found: list[Finding], wrong: list[Finding], seed: int, figures: dict[str, Any]
) -> Result:
    n, lines = len(found), [str(finding) for finding in wrong]
    return Result(name, n, len(wrong), f"{n - len(wrong)} of {n} {WORDS[name]}", seed, figures, lines)
