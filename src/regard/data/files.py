"""Lines of text files, checked: UTF-8, plain or .gz, and a line ends at "\\n" only (as `wc -l` counts)."""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from regard.data.findings import Findings
from regard.errors import UsageError

DATA_VARIABLE = "REGARD_DATA"
LONGEST_LINE = 1 << 20  # bytes; what is longer is no line of a corpus
LONGEST_INPUT = 1 << 28  # bytes of a line that a person asks about
WIDE = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins
# What `str.splitlines` would cut at and `wc -l` does not count, and what is no text at all.
_ODD = re.compile("[\0\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029\ufeff]")
_SEPARATOR = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def find(name: str) -> Path:
    """The path of a corpus file; `data:multi30k/train.en.gz` lies under the folder REGARD_DATA names."""
    if not name.startswith("data:"):
        return Path(name)
    root = os.environ.get(DATA_VARIABLE)
    if not root:
        raise UsageError(
            f"{name}: set the environment variable {DATA_VARIABLE} to the folder of your corpora"
        )
    return Path(root) / name.removeprefix("data:")


def stamp(path: Path) -> tuple[int, int]:
    """Size and time of a file that can be read more than once."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot read it: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path} is a folder, not a text file")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is a pipe or a device; training reads a file twice: save it to one first")
    return found.st_size, found.st_mtime_ns


def lines(path: Path) -> Iterator[str]:
    """The lines of a file without their ends; a "\\r" before the end and a BOM at the start are dropped."""
    for number, (_, raw, whole) in enumerate(_raw_lines(path, LONGEST_INPUT), start=1):
        if not whole:
            raise UsageError(f"{path}, line {number}: longer than {LONGEST_INPUT >> 20} MiB")
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = raw[error.start]
            raise UsageError(
                f"{path}, line {number}: byte {error.start + 1} (0x{byte:02x}) is not UTF-8; "
                "convert the file (for example with iconv) or remove the line"
            ) from None
        line = line.removesuffix("\n").removesuffix("\r")
        yield line.removeprefix("\ufeff") if number == 1 else line


def checked_lines(path: Path, findings: Findings, json: bool = False) -> Iterator[str | None]:
    """Every line of a corpus, None where it cannot be used: as many as there are, so that no pair shifts.

    Lines of `json` keep what stands inside them: places in a text are counted with it.
    """
    name, before = str(path), stamp(path) if path.is_file() else None
    number, raw, whole = 0, b"", True
    for number, (offset, raw, whole) in enumerate(_raw_lines(path, LONGEST_LINE), start=1):
        if number == 1:
            _refuse_wide(path, raw)
        if not whole:
            findings.add("endless", name, number, offset)
            yield None
            continue
        try:
            line = raw.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            wrong = f"0x{raw[error.start]:02x} is not UTF-8"
            findings.add("bad-utf8", name, number, offset + error.start, wrong)
            yield None
            continue
        yield line if _ODD.search(line) is None else _mend(line, name, number, offset, findings, json)
    if number and whole and not raw.endswith(b"\n"):
        findings.add("no-newline", name, number)
    if before is not None and stamp(path) != before:
        raise UsageError(f"{path} changed while it was read; start again when it is complete")


def whole_text(path: Path, findings: Findings) -> str:
    """All of a file that is no sequence of lines, such as JSON; a byte order mark before it is removed."""
    before, pieces, size = stamp(path), [], 0
    for _, raw, whole in _raw_lines(path, LONGEST_INPUT):
        pieces.append(raw)
        size += len(raw)
        if not whole or size > LONGEST_INPUT:
            raise UsageError(f"{path}: larger than {LONGEST_INPUT >> 20} MiB; write it as a .jsonl")
    content = b"".join(pieces)
    _refuse_wide(path, content)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}, byte {error.start}: 0x{content[error.start]:02x} is not UTF-8; convert the file"
        ) from None
    if text.startswith("\ufeff"):
        findings.add("bom", str(path), 1, 0)
    if stamp(path) != before:
        raise UsageError(f"{path} changed while it was read; start again when it is complete")
    return text.removeprefix("\ufeff")


def _refuse_wide(path: Path, beginning: bytes) -> None:
    if beginning.startswith(WIDE):
        raise UsageError(f"{path}: UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 {path.name} > new")


def _mend(line: str, name: str, number: int, offset: int, findings: Findings, json: bool) -> str | None:
    """A line with signs that text does not need."""
    if "\0" in line:
        findings.add("nul", name, number, offset + len(line[: line.index("\0")].encode()), "a NUL byte")
        return None
    if "\ufeff" in (line[:1] if json else line):
        findings.add("bom", name, number, offset + len(line[: line.index("\ufeff")].encode()))
        line = line.removeprefix("\ufeff") if json else line.replace("\ufeff", "")
    if line.endswith("\r"):
        findings.add("carriage-return", name, number)
        line = line[:-1]
    if odd := _SEPARATOR.search(line):
        byte = offset + len(line[: odd.start()].encode())
        findings.add("odd-separator", name, number, byte, f"U+{ord(odd[0]):04X}")
    return line


def _raw_lines(path: Path, longest: int) -> Iterator[tuple[int, bytes, bool]]:
    """(offset, bytes, whether whole) of each line; of a longer one than `longest` only the beginning."""
    offset = number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while raw := file.readline(longest):
                number += 1
                whole = raw.endswith(b"\n") or len(raw) < longest
                yield offset, raw, whole
                offset += len(raw) if whole else len(raw) + _skip_line(file)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, not a text file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(
            f"{path}: the gzip file is damaged or cut short after line {number}, byte {offset} of its text "
            f"({error}); fetch it again"
        ) from None
    except OSError as error:  # not permitted, a file where a folder should be, a disk that fails
        raise UsageError(f"{path}: cannot read it: {error.strerror}") from None


class Readable(Protocol):
    def readline(self, size: int, /) -> bytes: ...


def _skip_line(file: Readable) -> int:
    """Read to the end of the line without keeping it: its length."""
    length = 0
    while piece := file.readline(LONGEST_LINE):
        length += len(piece)
        if piece.endswith(b"\n"):
            break
    return length
