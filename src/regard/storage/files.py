"""Atomic, durable file writes, careful reads, and the lock of a folder.

A file is written under another name, synced and then renamed, so that a reader sees the old file or the new
one. Every call that changes the disk goes through `Disk`, which tests replace by a recorder or a failing
disk. A folder may come from anywhere, so its files are checked before they are used.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from regard.checksums import SUMS
from regard.config.reading import SMALL, read_json_text
from regard.errors import RegardError, UsageError

Json = dict[str, Any]
Result = TypeVar("Result")

# suffixes of the files of a model folder
READ = {".json", ".jinja", ".safetensors", ".txt", ".toml", ".spm", ".model"}
LOCK = ".lock"
PARTIAL = ".partial"  # suffix of incomplete files and folders; their names start with a dot
WRITE_SIZE = 1 << 26  # bytes per write call
OPEN_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
FULL, QUOTA = errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)
NOT_WRITABLE = "make the folder writable, or choose another one"
ADVICE = {
    errno.EIO: "the disk may be failing: copy the folder to another one and continue there",
    errno.EROFS: NOT_WRITABLE,
    errno.EACCES: NOT_WRITABLE,
    errno.EPERM: NOT_WRITABLE,
}
BAD_PATH = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)  # the path is wrong
_number = itertools.count()


class Disk:
    """System calls that change the disk. Each does no more than the call it is named after: `write` may write
    only a part of the content, and nothing is durable before `sync`."""

    def make_folder(self, path: Path) -> None:
        path.mkdir()

    def create(self, path: Path) -> int:
        """A file descriptor of a new file."""
        return os.open(path, OPEN_FLAGS | os.O_EXCL, 0o666)

    def extend(self, path: Path) -> int:
        """A file descriptor at the end of a file."""
        return os.open(path, OPEN_FLAGS | os.O_APPEND, 0o666)

    def write(self, handle: int, content: memoryview) -> int:
        """The number of bytes written: at least one, or an error."""
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
        """Make changes of the names in a folder durable. Windows has no such call and needs none."""
        if os.name == "nt":
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno != errno.EINVAL:  # this file system has no such call
                raise
        finally:
            os.close(handle)


_disks: list[Disk] = [Disk()]


def disk() -> Disk:
    return _disks[-1]


@contextmanager
def use_disk(other: Disk) -> Iterator[None]:
    """Replace the disk inside the block."""
    _disks.append(other)
    try:
        yield
    finally:
        _disks.remove(other)


def retry_eintr(call: Callable[[], Result]) -> Result:
    """Repeat a call that a signal interrupts; Python itself repeats only some of them."""
    while True:
        try:
            return call()
        except InterruptedError:
            continue


@contextmanager
def friendly_os_errors(path: Path, doing: str = "write") -> Iterator[None]:
    """Turn an OSError into a one-line RegardError with the path, the free space and what to do."""
    try:
        yield
    except OSError as error:
        code = "E_DISK_FULL" if error.errno in (FULL, QUOTA) else f"E_FILE_{doing.upper()}"
        raise RegardError(os_error_message(path, doing, error), code=code) from error


def os_error_message(path: Path, doing: str, error: OSError) -> str:
    if doing != "write" or error.errno in BAD_PATH:
        return f"{path}: cannot {doing}: {error.strerror or error}"
    free = free_bytes(path)
    space = f"{free:,} bytes free" if free is not None else "free space unknown"
    if error.errno == FULL:
        return f"{path}: the disk is full ({space}); make room and continue with --resume"
    if error.errno == QUOTA:
        return f"{path}: your disk quota is used up ({space} in all); make room and continue with --resume"
    advice = ADVICE.get(error.errno or 0, "fix this and try again")
    return f"{path}: cannot {doing}: {error.strerror or error} ({space}); {advice}"


def free_bytes(path: Path) -> int | None:
    """Free space on the disk of a path, None if the system does not say."""
    path = path.absolute()
    with suppress(OSError):
        return shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists())).free
    return None


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file completely or not at all. Links are followed; devices and pipes are written into."""
    with friendly_os_errors(path):
        if is_special(path):  # as the shell's `>>` does
            _write(lambda path: os.open(path, os.O_WRONLY | os.O_APPEND), path, content, durable=False)
            return
        path = path.resolve()
        make_folders(path.parent)
        partial = path.with_name(f".{path.name}.{os.getpid()}-{next(_number)}{PARTIAL}")
        try:
            write_new(partial, content)
            retry_eintr(lambda: disk().rename(partial, path))
        except BaseException:
            remove(partial)
            raise
        sync_folder(path.parent)


def is_special(path: Path) -> bool:
    """True for a device, pipe or socket, which a rename would replace, and for a file descriptor.

    /dev/stdout may lead to a regular file (`> log`), which belongs to the shell that opened it. /dev/shm is
    an ordinary file system in memory.
    """
    descriptor = str(path.parent) == "/dev/fd" or str(path) in ("/dev/stdout", "/dev/stderr")
    return descriptor or (path.exists() and not path.is_file() and not path.is_dir())


def write_new(path: Path, content: bytes) -> None:
    """Create a file, durable when this returns; its name is durable once its folder is synced."""
    _write(disk().create, path, content, durable=True)


def append(path: Path, content: bytes, durable: bool = False) -> None:
    """Append to a file; a kill may leave a part of the content."""
    with friendly_os_errors(path):
        _write(disk().extend, path, content, durable)


