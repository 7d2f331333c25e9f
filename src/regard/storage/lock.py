"""One process at a time in a folder: a lock that ends with the process, however it ends.

The system holds the lock, not the file: a kill leaves none behind, and a copy of the folder is free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import UsageError
from regard.storage.files import told_plainly

LOCK = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Refuse with the number of the other process if one is at work in this folder."""
    try:
        import fcntl
    except ImportError:  # Windows: there a second run is not noticed
        yield
        return
    with told_plainly(folder / LOCK):
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{folder}: another process{_number(handle)} trains there; wait until it ends, stop it, or "
                "choose another folder with --out"
            ) from None
        except OSError:  # a file system without locks
            pass
        else:
            _sign(handle)
        yield
    finally:
        os.close(handle)


def _number(handle: int) -> str:
    said = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
    return f" ({said})" if said.isdigit() else ""


def _sign(handle: int) -> None:
    """Only for whoever is refused: nobody goes by it."""
    with suppress(OSError):  # on a full disk the lock holds all the same
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
