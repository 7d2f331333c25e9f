"""A small HTTP client that counts time and keeps nothing, and a server of its own process to ask."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


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


@dataclass(frozen=True)
class Answer:
    status: int  # 0 where none came
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    def json(self) -> Any:
        return json.loads(self.body)


class Link:
    """One connection, opened when needed and kept open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(
        self,
        method: str,
        path: str,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 60.0,
    ) -> Answer:
        raw = (
            content
            if isinstance(content, bytes)
            else b""
            if content is None
            else json.dumps(content).encode()
        )
        own = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(raw))}
        head = "".join(f"{name}: {value}\r\n" for name, value in (own | dict(headers or {})).items())
        return await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + raw, wait)

    async def send(self, raw: bytes, wait: float = 60.0) -> Answer:
        """Bytes as they are, and what is answered; status 0 if nothing is."""
        begun = time.perf_counter()
        for attempt in range(2):
            fresh = self.writer is None
            try:
                async with asyncio.timeout(wait):
                    if self.writer is None:
                        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
                    self.writer.write(raw)
                    status, headers, body = await self.read()
                    return Answer(status, headers, body, time.perf_counter() - begun)
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
                self.close()
                if fresh or attempt or isinstance(error, TimeoutError):  # an idle connection may be closed
                    break
        return Answer(0, {}, b"", time.perf_counter() - begun)

    async def read(self) -> tuple[int, dict[str, str], bytes]:
        assert self.reader is not None
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:] if line)}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self.reader.readline(), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = await self.reader.read() if headers.get("connection") == "close" else b""
        if headers.get("connection") == "close":
            self.close()
        return int(head[0].split()[1]), headers, body

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    def __del__(self) -> None:
        with suppress(RuntimeError):  # the loop has ended before
            self.close()


@dataclass
class Server:
    """Where a server is, and its process if it has its own."""

    port: int
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None

    @property
    def pid(self) -> int:
        return os.getpid() if self.process is None else self.process.pid

    def rss(self) -> float:
        """MiB that the process holds."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", text)
        return int(found[1]) / 1024 if found else 0.0

    def held(self) -> dict[str, int]:
        """Open files and threads."""
        own = Path(f"/proc/{self.pid}")
        return {name: len(list((own / name).iterdir())) for name in ("fd", "task")}


HOST = Path(__file__).parent / "host.py"


@contextmanager
def started(models: list[str], *options: str, desk: str = "continuous", cores: str = "") -> Iterator[Server]:
    """A server process with some models."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, str(HOST), desk, *models, "--port", "0", *options]
        if cores:
            command = ["taskset", "-c", cores, *command]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stderr=out, stdout=subprocess.DEVNULL)
        try:
            yield Server(wait_for(process, log), process, log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    process.kill()


def wait_for(process: subprocess.Popen[bytes], log: Path, most: float = 180.0) -> int:
    until = time.monotonic() + most
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"http://[^/]*:(\d+)/", log.read_text(errors="replace")):
            return int(found[1])
        time.sleep(0.05)
    raise SystemExit(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")


def share(values: list[float], part: float) -> float:
    """The value that `part` of all are not above; 0 of none."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 4) if ordered else 0.0


def times(values: list[float]) -> dict[str, float]:
    return {f"p{round(100 * part, 1):g}": share(values, part) for part in (0.5, 0.95, 0.99)}
