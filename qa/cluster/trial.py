"""Four ranks on four hosts, 20 ms and 1 Gbit/s apart: the losses of one process in spite of what happens."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.communication import bytes_of_update
from qa.cluster.network import Network, missing
from qa.result import Result
from qa.survive.parallel import (
    PLAIN,
    RANK,
    apart,
    changed,
    environment,
    free_port,
    losses,
    reached,
    run_of,
    together,
)
from qa.survive.runs import bits, toy
from regard.config import Config
from regard.storage import load_checkpoint

HOSTS = 4
SAME = 1e-10
MEMORY = Path(__file__).with_name("memory.py")
SHARE = 0.35  # of the bytes of DDP, on four ranks
LIMIT = 900.0  # seconds of one job
MOST = 1.25  # bytes sent over those computed: headers, acknowledgements, the other operations of an update
SILENCE = 12.0  # seconds of train.timeout where a host is gone


class Hosts:
    """One process on each host of a network, as torchrun would start them."""

    def __init__(self, net: Network, place: Path) -> None:
        self.net, self.place, self.jobs = net, place, 0

    def start(self, script: Path, content: dict[str, Any]) -> list[subprocess.Popen[str]]:
        self.jobs += 1
        job = self.place / f"job-{self.jobs}.json"
        job.write_text(json.dumps(content))
        shared = environment(self.place) | {
            "MASTER_ADDR": self.net.address(0),
            "MASTER_PORT": str(free_port()),
        }
        shared |= {"GLOO_SOCKET_IFNAME": "eth0", "WORLD_SIZE": str(HOSTS), "LOCAL_WORLD_SIZE": "1"}
        shared |= {"LOCAL_RANK": "0"}
        command = [sys.executable, str(script), str(job)]
        return [
            self.net.start(rank, command, shared | {"RANK": str(rank)}, stderr=subprocess.PIPE)
            for rank in range(HOSTS)
        ]

    def run(self, runs: list[dict[str, Any]]) -> str:
        """What went wrong."""
        return finish(self.start(RANK, {"runs": runs}))


def finish(processes: Sequence[subprocess.Popen[str]]) -> str:
    try:
        texts = [process.communicate(timeout=LIMIT)[1] for process in processes]
    except subprocess.TimeoutExpired:
        return f"a job did not end in {LIMIT:.0f} s"
    wrong = [text for process, text in zip(processes, texts) if process.returncode]
    return wrong[0][-2000:] if wrong else ""


def wait_for(step: int, folder: Path, processes: Sequence[subprocess.Popen[str]]) -> None:
    began = time.monotonic()
    while reached(folder) < step and all(each.poll() is None for each in processes):
        if time.monotonic() - began > LIMIT:
            raise TimeoutError(f"{folder.name} did not come to step {step}")
        time.sleep(0.05)


def cluster(count: int, seed: int, cut: float = 30.0, size: bool = True) -> Result:
    """`count` updates; the cable is pulled for `cut` seconds; `size`: count the bytes of a rank for base."""
    if reason := missing():
        return Result("cluster", 0, 0, f"skipped: {reason}", seed)
    wrong: list[str] = []
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, Network(HOSTS) as net:
        place = Path(name)
        hosts = Hosts(net, place)
        fields: dict[str, Any] = {"precision": "float64", "seed": seed, "steps": count}
        fields |= {"checkpoint_every": max(2, count // 4), "timeout": 300.0}
        config = changed(toy(place, **fields), PLAIN, validate_every=count // 2)
        wrong += filter(None, [together(1, place, [run_of(config, place / "one")])])
        expected = losses(place / "one")
        for trial in (equal, other_sizes, cable, killed, unreachable):
            if wrong:
                break
            found, more = trial(hosts, config, expected, cut)
            wrong += [f"{trial.__name__}: {each}" for each in found]
            figures |= more
        for measure in (volumes, bytes_of_base) if size and not wrong else ():
            found, more = measure(hosts)
            wrong += found
            figures |= more
    figure = "4 hosts, 20 ms and 1 Gbit/s apart: " + ", ".join(
        f"{key} {value}" for key, value in figures.items()
    )
    return Result("cluster", len(figures), len(wrong), figure, seed, figures, wrong)


Found = tuple[list[str], dict[str, Any]]


def equal(hosts: Hosts, config: Config, expected: list[float], cut: float) -> Found:
    """DDP and FSDP2; the first half of each is kept to go on from."""
    place, kinds, half = hosts.place, ("ddp", "fsdp"), config.train.steps // 2
    runs = [run_of(changed(config, parallel=kind), place / kind) for kind in kinds]
    runs += [run_of(changed(config, parallel=kind, steps=half), place / f"{kind}-half") for kind in kinds]
    before = list(hosts.net.sent)
    if text := hosts.run(runs):
        return [text], {}
    sent = sum(hosts.net.sent) - sum(before)
    worst = max(apart(losses(place / kind), expected) for kind in kinds)
    wrong = [] if worst <= SAME else [f"losses differ by {worst:.1e}"]
    return wrong, {"losses_differ_by": worst, "megabytes_sent": round(sent / 1e6)}


def other_sizes(hosts: Hosts, config: Config, expected: list[float], cut: float) -> Found:
    """The checkpoints of 4 ranks on 4 (equal bits), 3, 2 and 1."""
    place, wrong, worst = hosts.place, list[str](), 0.0
    for size in (4, 3, 2, 1):
        runs = []
        for kind in ("ddp", "fsdp"):
            folder = place / f"{kind}-on-{size}"
            shutil.copytree(place / f"{kind}-half", folder)
            runs.append(run_of(changed(config, parallel=kind), folder, resume=True))
        if text := hosts.run(runs) if size == HOSTS else together(size, place, runs):
            return [f"on {size}: {text}"], {}
        worst = max(worst, *(apart(losses(Path(run["folder"])), expected) for run in runs))
    for kind in ("ddp", "fsdp"):
        found, whole = bits(place / f"{kind}-on-4"), bits(place / kind)
        del found["metrics"], whole["metrics"]  # they tell of the limit, which was another
        wrong += [] if found == whole else [f"{kind} on 4 again: other bits"]
    wrong += [] if worst <= SAME else [f"losses differ by {worst:.1e}"]
    return wrong, {"checkpoints_on_4_3_2_1_differ_by": worst}


def cable(hosts: Hosts, config: Config, expected: list[float], cut: float) -> Found:
    """Host 2 is cut off for a while."""
    folder = hosts.place / "cable"
    processes = hosts.start(RANK, {"runs": [run_of(changed(config, parallel="fsdp"), folder)]})
    wait_for(3, folder, processes)
    hosts.net.link(2, up=False)
    time.sleep(cut)
    during = reached(folder)
    hosts.net.link(2, up=True)
    if text := finish(processes):
        return [text], {}
    worst = apart(losses(folder), expected)
    wrong = [] if worst <= SAME else [f"losses differ by {worst:.1e}"]
    wrong += [] if during < config.train.steps else ["the run had ended before the cable was pulled"]
    return wrong, {"cable_pulled_for_s": cut}


def killed(hosts: Hosts, config: Config, expected: list[float], cut: float) -> Found:
    """The process of host 2 is killed; the others name it, and the run goes on from its last checkpoint."""
    folder = hosts.place / "killed"
    processes = hosts.start(RANK, {"runs": [run_of(changed(config, parallel="fsdp"), folder)]})
    wait_for(config.train.checkpoint_every + 1, folder, processes)
    kill(folder, 2)
    return go_on(hosts, config, expected, folder, processes, 2, "killed")


def unreachable(hosts: Hosts, config: Config, expected: list[float], cut: float) -> Found:
    """Host 3 is cut off for good: nothing tells the others, but the time that they wait is bounded."""
    folder = hosts.place / "unreachable"
    short = changed(config, parallel="ddp", timeout=SILENCE)
    processes = hosts.start(RANK, {"runs": [run_of(short, folder)]})
    wait_for(config.train.checkpoint_every + 1, folder, processes)
    hosts.net.link(3, up=False)
    try:
        return go_on(hosts, config, expected, folder, processes, 3, "cut off")
    finally:
        kill(folder, 3)
        hosts.net.link(3, up=True)


def kill(folder: Path, rank: int) -> None:
    """By the number that the process wrote down; in a namespace of names it is that of this system."""
    try:
        os.kill(int((folder.parent / f"{folder.name}.{rank}.pid").read_text()), 9)
    except ProcessLookupError:
        return


def go_on(
    hosts: Hosts,
    config: Config,
    expected: list[float],
    folder: Path,
    processes: Sequence[subprocess.Popen[str]],
    victim: int,
    how: str,
) -> Found:
    since = time.monotonic()
    others = [process for rank, process in enumerate(processes) if rank != victim]
    texts = [process.communicate(timeout=LIMIT)[1] for process in others]
    took = time.monotonic() - since
    kill(folder, victim)
    processes[victim].communicate(timeout=LIMIT)
    wrong = [f"{how}: {text[-500:]}" for text in texts if f"rank {victim} (node-{victim})" not in text]
    hosts.net.link(victim, up=True)
    if not wrong and (text := hosts.run([run_of(None, folder, resume=True)])):
        return [text], {}
    worst = apart(losses(folder), expected) if not wrong else 0.0
    wrong += [] if worst <= SAME else [f"losses differ by {worst:.1e}"]
    return wrong, {f"host_{how.replace(' ', '_')}_named_after_s": round(took, 1)}


def volumes(hosts: Hosts) -> Found:
    """Bytes that a host sends in an update, over those that bench/communication.py computes."""
    model = {"width": 128, "feed_forward": 512, "heads": 4, "dropout": 0.0}
    kinds = {"ddp": ("ddp", "auto"), "ddp_bfloat16": ("ddp", "bfloat16"), "fsdp": ("fsdp", "auto")}
    fields: dict[str, Any] = {"steps": 16, "checkpoint_every": 100, "validate_every": 100, "accumulate": 1}
    plain = changed(toy(hosts.place, precision="float32", **fields), model)
    runs = [
        run_of(changed(plain, parallel=parallel, gradients=gradients), hosts.place / f"volume-{name}")
        for name, (parallel, gradients) in kinds.items()
    ]
    processes, sent = hosts.start(RANK, {"runs": runs}), dict[str, float]()
    for name in kinds:
        marks = []
        for step in (2, plain.train.steps - 2):
            wait_for(step, hosts.place / f"volume-{name}", processes)
            marks.append((reached(hosts.place / f"volume-{name}"), sum(hosts.net.sent)))
        updates, count = (last - first for first, last in zip(*marks))
        sent[name] = count / max(1, updates) / HOSTS
    if text := finish(processes):
        return [text], {}
    weights = load_checkpoint(hosts.place / "volume-ddp" / "checkpoints" / "step-16").model
    size = sum(tensor.numel() for tensor in weights.values())
    shares = {
        name: round(sent[name] / bytes_of_update(size, HOSTS, parallel, gradients), 2)
        for name, (parallel, gradients) in kinds.items()
    }
    wrong = [f"{name}: {share} of the bytes computed" for name, share in shares.items() if share > MOST]
    return wrong, {"bytes_sent_over_computed": shares}


def bytes_of_base(hosts: Hosts) -> Found:
    """Bytes of weights, gradients and optimizer state of a rank after an update of the paper's base."""
    sizes: dict[str, int] = {}
    for kind in ("fsdp", "ddp"):
        out = hosts.place / f"bytes-{kind}"
        content = {"parallel": kind, "out": str(out)}
        if kind == "fsdp":
            text = finish(hosts.start(MEMORY, content))
        else:  # the replica of one rank is that of every other
            job = hosts.place / "bytes.json"
            job.write_text(json.dumps(content))
            done = subprocess.run([sys.executable, str(MEMORY), str(job)], capture_output=True, text=True)
            text = done.stderr[-2000:] if done.returncode else ""
        if text:
            return [text], {}
        sizes[kind] = max(int(path.read_text()) for path in hosts.place.glob(f"bytes-{kind}.*"))
    share = sizes["fsdp"] / sizes["ddp"]
    wrong = [] if share <= SHARE else [f"FSDP2 holds {share:.2f} of the bytes of DDP"]
    return wrong, {"bytes_a_rank_fsdp_of_ddp": round(share, 3), "bytes_a_rank_ddp": sizes["ddp"]}
