"""`regard translate FILE -o OUT`: a large file by one or several processes, resumable.

Each portion is translated by one process and kept beside the output until all are complete. The same command
resumes with those that are missing; a portion whose process was killed is translated again.
"""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.terminal import AT_ONCE, Notes, messages, portions, say
from regard.cli.translate import LineConstraints, TranslateCommand
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

MAX_TRIES = 3  # of a portion whose process dies


def job_key(job: TranslateCommand) -> str:
    """What the results depend on: not the device, nor the number of threads."""
    from regard.storage.models import find_model

    common = [job.common[name] for name in ("precision", "as_json")]
    stamps = [[str(path.resolve()), sorted_stamps(path)] for path in map(find_model, job.common["model"])]
    return json.dumps([repr([job.options, common, job.scores, job.shows_all]), stamps])


def sorted_stamps(path: Path) -> list[list[Any]]:
    """The files of a model, with size and time of change."""
    files = sorted(each for each in path.iterdir() if each.is_file())
    named = [each for each in files if each.suffix in (".json", ".safetensors", ".toml", ".model")]
    return [[each.name, each.stat().st_size, each.stat().st_mtime_ns] for each in named]


@dataclass
class Portion:
    number: int
    first: int  # its first line
    lines: list[str]
    constraints: list[Any] | None
    file: Path
    tries: int = 0


def translate_in_parts(
    job: TranslateCommand, lines: Iterable[str], workers: int, output: Path, at_once: int = AT_ONCE
) -> None:
    """Translate portions that are kept beside the output until all are complete; those of before count."""
    from regard.storage import friendly_os_errors, make_folders
    from regard.storage.files import remove_tree

    output = output.resolve()
    place = output.with_name(f".{output.name}.parts")
    with friendly_os_errors(place):
        make_folders(place)
    parts: list[Path] = []
    old = 0
    try:
        with messages().status("translating") as status, worker_processes(job, workers) as processes:
            for portion in split(job_key(job), lines, job.by_line, place, at_once):
                parts.append(portion.file)
                if portion.file.is_file():
                    old += 1
                else:
                    processes.give(portion)
                status.update(f"translating: {portion.first - 1 + len(portion.lines):,} lines")
            processes.finish()
    except KeyboardInterrupt:
        say(f"what is done is kept in {place}; the same command continues")
        raise
    finally:
        if not any(place.iterdir()):
            remove_tree(place)
    if job.by_line is not None:
        job.by_line.check_all_used()
    if old:
        say(f"{old} of {len(parts)} portions were there from before")
    count, notes = join(parts, output)
    say(f"wrote {count:,} translations to {output}")
    notes.print()
    remove_tree(place)


