"""Files of pictures and sound: read with a bound on their size, also out of a tar ("train.tar:name.png")."""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from regard.config.reading import read_bytes
from regard.errors import UsageError

MEMBER = ".tar:"  # between the name of a tar and of a file in it
LARGEST_TAR = 1 << 42  # bytes; only headers and one member at a time are read
MEMBERS = 2_000_000


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """What is refused before it is decoded."""

    bytes: int = 256 << 20  # of one file
    pixels: int = 64_000_000  # of one picture, before it is resized
    frames: int = 10_000  # of one video
    seconds: float = 600.0  # of one sound that is decoded as a whole
    channels: int = 32
    sample_rate: int = 192_000


LIMITS = MediaLimits()


def open_media(path: str | Path, root: Path | None = None, most: int = LIMITS.bytes) -> bytes:
    """The bytes of a file, or of a member of a tar: "train.tar:name.png".

    With `root`, paths are relative to this folder and may not leave it.
    """
    tar, member = split_member(path)
    file = inside(root, tar) if root is not None else Path(tar)
    try:
        if member is None:
            return read_bytes(file, most)
        return _read_member(file, member, most)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise UsageError(f"{path}: there is no such file", code="E_MEDIA_MISSING") from None
    except ValueError:  # NUL in a name
        raise UsageError(f"{path!r}: no name of a file", code="E_MEDIA_MISSING") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})", code="E_MEDIA_READ") from None


def split_member(path: str | Path) -> tuple[str, str | None]:
    """The file, and the member of it that is meant: ("train.tar", "name.png"), or None."""
    text = os.fspath(path)
    tar, mark, member = text.partition(MEMBER)
    return (tar + MEMBER[:-1], member) if mark else (text, None)


def inside(root: Path, name: str) -> Path:
    """A path below a folder, links followed; one that leaves the folder is refused."""
    try:
        folder = root.resolve()
        path = (folder / name).resolve()
        outside = not path.is_relative_to(folder)
    except (OSError, RuntimeError, ValueError):  # a loop of links, NUL
        outside = True
    if outside:
        raise UsageError(f"{name}: leaves the folder {root}", code="E_MEDIA_OUTSIDE")
    return path


def _read_member(file: Path, member: str, most: int) -> bytes:
    facts = file.stat()
    index = _tar_index(file, facts.st_mtime_ns, facts.st_size)
    if member not in index:
        raise UsageError(f"{file}: there is no {member} in it", code="E_MEDIA_MISSING")
    span = index[member]
    if span is None:
        raise UsageError(
            f"{file}:{member} is no ordinary file (a link, a folder or a device)", code="E_MEDIA_MEMBER"
        )
    begin, size = span
    if size > most:
        raise UsageError(f"{file}:{member} has {size:,} bytes: {most:,} are read at most", code="E_FILE_SIZE")
    with file.open("rb") as opened:
        opened.seek(begin)
        content = opened.read(size)
    if len(content) < size:
        raise UsageError(f"{file}:{member} is truncated", code="E_MEDIA_TAR")
    return content


@lru_cache(maxsize=16)
def _tar_index(file: Path, changed: int, size: int) -> dict[str, tuple[int, int] | None]:
    """Offset and size of each file in a plain tar, by name; None for what is no ordinary file.

    The key has the time and size of the tar, so that one which is written again is read again.
    """
    if size > LARGEST_TAR or not file.is_file():
        raise UsageError(f"{file}: no plain tar", code="E_MEDIA_TAR")
    index: dict[str, tuple[int, int] | None] = {}
    try:
        with tarfile.open(file, mode="r:") as tar:  # "r:" reads no compressed tar, which has no offsets
            for entry in tar:
                plain = entry.isreg() and not entry.issparse()
                index[entry.name] = (entry.offset_data, entry.size) if plain else None
                tar.members.clear()  # type: ignore[attr-defined]  # tarfile keeps every header otherwise
                if len(index) > MEMBERS:
                    raise UsageError(f"{file}: more than {MEMBERS:,} files", code="E_MEDIA_TAR")
    except (tarfile.TarError, ValueError, EOFError) as error:
        message = f"{file}: no plain tar ({error}); unpack a compressed one"
        raise UsageError(message, code="E_MEDIA_TAR") from None
    return index
