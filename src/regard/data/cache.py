"""The cache of prepared corpora: one folder for each key, complete or absent."""

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

from regard.data.shards import MANIFEST, fingerprint, read_manifest
from regard.errors import RegardError

CACHE_VARIABLE = "REGARD_CACHE"
MODELS = "models"  # folder of downloaded models
FILES = "files"  # folder of corpora that were fetched from an address
NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def cache_folder() -> Path:
    """REGARD_CACHE, else the system's folder for caches."""
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "regard"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/regard"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def entries() -> list[Path]:
    """Complete folders, and partial ones of interrupted processes."""
    root = cache_folder()
    folders = (path for path in root.iterdir() if path.is_dir()) if root.is_dir() else iter(())
    return sorted(path for path in folders if path.name not in (MODELS, FILES))


def find_shards(digest: str | None, beside: Path) -> Path | None:
    """The complete entry, of the cache or in `beside`, whose shards have this fingerprint."""
    places: list[Path] = [*entries(), *(beside.iterdir() if beside.is_dir() else ())]
    for entry in places:
        corpora = read_manifest(entry).get("corpora") if (entry / MANIFEST).is_file() else None
        if corpora is not None and fingerprint(corpora) == digest:
            return entry
    return None


def size(entry: Path) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_size for path in entry.rglob("*") if path.is_file())


def key_of(content: Any) -> str:
    """A hash of `content`, as a name for what is computed from it alone."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def prepared(key: str, make: Callable[[Path], None], beside: Path) -> Path:
    """The folder of `key`, created by `make` if it does not exist.

    If the cache is not writable, the folder is created in `beside`, which belongs to the run.
    """
    folder = cache_folder() / key
    try:
        return folder if (folder / MANIFEST).is_file() else _make(folder, make)
    except PermissionError:
        return _make(beside / key, make) if not (beside / key / MANIFEST).is_file() else beside / key


def _make(folder: Path, make: Callable[[Path], None]) -> Path:
    """Create a temporary folder and rename it when it is complete."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name[:8]}-", dir=folder.parent))
    except OSError as error:
        if error.errno in NOT_ALLOWED:
            raise PermissionError(*error.args) from None
        raise _cannot_write(folder, error) from None
    try:
        make(partial)
        partial.chmod(partial.parent.stat().st_mode & 0o777)  # mkdtemp allows only the owner
        partial.rename(folder)
    except OSError as error:
        if not (folder / MANIFEST).is_file():  # else another process was first, with the same content
            raise _cannot_write(folder, error) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _cannot_write(folder: Path, error: OSError) -> RegardError:
    return RegardError(
        f"{folder.parent}: cannot write the prepared data: {error.strerror or error}; "
        f"free some space, or set {CACHE_VARIABLE} to another folder",
        code="E_DATA_CACHE",
    )
