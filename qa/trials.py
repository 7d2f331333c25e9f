"""All release trials: the docstring of each is what it promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qa.result import Result

if TYPE_CHECKING:
    from qa.serving.client import Server


@dataclass(frozen=True)
class Job:
    """One call of a trial."""

    count: int  # cases
    seed: int
    work: Path  # an empty folder
    model: Path = Path("runs/demo")  # a translator from English into German
    first: int = 0  # number of the first case, to repeat one of them


@dataclass(frozen=True)
class Trial:
    run: Callable[[Job], Result]
    count: int
    seconds: int  # on a quiet machine with two cores
    alone: bool  # it measures times: nothing runs beside it
    needs_model: bool

    @property
    def promise(self) -> str:
        return " ".join((self.run.__doc__ or "").split())


TRIALS: dict[str, Trial] = {}
Make = Callable[[Job], Result]


def trial(count: int, seconds: int, alone: bool = False, needs_model: bool = False) -> Callable[[Make], Make]:
    def add(run: Make) -> Make:
        TRIALS[run.__name__.replace("_", "-")] = Trial(run, count, seconds, alone, needs_model)
        return run

    return add


# Runs and checkpoints


@trial(200, 80)
def kills(job: Job) -> Result:
    """A run killed by SIGKILL at any moment, half of the time inside a save, loses no acknowledged
    checkpoint, and ends with the bits of an uninterrupted run."""
    from qa.survive import kills

    return kills.kills(job.count, job.seed, job.work)


@trial(100, 80)
def signals(job: Job) -> Result:
    """After SIGTERM or SIGINT a run saves within 2 s and exits with code 130, after a second signal within
    0.5 s; resumed, it ends with the bits of an uninterrupted run."""
    from qa.survive import kills

    return kills.signals(job.count, job.seed, job.work)


@trial(1000, 8)
def power_cuts(job: Job) -> Result:
    """Every disk state that a power cut during a save can leave loads as exactly the old or the new."""
    from qa.survive import power

    return power.power(job.count, job.seed)


@trial(1, 10)
def disk_errors(job: Job) -> Result:
    """Each call of a save may fail (ENOSPC, EIO, EDQUOT, EROFS, EINTR, short write): old checkpoints stay
    whole, one sentence says what failed, nothing is left behind."""
    from qa.survive import failing

    return failing.failing(job.count, job.seed)


@trial(2250, 17)
def corruption(job: Job) -> Result:
    """Flipped bits, cut files and mixed generations are noticed, the file is named, the checkpoint before
    is used; checksums take at most 5 % of a save."""
    from qa.survive import damage

    return damage.damage(job.count, job.seed)


@trial(60, 109)
def resume(job: Job) -> Result:
    """A run stopped inside any update and resumed has every loss and every bit of the uninterrupted one."""
    from qa.survive import runs

    return runs.resume(job.count, job.seed)


@trial(1, 17)
def non_finite(job: Job) -> Result:
    """Losses and gradients that are not finite, or explode, never reach the weights; samples are named."""
    from qa.survive import runs

    return runs.numbers(job.count, job.seed)


@trial(200, 45, alone=True)
def saving(job: Job) -> Result:
    """A checkpoint every 100 updates takes less than 3 % of a run's time."""
    from qa.survive import runs

    return runs.saving(job.count, job.seed)


@trial(100, 64)
def ranks(job: Job) -> Result:
    """Two processes (DDP and FSDP2) have the losses of one within 1e-10, also resumed with 1 and 3."""
    from qa.survive import parallel

    return parallel.ranks(job.count, job.seed)


@trial(12, 108)
def elastic(job: Job) -> Result:
    """One of two ranks killed under torchrun: the bits of an untouched run, at most 5 updates repeated, 15 s
    until it is made good; 2, 1 and 2 ranks in one run: losses within 1e-5."""
    from qa.survive import parallel

    return parallel.elastic(job.count, job.seed)


@trial(12, 690)
def cluster(job: Job) -> Result:
    """Four hosts 20 ms and 1 Gbit/s apart (network namespaces): the losses of one process within 1e-10, also
    from checkpoints of 4 ranks on 4, 3, 2 and 1, and with a cable pulled for 30 s; a rank that is killed or
    cut off is named by all others; FSDP2 holds at most 0.35 of the bytes of DDP."""
    from qa.cluster import trial as hosts

    return hosts.cluster(job.count, job.seed)