def worker_processes(job: TranslateCommand, workers: int) -> ThisProcess | WorkerProcesses:
    from regard.device import available_cores

    if workers == 1:
        return ThisProcess(job)
    if not job.common["threads"]:
        job.common["threads"] = max(1, len(available_cores()) // workers)
    return WorkerProcesses(job, workers)


def split(
    key: str, lines: Iterable[str], constraints: LineConstraints | None, place: Path, at_once: int
) -> Iterator[Portion]:
    """Portions; the name of each file is a hash of all that its results depend on."""
    first = 1
    for number, portion in enumerate(portions(lines, at_once)):
        rows = constraints.next(len(portion)) if constraints else None
        content = json.dumps([key, first, portion, repr(rows)])
        name = f"{number:08d}-{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
        yield Portion(number, first, portion, rows, place / name)
        first += len(portion)


class ThisProcess:
    """Translates portions one after another."""

    def __init__(self, job: TranslateCommand) -> None:
        self.job = job

    def __enter__(self) -> ThisProcess:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def give(self, portion: Portion) -> None:
        if self.job.task is None:
            self.job.open()
        translate_portion(self.job, portion.first, portion.lines, portion.constraints, portion.file)

    def finish(self) -> None:
        pass


class WorkerProcesses:
    """Processes that translate portions; a dead one is replaced, and its portion translated again."""

    def __init__(self, job: TranslateCommand, workers: int) -> None:
        self.job, self.workers = job, workers
        self.running: dict[Connection[Any, Any], tuple[BaseProcess, Portion | None]] = {}

    def __enter__(self) -> WorkerProcesses:
        for _ in range(self.workers):  # all at once: each opens a model
            self.start()
        return self

    def __exit__(self, *error: object) -> None:
        for process, _ in self.running.values():
            process.terminate()
        for process, _ in self.running.values():
            process.join()

    def give(self, portion: Portion) -> None:
        """Send a portion to an idle process; wait for one if there is none."""
        free = next((line for line, (_, work) in self.running.items() if work is None), None)
        if free is None and len(self.running) < self.workers:
            free = self.start()
        while free is None:
            free = self.wait_for_one()
        self.running[free] = (self.running[free][0], portion)
        with suppress(OSError):  # it died: wait_for_one handles that
            free.send((portion.first, portion.lines, portion.constraints, portion.file))

    def finish(self) -> None:
        while any(work is not None for _, work in self.running.values()):
            self.wait_for_one()

    def start(self) -> Connection[Any, Any]:
        context = get_context("spawn")
        parent, child = context.Pipe()
        process = context.Process(target=work, args=(self.job, child), daemon=True)
        process.start()
        child.close()
        self.running[parent] = (process, None)
        return parent

    def wait_for_one(self) -> Connection[Any, Any] | None:
        """Wait until a process is done; its connection, or None if it died."""
        busy = [line for line, (_, work) in self.running.items() if work is not None]
        line: Any = wait(busy)[0]
        process, portion = self.running[line]
        try:
            failure = line.recv()
        except (EOFError, OSError):
            del self.running[line]
            process.join()
            if portion is not None:
                self.retry(portion, process.exitcode)
            return None
        if failure is not None:
            raise (UsageError if failure[1] == UsageError.exit_code else RegardError)(failure[0])
        self.running[line] = (process, None)
        idle: Connection[Any, Any] = line
        return idle

    def retry(self, portion: Portion, code: int | None) -> None:
        portion.tries += 1
        if portion.tries >= MAX_TRIES:
            raise RegardError(
                f"{MAX_TRIES} processes ended with code {code} over the lines from {portion.first:,} on; try "
                "fewer --workers, for there may be too little memory"
            )
        say(f"a process ended with code {code}; its lines from {portion.first:,} on are done again")
        self.give(portion)


def work(job: TranslateCommand, line: Connection[Any, Any]) -> None:
    """The worker process: translate portions until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    try:
        job.open()
        while True:
            translate_portion(job, *line.recv())
            line.send(None)
    except EOFError:
        return
    except RegardError as error:
        line.send((str(error), error.exit_code))


def translate_portion(
    job: TranslateCommand, first: int, lines: list[str], constraints: list[Any] | None, file: Path
) -> None:
    from regard.storage import write_json

    portion = copy(job)
    portion.by_line, portion.notes = LineConstraints(constraints) if constraints else None, Notes()
    texts = portion(lines, first)
    notes = {"first": portion.notes.first, "count": portion.notes.count}
    write_json(file, {"lines": len(lines), "results": texts, "notes": notes})


def join(parts: list[Path], output: Path) -> tuple[int, Notes]:
    """Write all results in order, atomically; the number of lines, and the notes about them."""
    from regard.storage import friendly_os_errors, read_json
    from regard.storage.files import PARTIAL

    aside = output.with_name(f".{output.name}{PARTIAL}")
    count, notes = 0, Notes()
    with friendly_os_errors(output):
        with aside.open("wb") as file:
            for part in parts:
                content = read_json(part)
                count += content["lines"]
                file.writelines(f"{line}\n".encode() for line in content["results"])
                for kind, times in content["notes"]["count"].items():
                    notes.add(kind, content["notes"]["first"][kind], times)
        aside.replace(output)
    return count, notes
