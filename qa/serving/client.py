"""A server of its own process to ask, what it holds, and the line that a bar prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qa.serving import process
from qa.serving.driver import share
from qa.serving.link import Address, Answer, Link

__all__ = ["Answer", "Link", "Result", "Server", "above", "share", "started"]


@dataclass(frozen=True)
class Result:
    """What a bar prints: one line of JSON."""

    name: str
    n: int
    failures: int
    figure: Mapping[str, Any]
    seed: int

    def line(self) -> str:
        return json.dumps(asdict(self))


def above(**figures: tuple[float, float]) -> dict[str, float]:
    """The figures that are above their bar, as (figure, bar). They are times and sizes, which a busy machine
    spoils: they are told and make no bar fail."""
    return {name: round(value, 3) for name, (value, bar) in figures.items() if value > bar}


@dataclass
class Server:
    """Where a server is, and its process if it has its own."""

    port: int
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None

    @property
    def address(self) -> Address:
        return Address(self.port)

    @property
    def pid(self) -> int:
        return os.getpid() if self.process is None else self.process.pid

    def rss(self) -> float:
        """MiB that the process holds."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+)", text)
        return int(match[1]) / 1024 if match else 0.0

    def processor_seconds(self) -> float:
        """Time that the process has had of all cores so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def held(self) -> dict[str, int]:
        """Open files and threads."""
        folder = Path(f"/proc/{self.pid}")
        return {name: len(list((folder / name).iterdir())) for name in ("fd", "task")}


HOST = Path(__file__).parent / "host.py"


@contextmanager
def started(
    models: list[str], *options: str, batching: str = "continuous", cores: str = ""
) -> Iterator[Server]:
    """A server process with some models, and with a choice of how it puts work together."""
    pinned = ["taskset", "-c", cores] if cores else []
    with process.started([*models, *options], [*pinned, sys.executable, str(HOST), batching]) as running:
        yield Server(running.address.port, running.process, running.log)
