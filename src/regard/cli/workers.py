"""`regard translate --workers N`: a large file by several processes, in portions that survive a kill.

Each portion is done by one process and kept beside the output until all are there. The same command goes on
with those that are missing; one whose process was killed is done again.
"""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.answers import Concerns, Lines, Wishes
from regard.cli.terminal import AT_ONCE, messages, open_model, portions, say
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from regard.tasks import Split, TooLong

TRIES = 3  # of a portion whose process dies


@dataclass(frozen=True)
class Job:
    """How lines are translated: all that a process needs to know, and that decides the result."""

    model: tuple[Path, ...]
    options: dict[str, Any]
    nbest: int
    scores: bool
    alignment: bool
    as_json: bool
    split: Split
    prefix: str | None
    too_long: TooLong
    language: str | None
    device: str
    threads: int
    precision: str

    @property
    def key(self) -> str:
        """Of the results; the machine and how it is divided have no part in them."""
        from regard.storage.builtin import find_model

        told = replace(self, device="", threads=0)
        stamps = [[str(path.resolve()), sorted_stamps(path)] for path in map(find_model, self.model)]
        return json.dumps([repr(told), stamps])

    def open(self) -> Lines:
        from regard.tasks import PhraseConstraints, decode_options

        translator = open_model(self.model, self.device, self.threads, self.precision, self.language)
        chosen = decode_options(translator.folder.decode, self.options)
        return Lines(
            translator,
            chosen,
            Wishes(PhraseConstraints()),
            self.nbest,
            self.scores,
            self.alignment,
            self.as_json,
            self.split,
            self.prefix,
            self.too_long,
        )


def sorted_stamps(path: Path) -> list[list[Any]]:
    """Which files a model has, and of when."""
    files = sorted(each for each in path.iterdir() if each.is_file())
    named = [each for each in files if each.suffix in (".json", ".safetensors", ".toml", ".model")]
    return [[each.name, each.stat().st_size, each.stat().st_mtime_ns] for each in named]


@dataclass
class Portion:
    number: int
    first: int  # its first line
    lines: list[str]
    wishes: list[Any] | None
    file: Path
    tries: int = 0