def _write(open_: Callable[[Path], int], path: Path, content: bytes, durable: bool) -> None:
    handle = retry_eintr(lambda: open_(path))
    try:
        write_all(handle, content)
        if durable:
            retry_eintr(lambda: disk().sync(handle))
    finally:
        close(handle)


def close(handle: int) -> None:
    """Never retried: an interrupted close has closed, and the number may belong to another file by now."""
    with suppress(InterruptedError):
        disk().close(handle)


def write_all(handle: int, content: bytes) -> None:
    """Write all of the content, however little a single call takes."""
    left = memoryview(content)
    while left:
        written = retry_eintr(lambda: disk().write(handle, left[:WRITE_SIZE]))  # noqa: B023 - called at once
        left = left[written:]


def make_folders(path: Path) -> None:
    """Create a folder and its parents; each name is durable before anything is put into it."""
    if path.is_dir():
        return
    make_folders(path.parent)
    # another process may have created it meanwhile; if it is a file, the next call fails
    with suppress(FileExistsError):
        retry_eintr(lambda: disk().make_folder(path))
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    retry_eintr(lambda: disk().sync_folder(path))


def remove(path: Path) -> None:
    """Remove a file or folder if possible; errors are ignored."""
    with suppress(OSError):
        remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove a file or folder without following links."""
    if path.is_symlink() or not path.is_dir():
        if path.is_symlink() or path.exists():
            retry_eintr(lambda: disk().remove(path))
        return
    for inner in sorted(path.iterdir()):
        remove_tree(inner)
    retry_eintr(lambda: disk().remove_folder(path))


def remove_whole(path: Path) -> None:
    """Remove a folder that no reader may see without some of its files: it is renamed first."""
    trash = path.with_name(f".{path.name}.old{PARTIAL}")
    remove_tree(trash)
    retry_eintr(lambda: disk().rename(path, trash))
    remove_tree(trash)


def remove_partials(folder: Path) -> None:
    """Remove partial files of an interrupted write. The caller must hold the folder lock."""
    if folder.is_dir():
        for path in folder.glob(f".*{PARTIAL}"):
            remove(path)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which gets the name `out` once it is on the disk, and is removed on errors."""
    with new_path(out, "folder") as partial:
        with friendly_os_errors(out):
            make_folders(partial)
        yield partial


@contextmanager
def new_file(out: Path) -> Iterator[Path]:
    """The same for a file, for content that should not be in memory as a whole."""
    with new_path(out, "name") as partial:
        with friendly_os_errors(out):
            make_folders(partial.parent)
        yield partial


@contextmanager
def new_path(out: Path, kind: str) -> Iterator[Path]:
    if out.exists():
        raise UsageError(f"{out} already exists; choose another {kind}", code="E_OUTPUT_EXISTS")
    partial = out.with_name(f".{out.name}{PARTIAL}")
    with friendly_os_errors(out):
        remove_tree(partial)
    try:
        yield partial
        with friendly_os_errors(out):
            sync_folder(partial)
            retry_eintr(lambda: disk().rename(partial, out))
            sync_folder(out.parent)
    except BaseException:
        remove(partial)
        raise


def write_text(path: Path, text: str) -> None:
    write_atomically(path, text.encode("utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, to_json(content))


def to_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path, most: int = SMALL, finite: bool = True) -> Json:
    """The JSON object in a file of a model folder; anything else is an error that names the file."""
    try:
        return read_json_text(path, most, finite)[1]
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file", code="E_FILE_MISSING") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as JSON ({error})", code="E_FILE_JSON") from None


def check_files(folder: Path) -> None:
    """Refuse a folder with links that lead out of it, or with something else under the name of a file."""
    with friendly_os_errors(folder, "read"), os.scandir(folder) as entries:
        for entry in entries:
            if Path(entry.name).suffix in READ or entry.name == SUMS:
                check_inside(Path(entry.path))
                if not entry.is_file():
                    raise UsageError(f"{entry.path}: not an ordinary file", code="E_FILE_TYPE")


def check_inside(path: Path) -> None:
    """Refuse a link that leads out of its folder.

    The cache of Hugging Face's hub keeps the files of `snapshots/<revision>` in `blobs` beside it.
    """
    if path.is_symlink():
        home, target = path.parent.resolve(), Path(os.path.realpath(path))
        blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
        if not (target.is_relative_to(home) or target.is_relative_to(blobs)):
            message = f"{path}: a link that leads out of the folder; put the file itself there"
            raise UsageError(message, code="E_FILE_LINK")


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; refuse if another process does, with its process id.

    The operating system holds the lock, not the file: a killed process leaves none, a copied folder has none.
    """
    try:
        import fcntl
    except ImportError:  # Windows: a second run is not detected
        yield
        return
    with friendly_os_errors(folder / LOCK):
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{folder}: another process{_owner(handle)} trains there; wait until it ends, stop it, or "
                "choose another folder",
                code="E_FOLDER_LOCKED",
            ) from None
        except OSError:  # a file system without locks
            pass
        else:
            _write_owner(handle)
        yield
    finally:
        os.close(handle)


def _owner(handle: int) -> str:
    pid, _, host = os.pread(handle, 300, 0).decode("ascii", "replace").strip().partition(" ")
    return f" ({pid}{f' on {host}' if host else ''})" if pid.isdigit() else ""


def _write_owner(handle: int) -> None:
    """Process id and host, for the message of a refused process only."""
    with suppress(OSError):  # the lock holds on a full disk too
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {socket.gethostname()}\n".encode("ascii", "replace"), 0)
