"""Lines of text files, checked: UTF-8, plain or .gz, and a line ends at "\\n" only (as `wc -l` counts)."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from regard.errors import UsageError

DATA_VARIABLE = "REGARD_DATA"


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


def lines(path: Path) -> Iterator[str]:
    """The lines of a file without their ends; a "\\r" before the end and a BOM at the start are dropped."""
    for number, raw in enumerate(_raw_lines(path), start=1):
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


def _raw_lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from file
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, not a text file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: the gzip file is damaged or cut short ({error}); fetch it again") from None
    except OSError as error:  # not permitted, a file where a folder should be, a disk that fails
        raise UsageError(f"{path}: cannot read it: {error.strerror}") from None
