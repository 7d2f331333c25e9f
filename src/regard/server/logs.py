"""What a server tells while it runs: a JSON object a line, on stderr. No text of a person is in it."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import TextIO

WRITER = json.JSONEncoder(default=str)  # escapes what is no letter


class Log:
    """Writes events. `texts` is whether what was asked may be told too."""

    def __init__(self, out: TextIO | None = None, texts: bool = False) -> None:
        self.out, self.texts = out, texts

    def __call__(self, event: str, **fields: object) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = WRITER.encode({"time": now, "event": event, **fields})
        out = self.out or sys.stderr
        try:
            out.write(f"{line}\n")
            out.flush()
        except (OSError, ValueError):  # nobody reads it any more
            pass

    def error(self, error: BaseException, **fields: object) -> None:
        """Where something went wrong; what its message says may be a person's text."""
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        told = {"message": str(error)} if self.texts else {}
        self("error", kind=type(error).__name__, where=where, **told, **fields)


class Handler(logging.Handler):
    """uvicorn's own messages, as ours."""

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
