"""Log and metrics of the server: JSON lines on stderr without user texts, and Prometheus metrics."""

from __future__ import annotations

import json
import logging
import math
import sys
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from queue import SimpleQueue
from threading import Thread
from typing import TextIO

MAX_LINES = 10_000  # waiting to be written
WRITER = json.JSONEncoder(default=str)  # escapes control characters


class Log:
    """Writes events. `texts`: whether user texts may be logged; `requests`: whether requests are."""

    def __init__(self, out: TextIO | None = None, texts: bool = False, requests: bool = True) -> None:
        self.out, self.texts, self.requests = out, texts, requests
        # reentrant, since a signal handler logs, too; an empty line ends the writer
        self.lines: SimpleQueue[str] = SimpleQueue()
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
        if self.lines.qsize() < MAX_LINES:  # nobody reads stderr: lines are lost, requests are not
            self.lines.put(line)

    def write(self) -> None:
        """Write to stderr in a thread: a reader that stops must not stop the event loop."""
        while line := self.lines.get():
            with suppress(OSError, ValueError):  # the reader is gone
                sys.stderr.write(line)
                sys.stderr.flush()

    def close(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            self.lines.put("")
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
    for name in ("uvicorn", "asyncio", "uvicorn.error", "uvicorn.access"):
        logger, is_child = logging.getLogger(name), name.startswith("uvicorn.")
        logger.handlers, logger.propagate = [] if is_child else [Handler(log)], is_child
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
Sample = tuple[str, tuple[tuple[str, str], ...]]  # suffix of the name, and labels


class ServerMetrics:
    def __init__(self) -> None:
        self.values: dict[str, dict[Sample, float]] = {name: defaultdict(float) for name in NAMES}

    def add(self, name: str, value: float = 1.0, **labels: str) -> None:
        self.values[name]["", tuple(sorted(labels.items()))] += value

    def set(self, name: str, value: float, **labels: str) -> None:
        self.values[name]["", tuple(sorted(labels.items()))] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Count a value of a histogram; its buckets are cumulative."""
        samples, names = self.values[name], tuple(sorted(labels.items()))
        for edge in (*SECONDS, math.inf):
            samples["_bucket", (*names, ("le", number(edge)))] += value <= edge
        samples["_sum", names] += value
        samples["_count", names] += 1

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines())

    def lines(self) -> Iterator[str]:
        for name, (full, kind, help_text) in NAMES.items():
            yield f"# HELP {full} {help_text}"
            yield f"# TYPE {full} {kind}"
            for (suffix, labels), value in self.values[name].items():
                inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels)
                yield f"{full}{suffix}{f'{{{inside}}}' if inside else ''} {number(value)}"


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