@trial(200_000, 3000, alone=True)
def ray_cluster(job: Job) -> Result:
    """On a Ray cluster of two nodes, of which a worker is killed twice, `--on ray` writes what one process
    writes, line by line."""
    from qa.bulk import ray_cluster as run

    return run(job.count, job.seed, job.work)


# Files of others


@trial(5000, 42)
def code(job: Job) -> Result:
    """Model folders made to do harm run no code, and open no file outside themselves (audit hook)."""
    from qa.hostile import trials

    return trials.code(trials.warm_folders(), job.count, job.seed)


@trial(100_000, 538)
def mutations(job: Job) -> Result:
    """Model folders changed at random open, or give our own error, within 1 s and 64 MiB."""
    from qa.hostile import trials

    return trials.mutations(trials.warm_folders(), job.count, job.seed, job.first)


@trial(1, 8)
def bombs(job: Job) -> Result:
    """Small folders that claim to be huge are refused within 200 ms of processor time and 64 MiB."""
    from qa.hostile import trials

    return trials.size_bombs(trials.warm_folders())


@trial(1, 3)
def archives(job: Job) -> Result:
    """No archive decides what is written to the disk, or where."""
    from qa.survive import archives

    return archives.archives(job.count, job.seed)


@trial(100_000, 103)
def readers(job: Job) -> Result:
    """Every reader of files (TSV, JSONL, CoNLL, SQuAD, gzip, po, tmx, xliff, srt, TOML, tokenizers, traces)
    gives our own errors alone, within 1 s."""
    from qa.survive import readers

    return readers.fuzz(job.count, job.seed)


@trial(10_000, 40)
def dirty(job: Job) -> Result:
    """Dirty corpora are read as documented, no pair is ever shifted, a line of 1 GiB takes little memory."""
    from qa import dirty

    return dirty.dirty(job.count, job.seed, job.work)


# The server


@contextmanager
def server_for(job: Job, *options: str, others: bool = False) -> Iterator[Server]:
    """`regard serve` in a process of its own; the others are a small GPT and a small BERT."""
    from qa.serving import models
    from qa.serving.client import started
    from regard.device import freeze_gc

    freeze_gc()  # a client that halts would be taken for a server that does
    more = models.make(job.work, job.seed) if others else []
    with started([str(job.model), *more], *options) as server:
        yield server


def tasks_of(job: Job) -> dict[str, str]:
    """What each model of a mixed server does."""
    from qa.serving import models

    return {job.model.resolve().name: "translate", **{name: task for name, (task, _) in models.KINDS.items()}}


@trial(60, 150, alone=True, needs_model=True)
def overload(job: Job) -> Result:
    """Asked for twice and ten times what it can do, the server answers at full rate and refuses the rest at
    once, with Retry-After."""
    from qa.serving import load

    with server_for(job) as server:
        return asyncio.run(load.overload(server, job.seed, job.count))


@trial(300, 20, alone=True, needs_model=True)
def limits(job: Job) -> Result:
    """Odd and oversize requests are refused with 4xx; an upload of 1 GiB takes no memory."""
    from qa.serving import bounds

    with server_for(job) as server:
        return asyncio.run(bounds.limits(server, job.seed, job.count, job.model.resolve().name))


@trial(200, 30, alone=True, needs_model=True)
def cancel(job: Job) -> Result:
    """The work for clients that vanish ends within a step, and nothing of it is left."""
    from qa.serving import leaving, models

    with server_for(job, others=True) as server:
        return asyncio.run(leaving.cancel(server, job.seed, job.count, writer=models.WRITER))


@trial(20, 25, alone=True, needs_model=True)
def deadline(job: Job) -> Result:
    """A request whose time is over is answered with 503 and Retry-After, and its work ends."""
    from qa.serving import leaving

    with server_for(job, "--timeout", "0.5") as server:
        return asyncio.run(leaving.deadline(server, job.seed, job.count, 0.5))


@trial(500, 75, alone=True, needs_model=True)
def slow_clients(job: Job) -> Result:
    """Clients that write slowly or read nothing are cut off within 10 s and cost the others nothing."""
    from qa.serving import leaving

    with server_for(job) as server:
        return asyncio.run(leaving.slow(server, job.seed, job.count, 60 if job.count >= 500 else 15))


