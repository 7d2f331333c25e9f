"""A server as a process of its own, for as long as it is needed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from qa.serving.link import Address
from regard.errors import RegardError

SERVE = (sys.executable, "-m", "regard", "serve")
START_SECONDS = 180.0
END_SECONDS = 40.0
PLACE = re.compile(r"http://[^/]*:(\d+)/")


class Server:
    """Where a server is, and its process."""

    def __init__(self, address: Address, process: subprocess.Popen[bytes], log: Path) -> None:
        self.address, self.process, self.log = address, process, log


@contextmanager
def started(options: Sequence[str], command: Sequence[str] = SERVE) -> Iterator[Server]:
    """`regard serve` with these folders and options, at a free port."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, *options, "--port", "0"], stderr=out, stdout=subprocess.DEVNULL
            )
        try:
            yield Server(Address(port_of(process, log)), process, log)
        finally:
            end(process)


def port_of(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port, once the server listens."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if match := PLACE.search(log.read_text(errors="replace")):
            return int(match[1])
        time.sleep(0.05)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise RegardError(
        f"the server did not start: {lines[-1].removeprefix('error: ') if lines else 'no word'}"
    )


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
