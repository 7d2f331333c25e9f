"""Zip files from anywhere: the list of their files is checked before one is unpacked."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from regard.config.reading import shown
from regard.errors import UsageError

MAX_FILES = 100_000
GROWTH, ALWAYS = 20, 16 << 20  # weights are packed to a third at best; small files in any proportion
Refusal = Callable[[str], UsageError]  # of a reason
DAMAGED = (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError, zlib.error)


@contextmanager
def open_zip(path: Path, refused: Refusal) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """A zip and its files by name. zipfile reads no more of one than the size that is checked here."""
    try:
        with zipfile.ZipFile(path) as archive:
            check(path, archive.infolist(), refused)
            yield archive, {info.filename: info for info in archive.infolist() if not info.is_dir()}
    except DAMAGED as error:
        if isinstance(error, UsageError):
            raise
        raise refused(str(error) or "a damaged zip") from None


def check(path: Path, entries: list[zipfile.ZipInfo], refused: Refusal) -> None:
    if len(entries) > MAX_FILES:
        raise refused(f"{len(entries):,} files")
    if len({info.filename for info in entries}) < len(entries):
        raise refused("two of its files have one name")
    for info in entries:
        name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
        if ".." in PurePosixPath(name).parts or name.startswith("/") or "\\" in name:
            raise refused(f"a file with the name {shown(name)}")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise refused(f"{shown(name)} is a link or a device")
    size, limit = sum(info.file_size for info in entries), ALWAYS + GROWTH * path.stat().st_size
    if size > limit:
        raise refused(f"{size:,} bytes from a file of {path.stat().st_size:,}")
