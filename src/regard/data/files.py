"""Checked lines of text files: UTF-8, plain or .gz; only "\\n" ends a line (as `wc -l` counts)."""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO, cast

from regard.data.report import DataReport
from regard.errors import UsageError
from regard.resources import read_data

DATA_VARIABLE = "REGARD_DATA"
LONGEST_LINE = 1 << 20  # bytes of a line of a corpus
LONGEST_INPUT = 1 << 28  # bytes of a line, or of a file that is read as a whole
# Characters at which `str.splitlines` splits and `wc -l` does not, and characters that are not text.
_ODD = re.compile("[\0\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029\ufeff]")
_SEPARATOR = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


@cache
def file_types() -> dict[str, dict[str, str]]:
    """What a file is: by suffix for `binary` and `markup`, by its first bytes (in hex) for `magic`."""
    return {
        name: {mark: kind for kind, marks in kinds.items() for mark in marks.split()}
        for name, kinds in read_data("file_types").items()
    }


def refuse_binary(path: Path, beginning: bytes = b"", suffix: str = "") -> None:
    """Refuse a file that is not text, by its suffix or its first bytes."""
    magic = file_types()["magic"].items()
    kind = file_types()["binary"].get(suffix) or next(
        (kind for first, kind in magic if beginning.startswith(bytes.fromhex(first))), None
    )
    if kind == "UTF-16":
        advice = f"iconv -f UTF-16 -t UTF-8 {path.name} > new"
        raise UsageError(f"{path}: UTF-16, not UTF-8; convert it: {advice}", code="E_DATA_ENCODING")
    if kind is not None:
        raise UsageError(f"{path}: not a text file but {kind}", code="E_DATA_TYPE")


def find(name: str) -> Path:
    """The path of a corpus; `data:multi30k/train.en.gz` is relative to the folder REGARD_DATA.

    The file at an address (s3://...) is fetched into the cache.
    """
    if "://" in name:
        from regard.data.remote import fetch  # fsspec takes a while to import

        return fetch(name)
    if not name.startswith("data:"):
        return Path(name)
    root = os.environ.get(DATA_VARIABLE)
    if not root:
        raise UsageError(
            f"{name}: set the environment variable {DATA_VARIABLE} to the folder of your corpora",
            code="E_DATA_FOLDER",
        )
    return Path(root) / name.removeprefix("data:")


def format_suffix(path: Path) -> str:
    """The suffix that determines the format, in lower case and without .gz."""
    return Path(path.name.casefold().removesuffix(".gz")).suffix


def folder_stamp(path: Path) -> tuple[int, int]:
    """Size and newest modification time of the files in a folder, or of a file."""
    if not path.is_dir():
        return stamp(path)
    facts = [each.stat() for each in path.rglob("*") if each.is_file()]
    return sum(each.st_size + 1 for each in facts), max((each.st_mtime_ns for each in facts), default=0)


def stamp(path: Path) -> tuple[int, int]:
    """Size and modification time of a regular file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise _file_error(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise _file_error(f"{path}: cannot read it: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(status.st_mode):
        raise _file_error(f"{path} is a folder, not a text file")
    if not stat.S_ISREG(status.st_mode):
        raise _file_error(
            f"{path} is a pipe or a device; training reads files twice: save it to a file first"
        )
    return status.st_size, status.st_mtime_ns


def _file_error(message: str) -> UsageError:
    return UsageError(message, code="E_DATA_FILE")


@contextmanager
def open_binary(path: Path, position: Callable[[], str] = str) -> Iterator[BinaryIO]:
    """Open a file, unpacked if it ends in .gz; errors of the system and of gzip become `UsageError`.

    `position` describes how far the reader came, for the message about a damaged file.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield cast(BinaryIO, file)
    except FileNotFoundError:
        raise _file_error(f"{path}: no such file") from None
    except IsADirectoryError:
        raise _file_error(f"{path} is a folder, not a text file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(
            f"{path}: the gzip file is damaged or cut short{position()} ({error}); fetch it again",
            code="E_DATA_DAMAGED",
        ) from None
    except OSError as error:  # no permission, a file where a folder should be, a failing disk
        raise _file_error(f"{path}: cannot read it: {error.strerror}") from None