def translate_in_parts(
    job: Job, lines: Iterable[str], wishes: Wishes, workers: int, output: Path, at_once: int = AT_ONCE
) -> None:
    from regard.device import available_cores
    from regard.storage import friendly_os_errors, make_folders
    from regard.storage.files import is_special, remove_tree

    if not job.threads:
        job = replace(job, threads=max(1, len(available_cores()) // workers))
    if is_special(output):
        raise UsageError(f"{output} is a device or a pipe; --workers needs a regular file for -o")
    output = output.resolve()
    place = output.with_name(f".{output.name}.parts")
    with friendly_os_errors(place):
        make_folders(place)
    parts: list[Path] = []
    found = 0
    with messages().status("translating") as status, Team(job, workers) as team:
        for portion in cut(job.key, lines, wishes, place, at_once):
            parts.append(portion.file)
            if portion.file.is_file():
                found += 1
            else:
                team.give(portion)
            status.update(f"translating: {portion.first - 1 + len(portion.lines):,} lines")
        team.finish()
    wishes.check_all_used()
    if found:
        say(f"{found} of {len(parts)} portions were there from before")
    count, concerns = join(parts, output)
    say(f"wrote {count:,} translations to {output}")
    concerns.say()
    remove_tree(place)


def cut(key: str, lines: Iterable[str], wishes: Wishes, place: Path, at_once: int) -> Iterator[Portion]:
    """Portions, whose names follow from all that their results follow from."""
    first = 1
    for number, portion in enumerate(portions(lines, at_once)):
        own = wishes.next(len(portion))
        told = json.dumps([key, first, portion, repr(own)])
        name = f"{number:08d}-{hashlib.sha256(told.encode()).hexdigest()[:32]}.json"
        yield Portion(number, first, portion, own, place / name)
        first += len(portion)


class Team:
    """Processes that take portions; a dead one is replaced, and its portion done again."""

    def __init__(self, job: Job, workers: int) -> None:
        self.job, self.workers = job, workers
        self.at_work: dict[Connection[Any, Any], tuple[BaseProcess, Portion | None]] = {}

    def __enter__(self) -> Team:
        for _ in range(self.workers):  # all at once: each has a model to open
            self.hire()
        return self

    def __exit__(self, *error: object) -> None:
        for process, _ in self.at_work.values():
            process.terminate()
        for process, _ in self.at_work.values():
            process.join()

    def give(self, portion: Portion) -> None:
        """To a process that has nothing to do; waits for one."""
        free = next((line for line, (_, own) in self.at_work.items() if own is None), None)
        if free is None and len(self.at_work) < self.workers:
            free = self.hire()
        while free is None:
            free = self.hear()
        self.at_work[free] = (self.at_work[free][0], portion)
        with suppress(OSError):  # it died: that is heard of when it is listened to
            free.send((portion.first, portion.lines, portion.wishes, portion.file))

    def finish(self) -> None:
        while any(own is not None for _, own in self.at_work.values()):
            self.hear()

    def hire(self) -> Connection[Any, Any]:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(self.job, theirs), daemon=True)
        process.start()
        theirs.close()
        self.at_work[ours] = (process, None)
        return ours

    def hear(self) -> Connection[Any, Any] | None:
        """Wait for one to be done; that one, or None if its portion went to another."""
        busy = [line for line, (_, own) in self.at_work.items() if own is not None]
        line: Any = wait(busy)[0]
        process, portion = self.at_work[line]
        try:
            told = line.recv()
        except (EOFError, OSError):
            del self.at_work[line]
            process.join()
            if portion is not None:
                self.again(portion, process.exitcode)
            return None
        if told is not None:
            raise (UsageError if told[1] == UsageError.exit_code else RegardError)(told[0])
        self.at_work[line] = (process, None)
        found: Connection[Any, Any] = line
        return found

    def again(self, portion: Portion, code: int | None) -> None:
        portion.tries += 1
        if portion.tries >= TRIES:
            raise RegardError(
                f"{TRIES} processes ended with code {code} over the lines from {portion.first:,} on; try "
                "fewer --workers, for there may be too little memory"
            )
        say(f"a process ended with code {code}; its lines from {portion.first:,} on are done again")
        self.give(portion)


def work(job: Job, line: Connection[Any, Any]) -> None:
    """What a process does: portion after portion, until nobody gives any more."""
    from regard.storage import write_json
    from regard.tasks import PhraseConstraints

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever began it ends it
    try:
        answer = job.open()
        while True:
            first, lines, wishes, file = line.recv()
            answer.wishes, answer.concerns = Wishes(PhraseConstraints(), wishes), Concerns()
            results = answer(lines, first)
            noted = {"first": answer.concerns.first, "count": answer.concerns.count}
            write_json(file, {"lines": len(lines), "results": results, "concerns": noted})
            line.send(None)
    except EOFError:
        return
    except RegardError as error:
        line.send((str(error), error.exit_code))


def join(parts: list[Path], output: Path) -> tuple[int, Concerns]:
    """All results in their order into the output, as a whole or not at all; how many lines they are of."""
    from regard.storage import friendly_os_errors, read_json
    from regard.storage.files import PARTIAL

    aside = output.with_name(f".{output.name}{PARTIAL}")
    count, concerns = 0, Concerns()
    with friendly_os_errors(output):
        with aside.open("wb") as file:
            for part in parts:
                content = read_json(part)
                count += content["lines"]
                file.writelines(f"{line}\n".encode() for line in content["results"])
                for kind, times in content["concerns"]["count"].items():
                    concerns.first.setdefault(kind, content["concerns"]["first"][kind])
                    concerns.count[kind] = concerns.count.get(kind, 0) + times
        aside.replace(output)
    return count, concerns
