"""All writing goes through here: aside, synced, then renamed, so a reader sees the old file or the new.

Reading too: a folder may come from anywhere, so what it holds is looked at before it is used.
"""

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

from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.config.reading import SMALL, read_json_text, shown
from regard.errors import RegardError, UsageError

Json = dict[str, Any]
READ = {".json", ".safetensors", ".txt", ".toml", ".spm", ".model"}  # endings of the files of a folder


@contextmanager
def told_plainly(path: Path, doing: str = "write") -> Iterator[None]:
    """Turn an operating-system error while writing into one sentence with the path and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(existing_parent(path)).free
            raise RegardError(
                f"{path}: the disk is full ({free:,} bytes free); make room and go on with --resume"
            ) from error
        raise RegardError(f"{path}: cannot {doing}: {error.strerror}") from error


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
    with opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping


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
            if Path(entry.name).suffix not in READ:
                continue
            leads = Path(os.path.realpath(entry.path)) if entry.is_symlink() else home
            if not any(leads.is_relative_to(place) for place in inside):
                raise UsageError(
                    f"{entry.path}: a link that leads out of the folder; put the file itself there"
                )
            if not entry.is_file():
                raise UsageError(f"{entry.path}: not an ordinary file")


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
