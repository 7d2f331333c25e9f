"""A server of its own process to ask, what it holds, and what its trials print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qa.result import Result, above
from qa.serving import process
from qa.serving.driver import share
from qa.serving.link import Address, Answer, Link

__all__ = ["Answer", "Link", "Result", "Server", "above", "share", "started"]


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
