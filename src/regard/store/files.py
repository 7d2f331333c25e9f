"""All writing goes through here: aside, synced, then renamed, so a reader sees the old file or the new."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import RegardError, UsageError

Json = dict[str, Any]


@contextmanager
def told_plainly(path: Path) -> Iterator[None]:
    """Turn an operating-system error while writing into one sentence with the path and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(existing_parent(path)).free
            raise RegardError(
                f"{path}: the disk is full ({free:,} bytes free); make room and go on with --resume"
            ) from error
        raise RegardError(f"{path}: cannot write: {error.strerror}") from error


def existing_parent(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as a whole, or not at all."""
    with told_plainly(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o666 & ~_umask())  # mkstemp makes private files; a model folder is for sharing
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    write_atomically(path, text.encode("utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, to_json(content))


def to_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path) -> Json:
    """A JSON object from a file of a model folder; anything else is an error that names the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: holds no JSON object")
    return content


def sync_file(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable. Windows has no such call and needs none."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