@contextmanager
def keyed_server(job: Job) -> Iterator[tuple[Server, list[str]]]:
    """A server with keys, and as many as there are clients."""
    from qa.serving.fair import POLITE
    from regard.server.keys import add_key

    file = job.work / "keys.json"
    keys = [add_key(file, f"client-{number}") for number in range(POLITE + 1)]
    with server_for(job, "--keys", str(file)) as server:
        yield server, keys


@trial(60, 180, alone=True, needs_model=True)
def greedy(job: Job) -> Result:
    """Beside a client that sends 64 texts again and again, 32 polite ones at half the capacity have at most
    twice their p99."""
    from qa.serving import fair

    with keyed_server(job) as (server, keys):
        return asyncio.run(fair.greedy(server, job.seed, job.count, keys))


@trial(700, 40, alone=True, needs_model=True)
def slow_sockets(job: Job) -> Result:
    """Slow sockets without a key do not harm clients that have one, and liveness is always answered."""
    from qa.serving import fair

    with keyed_server(job) as (server, keys):
        return asyncio.run(fair.slow_sockets(server, job.seed, job.count, keys))


@trial(100, 20, alone=True, needs_model=True)
def unread(job: Job) -> Result:
    """Answers of many megabytes that nobody reads hold little memory."""
    from qa.serving import fair

    with keyed_server(job) as (server, keys):
        return asyncio.run(fair.unread(server, job.seed, job.count, keys))


@trial(20, 80, alone=True, needs_model=True)
def drain(job: Job) -> Result:
    """After SIGTERM under load everything accepted is answered, readiness falls at once, liveness stays."""
    from qa.serving import bounds

    return asyncio.run(bounds.drain(bounds.fresh([str(job.model)]), job.seed, job.count))


@trial(20_000, 180, alone=True, needs_model=True)
def soak(job: Job) -> Result:
    """A long mixed day with three models leaves memory, descriptors, threads and tasks as they were."""
    from qa.serving import attack

    with server_for(job, others=True) as server:
        return asyncio.run(attack.soak(server, job.seed, job.count, tasks_of(job)))


@trial(20_000, 120, alone=True, needs_model=True)
def protocol(job: Job) -> Result:
    """Requests generated from the OpenAPI document, and broken framings, never get 5xx or silence."""
    from qa.serving import attack

    with server_for(job, others=True) as server:
        odd = max(20, job.count // 200)
        return asyncio.run(attack.fuzz(server, job.seed, job.count, odd, list(tasks_of(job))))


@trial(500, 90, alone=True, needs_model=True)
def batch_invariance(job: Job) -> Result:
    """A text has the same translation and score alone and in any batch, by command and by server."""
    from qa.serving import batch_invariance

    with server_for(job) as server:
        return asyncio.run(batch_invariance.invariance(server, job.seed, job.count, str(job.model)))


@trial(1, 10, needs_model=True)
def foreign_pages(job: Job) -> Result:
    """Pages of other origins, other host names and wrong keys get nothing from any route."""
    from qa.serving import attack
    from regard.server.keys import add_key

    key = add_key(job.work / "keys.json", "trial")
    with server_for(job, "--keys", str(job.work / "keys.json")) as server:
        return asyncio.run(attack.strangers(server, job.seed, key))


# The page, and earlier versions


@trial(1000, 240, needs_model=True)
def xss(job: Job) -> Result:
    """Texts with XSS payloads, wherever a text can stand, run no script and are shown as sent."""
    from qa import xss

    return xss.trial(job.model, job.count, job.seed)


@trial(200, 900)
def site(job: Job) -> Result:
    """A static site in Chromium, without a network, has the texts of `regard explain` and all tensors within
    1e-4 (of a tensor's largest number in a changed run), for so many sentences of each built-in model."""
    from qa import site

    return site.trial(job.count, job.seed, job.work)


@trial(20, 150)
def lessons(job: Job) -> Result:
    """Each lesson of a static site is walked to its end in a narrow window, where the right answers are
    accepted; computed again by as many processes, lessons have the same answers."""
    from qa import lessons

    return lessons.trial(job.count, job.seed, job.work)


@trial(1, 120)
def compat(job: Job) -> Result:
    """Calls of an earlier commit (commands, Python, HTTP, old folders, resumed runs) give the same now;
    differences are listed with their reason in qa/compat/differences.toml."""
    from qa.compat.__main__ import compare

    return compare(job.work)
