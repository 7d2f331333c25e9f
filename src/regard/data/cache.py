"""The user's cache of prepared corpora: a folder for each key, complete or absent."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.data.shards import MANIFEST
from regard.errors import RegardError

CACHE_VARIABLE = "REGARD_CACHE"
MODELS = "models"  # pulled ones lie beside the prepared corpora
NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def cache_folder() -> Path:
    """Where prepared data lies: REGARD_CACHE, else where this system keeps what can be made again."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "regard"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/regard"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def entries() -> list[Path]:
    """What is kept: complete folders, and those that a process which was cut off left behind."""
    root = cache_folder()
    own = (path for path in root.iterdir() if path.is_dir()) if root.is_dir() else iter(())
    return sorted(path for path in own if path.name != MODELS)


def size(entry: Path) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_size for path in entry.rglob("*") if path.is_file())


def key_of(content: Any) -> str:
    """The name of whatever follows from `content` alone."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def prepared(key: str, make: Callable[[Path], None], beside: Path) -> Path:
    """The folder of `key`; made aside and then named, so that it is complete or absent.

    Where the user's cache cannot be written, it is made beside the run.
    """
    wanted = cache_folder() / key
    try:
        return wanted if (wanted / MANIFEST).is_file() else _make(wanted, make)
    except PermissionError:
        return _make(beside / key, make) if not (beside / key / MANIFEST).is_file() else beside / key


def _make(wanted: Path, make: Callable[[Path], None]) -> Path:
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{wanted.name[:8]}-", dir=wanted.parent))
    except OSError as error:
        if error.errno in NOT_ALLOWED:
            raise PermissionError(*error.args) from None
        raise _no_room(wanted, error) from None
    try:
        make(aside)
        aside.chmod(aside.parent.stat().st_mode & 0o777)  # who may use the cache may use this
        aside.rename(wanted)
    except OSError as error:
        if not (wanted / MANIFEST).is_file():  # else another process was first, with the same content
            raise _no_room(wanted, error) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return wanted


def _no_room(wanted: Path, error: OSError) -> RegardError:
    return RegardError(
        f"{wanted.parent}: cannot keep the prepared data: {error.strerror or error}; "
        f"make room there, or set {CACHE_VARIABLE} to a folder with more"
    )
