"""All writing goes through here: aside, synced, then renamed, so a reader sees the old file or the new.

Reading too: a folder may come from anywhere, so what it holds is looked at before it is used.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.config.reading import SMALL, read_json_text, shown
from regard.errors import RegardError, UsageError
from regard.mapped import map_file
from regard.storage.disk import again, disk

Json = dict[str, Any]
READ = {".json", ".safetensors", ".txt", ".toml", ".spm", ".model"}  # endings of the files of a folder
SUMS = "SHA256SUMS"
PARTIAL = ".partial"  # how the names of what is not complete end; they begin with a dot
AT_ONCE = 1 << 26  # bytes of a write
FULL, QUOTA = errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)
ADVICE = {
    errno.EIO: "the disk may be failing: copy the folder to another one and go on there",
    errno.EROFS: "make the place writable, or choose another one",
    errno.EACCES: "make the place writable, or choose another one",
    errno.EPERM: "make the place writable, or choose another one",
}
MISNAMED = (
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)  # no fault of the disk
_number = itertools.count()


@contextmanager
def told_plainly(path: Path, doing: str = "write") -> Iterator[None]:
    """Turn an operating-system error into one sentence with the path, the room there is and what to do."""
    try:
        yield
    except OSError as error:
        raise RegardError(in_a_sentence(path, doing, error)) from error


def in_a_sentence(path: Path, doing: str, error: OSError) -> str:
    if doing != "write" or error.errno in MISNAMED:
        return f"{path}: cannot {doing}: {error.strerror or error}"
    free = free_bytes(path)
    room = f"{free:,} bytes free" if free is not None else "it cannot be seen how much is free"
    if error.errno == FULL:
        return f"{path}: the disk is full ({room}); make room and go on with --resume"
    if error.errno == QUOTA:
        return f"{path}: your quota of the disk is used up ({room} in all); make room and go on with --resume"
    advice = ADVICE.get(error.errno or 0, "put that right and try again")
    return f"{path}: cannot {doing}: {error.strerror or error} ({room}); {advice}"


def free_bytes(path: Path) -> int | None:
    """None where even that cannot be asked."""
    with suppress(OSError):
        return shutil.disk_usage(existing_parent(path)).free
    return None


def existing_parent(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as a whole, or not at all. Links are followed; devices and pipes are written into."""
    with told_plainly(path):
        if is_special(path):
            write_into(path, content)
            return
        path = path.resolve()
        make_folders(path.parent)
        aside = path.with_name(f".{path.name}.{os.getpid()}-{next(_number)}{PARTIAL}")
        try:
            write_new(aside, content)
            again(lambda: disk().rename(aside, path))
        except BaseException:
            remove(aside)
            raise
        again(lambda: disk().sync_folder(path.parent))


def is_special(path: Path) -> bool:
    """True for a device, pipe or socket, which a rename would replace, and for a file descriptor.

    /dev/stdout may lead to a regular file (`> log`), which belongs to the shell that opened it.
    """
    descriptor = str(path.parent) == "/dev/fd" or str(path) in ("/dev/stdout", "/dev/stderr")
    return descriptor or (path.exists() and not path.is_file() and not path.is_dir())


def write_into(path: Path, content: bytes) -> None:
    """Write to an existing device or pipe, as the shell's `>>` does."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        write_all(handle, content)
    finally:
        close(handle)


def write_new(path: Path, content: bytes) -> None:
    """A file that was not there, durable when this returns; its name is so when its folder is synced."""
    handle = again(lambda: disk().create(path))
    try:
        write_all(handle, content)
        again(lambda: disk().sync(handle))
    finally:
        close(handle)


def append(path: Path, content: bytes, durable: bool = False) -> None:
    """Add to a file; a kill may leave a part of it."""
    with told_plainly(path):
        handle = again(lambda: disk().extend(path))
        try:
            write_all(handle, content)
            if durable:
                again(lambda: disk().sync(handle))
        finally:
            close(handle)


def close(handle: int) -> None:
    """An interrupted one has closed: a second could close the file of somebody else."""
    with suppress(InterruptedError):
        disk().close(handle)


def write_all(handle: int, content: bytes) -> None:
    """However little the system takes at once."""
    left = memoryview(content)
    while left:
        written = again(lambda: disk().write(handle, left[:AT_ONCE]))  # noqa: B023 - called at once
        left = left[written:]


def make_folders(path: Path) -> None:
    """A folder and those above it, each known to the one above before anything is put into it."""
    if path.is_dir():
        return
    make_folders(path.parent)
    with suppress(
        FileExistsError
    ):  # made by another process meanwhile; or a file, on which the next call fails
        again(lambda: disk().make_folder(path))
    again(lambda: disk().sync_folder(path.parent))


def remove(path: Path) -> None:
    """A file or a folder that nobody needs; what cannot be deleted now is left for the next time."""
    with suppress(OSError):
        remove_tree(path)


def remove_tree(path: Path) -> None:
    """Without following links."""
    if path.is_symlink() or not path.is_dir():
        if path.is_symlink() or path.exists():
            again(lambda: disk().remove(path))
        return
    for inner in sorted(path.iterdir()):
        remove_tree(inner)
    again(lambda: disk().remove_folder(path))


def sweep(folder: Path) -> None:
    """Delete what a writer that was cut off left. Only for who is alone in the folder."""
    if folder.is_dir():
        for path in folder.glob(f".*{PARTIAL}"):
            remove(path)


def write_text(path: Path, text: str) -> None:
    write_atomically(path, text.encode("utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, to_json(content))


def to_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path, most: int = SMALL, finite: bool = True) -> Json:
    """A JSON object from a file of a model folder; anything else is an error that names the file."""
    try:
        return read_json_text(path, most, finite)[1]
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as JSON ({error})") from None


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, which takes no more memory than the file has bytes."""
    with opened(path) as file, path.open("rb") as own:
        whole, found = map_file(own), {}
        end = 8 + int.from_bytes(whole[:8].tolist(), "little")  # of the header, behind its length
        for name in file.offset_keys():  # one tensor behind the other, without a hole: the header was checked
            known = file.get_tensor(name)
            begin, end = end, end + known.nbytes
            place = whole[begin:end] if begin % known.itemsize == 0 else whole[begin:end].clone()
            found[name] = place.view(known.dtype).view(known.shape)
        if end != len(whole):
            raise ValueError("another file came in its place while it was read")
        return found


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A safetensors file whose header was checked: no tensor overlaps another or ends behind the file."""
    try:
        if not path.is_file():
            raise OSError("not an ordinary file")
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UsageError(f"{path}: not a readable safetensors file ({shown(str(error))})") from None


def check_files(folder: Path) -> None:
    """Refuse a folder with links that lead out of it, or with something else under the name of a file.

    The cache of Hugging Face's hub keeps the files of `snapshots/<revision>` in `blobs` beside it.
    """
    home = folder.resolve()
    inside = [home] + ([home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [])
    with told_plainly(folder, "read"), os.scandir(folder) as entries:
        for entry in entries:
            if Path(entry.name).suffix not in READ and entry.name != SUMS:
                continue
            leads = Path(os.path.realpath(entry.path)) if entry.is_symlink() else home
            if not any(leads.is_relative_to(place) for place in inside):
                raise UsageError(
                    f"{entry.path}: a link that leads out of the folder; put the file itself there"
                )
            if not entry.is_file():
                raise UsageError(f"{entry.path}: not an ordinary file")


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    again(lambda: disk().sync_folder(path))


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
