"""`regard translate FILE -o OUT`: a large file by one or several processes, resumable.

Each portion is translated by one process and kept beside the output until all are complete. The same command
resumes with those that are missing; a portion whose process was killed is translated again.
"""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.tasks import AT_ONCE
from regard.cli.terminal import Notes, messages, portions, say
from regard.cli.translate import TranslateCommand
from regard.errors import RegardError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

MAX_TRIES = 3  # of a portion whose process dies


@dataclass
class LinePortion:
    first: int  # the number of its first line
    lines: list[str]
    file: Path  # of its results
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
        with messages().status("translating") as status, translate_with(job, workers) as translate:
            for portion in split(job, lines, place, at_once):
                parts.append(portion.file)
                if portion.file.is_file():
                    old += 1
                else:
                    translate(portion)
                job.count += len(portion.lines)
                status.update(f"translating: {job.count:,} lines")
    except KeyboardInterrupt:
        say(f"what is done is kept in {place}; the same command continues")
        raise
    finally:
        if not any(place.iterdir()):
            remove_tree(place)
    job.check_constraints_used()
    if old:
        say(f"{old} of {len(parts)} portions were there from before")
    notes = join(parts, output)
    say(f"wrote {job.summary()} to {output}")
    notes.print()
    remove_tree(place)
    job.check_refused(notes)


def split(job: TranslateCommand, lines: Iterable[str], place: Path, at_once: int) -> Iterator[LinePortion]:
    """Portions; the name of each file is a hash of all that its results depend on."""
    first, key = 1, job_key(job)
    for portion in portions(lines, at_once):
        content = json.dumps([key, first, portion, repr(job.line_constraints(first, len(portion)))])
        name = f"{first:010d}-{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
        yield LinePortion(first, portion, place / name)
        first += len(portion)


def job_key(job: TranslateCommand) -> str:
    """What the results depend on: not the device, nor the number of threads."""
    from regard.storage.models import find_model

    stamps = [[str(path.resolve()), model_stamps(path)] for path in map(find_model, job.model)]
    return json.dumps([repr([job.options, job.precision, job.as_json, job.scores, job.shows_all]), stamps])


def model_stamps(path: Path) -> list[list[Any]]:
    """The files of a model, with size and time of change."""
    files = sorted(each for each in path.iterdir() if each.is_file())
    named = [each for each in files if each.suffix in (".json", ".safetensors", ".toml", ".model")]
    return [[each.name, each.stat().st_size, each.stat().st_mtime_ns] for each in named]


@contextmanager
def translate_with(job: TranslateCommand, workers: int) -> Iterator[Callable[[LinePortion], None]]:
    """A function that translates a portion: here, or by a process while it returns."""
    from regard.device import available_cores

    if workers == 1:
        yield partial(translate_portion, job)
        return
    if not job.threads:
        job.threads = max(1, len(available_cores()) // workers)
    with WorkerProcesses(job, workers) as processes:
        yield processes.give
        processes.finish()


def translate_portion(job: TranslateCommand, portion: LinePortion) -> None:
    from regard.storage import write_json

    if job.task is None:
        job.open()
    job.notes = Notes()
    results = job(portion.lines, portion.first)
    write_json(portion.file, {"results": results, "notes": asdict(job.notes)})


class WorkerProcesses:
    """Processes that translate portions; a dead one is replaced, and its portion translated again."""

    def __init__(self, job: TranslateCommand, workers: int) -> None:
        self.job, self.workers = job, workers
        self.running: dict[Connection[Any, Any], tuple[BaseProcess, LinePortion | None]] = {}

    def __enter__(self) -> WorkerProcesses:
        for _ in range(self.workers):  # all at once: each opens a model
            self.start()
        return self

    def __exit__(self, *error: object) -> None:
        for process, _ in self.running.values():
            process.terminate()
        for process, _ in self.running.values():
            process.join()

    def give(self, portion: LinePortion) -> None:
        """Send a portion to an idle process; wait for one if there is none."""
        free = next((line for line, (_, work) in self.running.items() if work is None), None)
        if free is None and len(self.running) < self.workers:
            free = self.start()
        while free is None:
            free = self.wait_for_one()
        self.running[free] = (self.running[free][0], portion)
        with suppress(OSError):  # it died: wait_for_one handles that
            free.send(portion)

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
            raise failure
        self.running[line] = (process, None)
        idle: Connection[Any, Any] = line
        return idle

    def retry(self, portion: LinePortion, code: int | None) -> None:
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
            translate_portion(job, line.recv())
            line.send(None)
    except EOFError:
        return
    except RegardError as error:
        line.send(error)


def join(parts: list[Path], output: Path) -> Notes:
    """Write all results in order, atomically; the notes about them."""
    from regard.storage import friendly_os_errors, read_json
    from regard.storage.files import PARTIAL

    aside = output.with_name(f".{output.name}{PARTIAL}")
    notes = Notes()
    with friendly_os_errors(output):
        with aside.open("wb") as file:
            for part in parts:
                content = read_json(part)
                file.writelines(f"{line}\n".encode() for line in content["results"])
                for kind, times in content["notes"]["count"].items():
                    notes.add(kind, content["notes"]["first"][kind], times)
        aside.replace(output)
    return notes
