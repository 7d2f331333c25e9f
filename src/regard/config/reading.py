"""Read untrusted files: regular files of bounded size, and strict JSON.

A pipe, a device or a file that is larger than its kind ever is, is refused before it is read.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

from regard import paused_gc
from regard.errors import UsageError

SMALL = 4 << 20  # bytes of a JSON file
SETTINGS = 1 << 20  # bytes of a config file
LARGE = 64 << 20  # bytes of a vocabulary or an index of tensors
DEEPEST = 64  # levels of nested objects and lists
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_bytes(path: Path, most: int = SMALL) -> bytes:
    """The content of a regular file. Never blocks on a pipe or a device."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        facts = os.fstat(handle)
        if stat.S_ISDIR(facts.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(facts.st_mode):
            raise UsageError(f"{path}: not an ordinary file (a pipe or a device)", code="E_FILE_TYPE")
        if facts.st_size > most:
            raise UsageError(
                f"{path}: {facts.st_size:,} bytes are more than such a file ever has ({most:,} at most)",
                code="E_FILE_SIZE",
            )
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(facts.st_size)
    finally:
        os.close(handle)


def read_json_text(path: Path, most: int = SMALL, finite: bool = True) -> tuple[str, dict[str, Any]]:
    """The text of a JSON file and its object; a ValueError says why it has none."""
    text = read_bytes(path, most).decode()
    content = parse_json(text, finite)
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return text, content


def parse_json(text: str, finite: bool = True) -> Any:
    """Strict JSON: no duplicate names, no NaN or Infinity, bounded depth, no lone surrogates."""
    number = _finite if finite else float
    try:
        with paused_gc():
            content = json.loads(
                text, object_pairs_hook=_without_duplicates, parse_constant=number, parse_float=number
            )
            _check_depth(content)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from None
    if _SURROGATE.search(text):
        json.dumps(content, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return content


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the name {shown(name)} occurs twice")
    return content


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{shown(number)} is not a finite number")
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


def finite(content: Any) -> Any:
    """Replace infinity and NaN, which JSON does not have, by null."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {name: finite(each) for name, each in content.items()}
    if isinstance(content, list | tuple):
        return [finite(each) for each in content]
    return content


def shown(value: object) -> str:
    """A value as the user wrote it, on one line, truncated to 80 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):  # a number of thousands of digits, an endless nest
        text = f"a {type(value).__name__}"
    text = text if len(text) <= 80 else f"{text[:77]}..."
    return text if text.isprintable() else json.dumps(text)[1:-1]
