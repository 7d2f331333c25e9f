"""Corpora at addresses that fsspec reads (s3://, gs://, https://, memory:// ...), by way of the user's cache.

A file is fetched once, checked against the size that the storage states, and kept with its SHA-256 under what
identifies its content (etag, or time and size): when that changes, it is fetched again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from regard.checksums import sha256, sha256_of
from regard.data.cache import FILES, cache_folder
from regard.errors import UsageError, extra

PART = 1 << 23  # bytes copied at once


@cache  # a process sees one state of a file
def fetch(address: str) -> Path:
    """The local file with the content of an address."""
    system, path = open_system(address)
    if "file" in system.protocol:
        return Path(path)
    try:
        size, identity = system.info(path).get("size"), str(system.ukey(path))
    except Exception as error:  # each storage has its own
        raise failed(address, error) from None
    folder = cache_folder() / FILES / sha256_of(f"{address} {identity}".encode())[:32]
    file, note = folder / Path(path).name, folder / "fetched.json"
    if not is_intact(file, note):
        download(system, path, address, file, note, size)
    return file


@extra("remote")
def open_system(address: str) -> tuple[Any, str]:
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(address)
    except ImportError as error:  # names the package of this storage
        raise UsageError(f"{address}: {error}", code="E_EXTRA_MISSING") from None
    except Exception as error:
        raise failed(address, error) from None
    return system, path


def is_intact(file: Path, note: Path) -> bool:
    """Whether a file is there as it was fetched."""
    with suppress(OSError, ValueError):
        expected = json.loads(note.read_text(encoding="utf-8"))
        return bool(expected == {"bytes": file.stat().st_size, "sha256": sha256(file)})
    return False


def download(system: Any, path: str, address: str, file: Path, note: Path, size: int | None) -> None:
    """Fetch beside the place and rename: another process finds the whole file or none."""
    digest, count = hashlib.sha256(), 0
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(prefix=".", dir=file.parent)
        try:
            with os.fdopen(handle, "wb") as out, system.open(path, "rb") as source:
                while part := source.read(PART):
                    out.write(part)
                    digest.update(part)
                    count += len(part)
            if size is not None and count != size:
                raise OSError(f"{count:,} of {size:,} bytes arrived")
            Path(partial).replace(file)
        finally:
            Path(partial).unlink(missing_ok=True)
        entry = json.dumps({"bytes": count, "sha256": digest.hexdigest()})
        partial_note = note.with_name(f".{note.name}-{os.getpid()}")
        partial_note.write_text(entry, encoding="utf-8")
        partial_note.replace(note)
    except Exception as error:
        raise failed(address, error) from None


def failed(address: str, error: Exception) -> UsageError:
    reason = str(error) or type(error).__name__
    if isinstance(error, FileNotFoundError):
        reason = "no such file"
    return UsageError(f"{address}: cannot be fetched ({reason})", code="E_DATA_REMOTE")
