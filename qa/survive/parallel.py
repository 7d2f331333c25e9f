"""Many processes on one machine (gloo, 127.0.0.1): the same losses, the same samples, whoever is killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qa.result import Result
from qa.survive.runs import bits, toy
from regard.config import Config
from regard.storage import checkpoint_folder, checkpoint_steps, load_checkpoint

RANK = Path(__file__).with_name("rank.py")  # what each process runs
PLAIN = {"dropout": 0.0}
SAME = 1e-10
NEAR = 1e-5  # of float32, with another number of ranks
QUICK = 15.0  # seconds in which a killed rank is made good
LIFE = 1800.0  # seconds that processes get at most
Ids = dict[tuple[int, int, int], list[int]]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment(place: Path) -> dict[str, str]:
    own = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own, "REGARD_CACHE": str(place / "cache"), "TOKENIZERS_PARALLELISM": "false"}


def together(size: int, place: Path, runs: list[dict[str, Any]]) -> str:
    """Runs by `size` processes, without torchrun; what went wrong."""
    job = place / f"job-{size}-{len(list(place.glob('job-*')))}.json"
    job.write_text(json.dumps({"runs": runs}))
    shared = {**environment(place), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    shared["MASTER_PORT"] = str(free_port())
    started = [
        subprocess.Popen(
            [sys.executable, str(RANK), str(job)],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [process.communicate(timeout=LIFE)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    wrong = [text for process, text in zip(started, said) if process.returncode]
    return wrong[0][-2000:] if wrong else ""


def run_of(
    config: Config | None, folder: Path, resume: bool = False, spoil: str | None = None
) -> dict[str, Any]:
    """`spoil` is what is wrong with the odd sample, in whichever process has it."""
    tree = None if config is None else config.model_dump(mode="json", exclude_none=True, by_alias=True)
    return {"folder": str(folder), "config": tree, "resume": resume, "spoil": spoil}


def changed(config: Config, model: dict[str, Any] | None = None, **fields: object) -> Config:
    return config.model_copy(
        update={
            "train": config.train.model_copy(update=fields),
            "model": config.model.model_copy(update=model or {}),
        }
    )


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] in ("train", "valid")]


def ids(folder: Path, size: int) -> Ids:
    """The samples of each batch, put together from what all processes took."""
    parts: list[Ids] = []
    for rank in range(size):
        own: Ids = {}
        for line in (folder.parent / f"{folder.name}.{rank}.ids").read_text().splitlines():
            epoch, pool, at, numbers = json.loads(line)
            if own.setdefault((epoch, pool, at), numbers) != numbers:
                raise ValueError(f"batch {epoch}-{pool}-{at} had other samples the second time")
        parts.append(own)
    found: Ids = {}
    for key in parts[0]:
        shares = [part.get(key, []) for part in parts]
        row: list[Any] = [None] * sum(map(len, shares))
        for rank, share in enumerate(shares):
            row[rank::size] = share
        found[key] = row
    return found


def apart(one: list[float], two: list[float]) -> float:
    if len(one) != len(two):
        return float("inf")
    return max(abs(left - right) for left, right in zip(one, two))


# --- the trials


@dataclass(frozen=True)
class Recovery:
    """After a kill: seconds until processes were started, had loaded, and were further than before."""

    started: float
    loaded: float
    done: float
    queued: float  # of these a process was ready, and waited for a core that others had
    lost: int  # updates that were done again

    @property
    def own(self) -> float:
        return self.done - self.queued


def started(number: int) -> float:
    """When a process began, on the clock of `time.monotonic`."""
    ticks = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


def queued(number: int) -> float:
    """Seconds that a process waited for a core."""
    return int(Path(f"/proc/{number}/schedstat").read_text().split()[1]) / 1e9


def ranks(count: int, seed: int, sizes: tuple[int, ...] = (1, 3)) -> Result:
    """The losses of 2 ranks against 1, then on from their checkpoint with other numbers of ranks."""
    wrong: list[str] = []
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        half = count // 2
        fields: dict[str, Any] = {
            "precision": "float64",
            "seed": seed,
            "steps": count,
            "checkpoint_every": half,
        }
        config = changed(toy(place, **fields), PLAIN, validate_every=half)
        wrong += [text] if (text := together(1, place, [run_of(config, place / "one")])) else []
        kinds = ("ddp", "fsdp")
        runs = [run_of(changed(config, parallel=kind), place / kind) for kind in kinds]
        runs += [run_of(changed(config, parallel=kind, steps=half), place / f"{kind}-half") for kind in kinds]
        wrong += [text] if (text := together(2, place, runs)) else []
        for size in sizes:
            further = []
            for kind in kinds:
                here = place / f"{kind}-half-{size}"
                shutil.copytree(place / f"{kind}-half", here)
                further.append(run_of(changed(config, parallel=kind), here, resume=True))
            wrong += [text] if (text := together(size, place, further)) else []
        if not wrong:
            expected, order = losses(place / "one"), ids(place / "one", 1)
            for kind in kinds:
                figures[kind] = apart(losses(place / kind), expected)
                if ids(place / kind, 2) != order:
                    wrong.append(f"{kind}: other samples, or in another order")
                for size in sizes:
                    figures[f"{kind}, then {size}"] = apart(losses(place / f"{kind}-half-{size}"), expected)
            wrong += [f"{name}: {figure:.1e}" for name, figure in figures.items() if not figure <= SAME]
    most = max(figures.values(), default=float("nan"))
    figure = f"losses of {count} updates and of validation differ by {most:.1e} at most"
    return Result("ranks", len(figures), len(wrong), figure, seed, {"differences": figures}, wrong)


def elastic(count: int, seed: int, updates: int = 60) -> Result:
    """One of 2 ranks killed `count` times under torchrun; against 2 ranks that nobody touched.

    Then 2 ranks, 1 and 2 again, each a third of the updates; against 1 alone.
    """
    chance, wrong = random.Random(seed), list[str]()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        config = toy(place, steps=updates, checkpoint_every=5, validate_every=20, seed=seed)
        wrong += [text] if (text := together(2, place, [run_of(config, place / "whole")])) else []
        killed, recovery, text = under_torchrun(config, place, count, chance)
        wrong += [text] if text else []
        if killed != count:
            wrong.append(f"{killed} of {count} kills before the end")
        if not wrong:
            if ids(place / "cut", 2) != ids(place / "whole", 2):
                wrong.append("other samples, or in another order")
            if bits(place / "cut") != bits(place / "whole"):
                wrong.append("other bits than the run that nobody killed")
            if max(each.lost for each in recovery) > 5:
                wrong.append(f"{max(each.lost for each in recovery)} updates lost by one kill")
            if max(each.own for each in recovery) > QUICK:
                wrong.append(f"{max(each.own for each in recovery):.1f} s until a kill was made good")
            last = checkpoint_folder(place / "cut", checkpoint_steps(place / "cut")[-1])
            if load_checkpoint(last).state["step"] != updates:
                wrong.append("did not come to its end")
        difference, found = other_sizes(changed(config, PLAIN), place)
        wrong += found
    figure = f"{killed} kills of one of 2 ranks: the run has the samples and the bits of the untouched one"
    more = {
        "slowest_recovery_s": round(max((each.own for each in recovery), default=0.0), 1),
        "on_the_clock_s": round(max((each.done for each in recovery), default=0.0), 1),
        "usual_s": {
            name: round(statistics.median([getattr(each, name) for each in recovery] or [0.0]), 1)
            for name in ("started", "loaded", "done", "queued")
        },
        "updates_lost_at_most": max((each.lost for each in recovery), default=0),
        "losses_of_2_1_2_ranks_differ_by": difference,
    }
    return Result("elastic", count, len(wrong), figure if not wrong else wrong[0][-300:], seed, more, wrong)


def other_sizes(config: Config, place: Path) -> tuple[float, list[str]]:
    """2 ranks, 1 and 2 again in one run: how far its losses are from those of 1, and what went wrong."""
    third, seen = config.train.steps // 3, Ids()
    last = place / "sizes-0"
    text = together(1, place, [run_of(config, place / "alone")])
    for part, size in enumerate((2, 1, 2)):
        folder = place / f"sizes-{part}"
        if part:
            shutil.copytree(last, folder)
        own = changed(config, steps=third * (part + 1))
        text = text or together(size, place, [run_of(own, folder, resume=part > 0)])
        if text:
            return float("inf"), [text]
        seen |= ids(folder, size)
        last = folder
    difference = apart(losses(last), losses(place / "alone"))
    wrong = [] if seen == ids(place / "alone", 1) else ["2, 1, 2 ranks: other samples, or in another order"]
    return difference, wrong + (
        [] if difference <= NEAR else [f"2, 1, 2 ranks: losses differ by {difference}"]
    )


def under_torchrun(
    config: Config, place: Path, count: int, chance: random.Random
) -> tuple[int, list[Recovery], str]:
    """(kills, how each was made good, what went wrong)"""
    folder, job = place / "cut", place / "job-cut.json"
    job.write_text(json.dumps({"runs": [run_of(config, folder)]}))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    command += ["--max-restarts", str(count), "--monitor-interval", "0.1"]
    said = (place / "said").open("w+")
    process = subprocess.Popen(
        [*command, str(RANK), str(job)], env=environment(place), stdout=said, stderr=said
    )
    recovery, killed = list[Recovery](), 0
    moments = sorted(chance.sample(range(1, config.train.steps - 3), count))
    began = time.monotonic()
    try:
        for moment in moments:
            if not waited(process, lambda at=moment: reached(folder) >= at, began):
                break
            time.sleep(chance.random() * 0.03)
            victim = int((place / f"cut.{chance.randrange(2)}.pid").read_text())
            at, saved = reached(folder), max(checkpoint_steps(folder), default=0)
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed, since = killed + 1, time.monotonic()
            gone = {path: path.read_text() for path in place.glob("cut.*.pid")}
            waited(process, lambda old=gone: all(path.read_text() != was for path, was in old.items()), began)
            there = time.monotonic()
            waited(process, lambda was=at: reached(folder) > was, began)
            now = time.monotonic()
            numbers = [int(path.read_text()) for path in gone]
            stages = [min(map(started, numbers)) - since, there - since, now - since]
            recovery.append(Recovery(*stages, max(map(queued, numbers)), max(0, at - saved)))
        code = process.wait(timeout=LIFE)
    finally:
        process.kill()
    said.seek(0)
    return killed, recovery, "" if code == 0 else said.read()[-2000:]


def waited(process: subprocess.Popen[bytes], when: Any, began: float) -> bool:
    while not when():
        if process.poll() is not None or time.monotonic() - began > LIFE:
            return bool(when())
        time.sleep(0.01)
    return True


def reached(folder: Path) -> int:
    """The last step that metrics.jsonl tells of."""
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return max((json.loads(line).get("step", 0) for line in lines[-3:]), default=0)