def read_bytes(path: Path, advice: str = "split it into several files") -> bytes:
    """A whole file, unpacked."""
    with open_binary(path) as file:
        content = file.read(LONGEST_INPUT + 1)  # a small .gz may unpack to any size
    if len(content) > LONGEST_INPUT:
        raise UsageError(f"{path}: larger than {LONGEST_INPUT >> 20} MiB; {advice}", code="E_DATA_SIZE")
    return content


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, without "\\n" or "\\r\\n" and without a byte order mark at the start."""
    refuse_binary(path, suffix=format_suffix(path))
    for number, (_, raw, whole) in enumerate(_raw_lines(path, LONGEST_INPUT), start=1):
        if number == 1:
            refuse_binary(path, raw)
        if not whole:
            raise UsageError(
                f"{path}, line {number}: longer than {LONGEST_INPUT >> 20} MiB", code="E_DATA_SIZE"
            )
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = raw[error.start]
            raise UsageError(
                f"{path}, line {number}: byte {error.start + 1} (0x{byte:02x}) is not UTF-8; "
                "convert the file (for example with iconv) or remove the line",
                code="E_DATA_ENCODING",
            ) from None
        line = line.removesuffix("\n").removesuffix("\r")
        yield line.removeprefix("\ufeff") if number == 1 else line


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a plain text; a table or markup is refused by its type, never read as lines."""
    if kind := file_types()["markup"].get(format_suffix(path)):
        raise UsageError(
            f"{path}: {kind} is not read as lines of text; to read its lines anyway, give it through stdin",
            code="E_DATA_TYPE",
        )
    return lines(path)


def checked_lines(path: Path, report: DataReport, json: bool = False) -> Iterator[str | None]:
    """Every line of a corpus; None for an unusable one, so that line-aligned files stay aligned.

    Inside lines of `json` no character is removed, because annotations count characters.
    """
    name, before = str(path), stamp(path) if path.is_file() else None
    number, raw, whole = 0, b"", True
    for number, (offset, raw, whole) in enumerate(_raw_lines(path, LONGEST_LINE), start=1):
        if number == 1:
            refuse_binary(path, raw)
        if not whole:
            report.add("endless", name, number, offset)
            yield None
            continue
        try:
            line = raw.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            note = f"0x{raw[error.start]:02x} is not UTF-8"
            report.add("bad-utf8", name, number, offset + error.start, note)
            yield None
            continue
        yield line if _ODD.search(line) is None else _repair(line, name, number, offset, report, json)
    if number and whole and not raw.endswith(b"\n"):
        report.add("no-newline", name, number)
    if before is not None:
        _refuse_change(path, before)


def read_text(path: Path, report: DataReport) -> str:
    """A whole file, such as JSON, without a byte order mark."""
    before = None if path.is_fifo() else stamp(path)  # a pipe can be read once, which is enough here
    content = read_bytes(path, "write it as a .jsonl")
    refuse_binary(path, content)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}, byte {error.start}: 0x{content[error.start]:02x} is not UTF-8; convert the file",
            code="E_DATA_ENCODING",
        ) from None
    if text.startswith("\ufeff"):
        report.add("bom", str(path), 1, 0)
    if before is not None:
        _refuse_change(path, before)
    return text.removeprefix("\ufeff")


def _refuse_change(path: Path, before: tuple[int, int]) -> None:
    if stamp(path) != before:
        message = f"{path} changed while it was read; start again when it is complete"
        raise UsageError(message, code="E_DATA_CHANGED")


def _repair(line: str, name: str, number: int, offset: int, report: DataReport, json: bool) -> str | None:
    """A line with one of the characters of `_ODD`."""
    if "\0" in line:
        report.add("nul", name, number, offset + len(line[: line.index("\0")].encode()), "a NUL byte")
        return None
    if "\ufeff" in (line[:1] if json else line):
        report.add("bom", name, number, offset + len(line[: line.index("\ufeff")].encode()))
        line = line.removeprefix("\ufeff") if json else line.replace("\ufeff", "")
    if line.endswith("\r"):
        report.add("carriage-return", name, number)
        line = line[:-1]
    if separator := _SEPARATOR.search(line):
        byte = offset + len(line[: separator.start()].encode())
        report.add("odd-separator", name, number, byte, f"U+{ord(separator[0]):04X}")
    return line


def _raw_lines(path: Path, longest: int) -> Iterator[tuple[int, bytes, bool]]:
    """(offset, bytes, is_whole) of each line; only the beginning of a line longer than `longest`."""
    offset = number = 0
    with open_binary(path, lambda: f" after line {number}, byte {offset} of its text") as file:
        while raw := file.readline(longest):
            number += 1
            whole = raw.endswith(b"\n") or len(raw) < longest
            yield offset, raw, whole
            offset += len(raw) if whole else len(raw) + _skip_line(file)


def _skip_line(file: BinaryIO) -> int:
    """Read to the end of the line: the number of bytes."""
    length = 0
    while part := file.readline(LONGEST_LINE):
        length += len(part)
        if part.endswith(b"\n"):
            break
    return length
