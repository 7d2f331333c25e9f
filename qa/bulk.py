"""Bulk work on a Ray cluster of two nodes, of which workers are killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil

from qa.result import Result
from regard.data.phrasebook import phrases

MODEL = "phrasebook-transformer"
KILLS = 2
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def ray_cluster(lines: int, seed: int, work: Path) -> Result:
    """Translate by one process and by a cluster, both with two cores."""
    if find_spec("ray") is None:
        return Result("ray-cluster", 0, 0, "Ray is not installed", seed)
    rng = random.Random(seed)
    english = [row.english for row in phrases("train", min(lines, 200_000))]
    source = work / "in.txt"
    source.write_text("".join(f"{line}\n" for line in rng.choices(english, k=lines)), encoding="utf-8")
    command = [sys.executable, "-m", "regard", "translate", "-m", MODEL, str(source), "-o"]
    since = time.monotonic()
    subprocess.run([*command, str(work / "one.txt"), "--threads", "2"], check=True, capture_output=True)
    alone = time.monotonic() - since
    port, wrong = free_port(), []
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    temporary = Path("/tmp") / f"regard-ray-{os.getpid()}"  # paths of sockets may have 107 characters
    start = [*RAY, "start", "--block", "--num-cpus", "1", "--disable-usage-stats"]
    head = ["--head", f"--port={port}", "--node-ip-address=127.0.0.1", "--include-dashboard=false"]
    nodes = [start_node([*start, *head, f"--temp-dir={temporary}"], environment)]
    try:
        wait_for_port(port)
        nodes.append(start_node([*start, f"--address=127.0.0.1:{port}"], environment))
        since = time.monotonic()
        bulk = [*command, str(work / "ray.txt"), "--on", "ray", "--workers", "2"]
        address = {"RAY_ADDRESS": f"127.0.0.1:{port}"}
        process = subprocess.Popen(bulk, env=environment | address, stderr=subprocess.PIPE, text=True)
        killed = kill_workers(process, work / ".ray.txt.parts", nodes, rng)
        error = process.communicate()[1]
        together = time.monotonic() - since
        if process.returncode:
            wrong.append(error[-500:])
        elif (work / "ray.txt").read_bytes() != (work / "one.txt").read_bytes():
            wrong.append("the output differs from that of one process")
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait()
        shutil.rmtree(temporary, ignore_errors=True)
    figure = {"workers_killed": killed, "rows_per_second_to_one_process": round(alone / together, 2)}
    return Result("ray-cluster", lines, len(wrong), figure, seed, wrong=wrong)


def start_node(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_workers(
    process: subprocess.Popen[str], parts: Path, nodes: list[subprocess.Popen[bytes]], rng: random.Random
) -> int:
    """SIGKILL to a worker, twice, each in the middle of a part."""
    seen: set[str] = set()
    killed = 0
    while killed < KILLS and process.poll() is None:
        attempts = {each.name for each in parts.glob("*.try-*")} if parts.is_dir() else set()
        if attempts - seen and (workers := [pid for node in nodes for pid in actors(node.pid)]):
            seen |= attempts
            os.kill(rng.choice(workers), signal.SIGKILL)
            killed += 1
        time.sleep(0.2)
    return killed


def actors(pid: int) -> list[int]:
    """The processes below one that run actors of Ray Data."""
    processes = []
    for each in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            processes += [each.pid] if "ray::MapWorker" in " ".join(each.cmdline()) else []
    return processes


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for_port(port: int) -> None:
    for _ in range(600):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise TimeoutError("Ray did not start")
