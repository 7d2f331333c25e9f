"""Files that others wrote: ordinary ones, of bounded size, and JSON without surprises.

Nothing in them is taken on trust: a file that is a pipe or a device, or larger than its like ever is, is
refused before it is read.
"""

from __future__ import annotations

import errno
import gc
import json
import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import UsageError

SMALL = 4 << 20  # bytes: settings
SETTINGS = 1 << 20  # bytes: of a run
LARGE = 64 << 20  # bytes: vocabularies, and lists of tensors
DEEPEST = 64  # objects and lists inside one another
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a character beyond U+FFFF, if the other half is beside it


def read_bytes(path: Path, most: int = SMALL) -> bytes:
    """The content of an ordinary file; without waiting where something else has its name."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        facts = os.fstat(handle)
        if stat.S_ISDIR(facts.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(facts.st_mode):
            raise UsageError(f"{path}: not an ordinary file (a pipe or a device)")
        if facts.st_size > most:
            raise UsageError(
                f"{path}: {facts.st_size:,} bytes are more than such a file ever has ({most:,} at most)"
            )
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(facts.st_size)
    finally:
        os.close(handle)


def read_json_text(path: Path, most: int = SMALL, finite: bool = True) -> tuple[str, dict[str, Any]]:
    """The text of a JSON file and the object in it; ValueError says why it is none."""
    text = read_bytes(path, most).decode()
    content = parse_json(text, finite)
    if not isinstance(content, dict):
        raise ValueError("it holds no JSON object")
    return text, content


def parse_json(text: str, finite: bool = True) -> Any:
    """JSON as the standard has it: no name twice, no NaN or Infinity, nothing too deep, whole characters."""
    number = _finite if finite else float
    try:
        with _no_collection():
            content = json.loads(
                text, object_pairs_hook=_without_doubles, parse_constant=number, parse_float=number
            )
            _check_depth(content)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from None
    if _HALF.search(text):
        json.dumps(content, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return content


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python looks for garbage each time that it made some objects: with many, most of the time is that."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = set()
        for name, _ in pairs:
            if name in names:
                raise ValueError(f"the name {shown(name)} stands there twice")
            names.add(name)
    return found


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{shown(number)} is no number")
    return value


def _check_depth(content: Any) -> None:
    level = [content] if isinstance(content, dict | list) else []
    for _ in range(DEEPEST):
        inside: list[Any] = []
        for each in level:
            inside += each.values() if isinstance(each, dict) else each
        level = [each for each in inside if isinstance(each, dict | list)]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")


def shown(value: object) -> str:
    """A value as the user wrote it, on one line, cut where it would flood the message."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):  # a number of thousands of digits, an endless nest
        text = f"a {type(value).__name__}"
    text = text if len(text) <= 80 else f"{text[:77]}..."
    return text if text.isprintable() else json.dumps(text)[1:-1]
