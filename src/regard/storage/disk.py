"""Every call that changes the disk, one method each: a recorder or a failing disk can stand in for it.

What is above this file knows no other way to write. A call does what the system's call does and no more:
`write` may write less than it was given, and nothing is durable before `sync`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
PLAIN = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Disk:
    def make_folder(self, path: Path) -> None:
        path.mkdir()

    def create(self, path: Path) -> int:
        """A handle of a file that was not there."""
        return os.open(path, PLAIN | os.O_EXCL, 0o666)

    def extend(self, path: Path) -> int:
        """A handle at the end of a file."""
        return os.open(path, PLAIN | os.O_APPEND, 0o666)

    def write(self, handle: int, content: memoryview) -> int:
        """How many bytes were written: at least one, or an error."""
        return os.write(handle, content)

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def remove(self, path: Path) -> None:
        path.unlink()

    def remove_folder(self, path: Path) -> None:
        path.rmdir()

    def sync_folder(self, path: Path) -> None:
        """Make what happened to the names in a folder durable. Windows has no such call and needs none."""
        if os.name == "nt":
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno != errno.EINVAL:  # which says that this file system has no such call
                raise
        finally:
            os.close(handle)


_standing: list[Disk] = [Disk()]


def disk() -> Disk:
    return _standing[-1]


@contextmanager
def standing_in(other: Disk) -> Iterator[None]:
    """Another disk for a while."""
    _standing.append(other)
    try:
        yield
    finally:
        _standing.remove(other)


def again(call: Callable[[], Result]) -> Result:
    """A call that a signal interrupts is made again; Python does so for some of them, not for all."""
    while True:
        try:
            return call()
        except InterruptedError:
            continue
