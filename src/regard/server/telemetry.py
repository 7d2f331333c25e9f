"""Log and metrics of the server: JSON lines on stderr without user texts, and Prometheus metrics."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from queue import Full, Queue
from threading import Thread
from typing import TextIO

WRITER = json.JSONEncoder(default=str)  # escapes control characters


class Log:
    """Writes events. `texts`: whether user texts may be logged; `requests`: whether requests are."""

    def __init__(self, out: TextIO | None = None, texts: bool = False, requests: bool = True) -> None:
        self.out, self.texts, self.requests = out, texts, requests
        self.lines: Queue[str] = Queue(10_000)  # an empty line ends the writer
        self.writer: Thread | None = None

    def __call__(self, event: str, **fields: object) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = WRITER.encode({"time": now, "event": event, **fields}) + "\n"
        if self.out is not None:
            self.out.write(line)
            return
        if self.writer is None:
            self.writer = Thread(target=self.write, name="log", daemon=True)
            self.writer.start()
        with suppress(Full):  # nobody reads stderr: lines are lost, requests are not
            self.lines.put_nowait(line)

    def write(self) -> None:
        """Write to stderr in a thread: a reader that stops must not stop the event loop."""
        while line := self.lines.get():
            with suppress(OSError, ValueError):  # the reader is gone
                sys.stderr.write(line)
                sys.stderr.flush()

    def close(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            with suppress(Full):
                self.lines.put("", timeout=1)
            self.writer.join(1)
            self.writer = None

    def error(self, error: BaseException, **fields: object) -> None:
        """Log an error with its frames; the message may hold user text and needs `texts`."""
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        message = {"message": str(error)} if self.texts else {}
        self("error", kind=type(error).__name__, where=where, **message, **fields)


class Handler(logging.Handler):
    """Messages of uvicorn and asyncio as log events."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.log.error(record.exc_info[1], level=record.levelname.lower())
        else:
            self.log("server", level=record.levelname.lower(), message=record.getMessage())


def redirect_loggers(log: Log) -> None:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = (
            [Handler(log)] if name in ("uvicorn", "asyncio") else [],
            (name.startswith("uvicorn.")),
        )
        logger.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True


SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
NAMES = {  # name in the code: (Prometheus name, type, help)
    "requests": ("regard_requests_total", "counter", "Requests answered, by route and status."),
    "in_flight": ("regard_requests_in_flight", "gauge", "Requests being answered."),
    "seconds": ("gen_ai_server_request_duration_seconds", "histogram", "From request to complete response."),
    "first": ("gen_ai_server_time_to_first_token_seconds", "histogram", "Streams: until the first token."),
    "tokens": ("gen_ai_server_tokens_total", "counter", "Tokens read and written, by kind."),
    "refused": ("regard_refused_total", "counter", "Requests rejected because the queue was full."),
    "gone": ("regard_clients_gone_total", "counter", "Clients that disconnected before their response."),
    "desk": ("regard_desk", "gauge", "Counters of each model's scheduler: queue, running rows, steps."),
    "tasks": ("regard_tasks", "gauge", "Tasks of the event loop."),
    "draining": ("regard_draining", "gauge", "1 while the server shuts down."),
}
Labels = tuple[tuple[str, str], ...]


class Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(SECONDS, value)] += 1
        self.sum += value


class ServerMetrics:
    def __init__(self) -> None:
        self.values: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self.histograms: dict[str, dict[Labels, Histogram]] = defaultdict(lambda: defaultdict(Histogram))

    def add(self, name: str, value: float = 1.0, **labels: str) -> None:
        self.values[name][tuple(sorted(labels.items()))] += value

    def set(self, name: str, value: float, **labels: str) -> None:
        self.values[name][tuple(sorted(labels.items()))] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        self.histograms[name][tuple(sorted(labels.items()))].add(value)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines())

    def lines(self) -> Iterator[str]:
        for name, (full, kind, help_text) in NAMES.items():
            yield f"# HELP {full} {help_text}"
            yield f"# TYPE {full} {kind}"
            for labels, value in self.values[name].items():
                yield f"{full}{written(dict(labels))} {number(value)}"
            for labels, histogram in self.histograms[name].items():
                yield from buckets(full, dict(labels), histogram)


def buckets(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    total = 0
    for edge, count in zip([*map(number, SECONDS), "+Inf"], histogram.counts):
        total += count
        yield f"{name}_bucket{written({**labels, 'le': edge})} {total}"
    yield f"{name}_sum{written(labels)} {number(histogram.sum)}"
    yield f"{name}_count{written(labels)} {total}"


def written(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
