"""Pictures and sounds with labels or texts: the source of a row is where its file is.

Read are a folder or a plain .tar with a folder for each class, a table with a column of files (in a folder or
a .tar, or as bytes in a .parquet), and the pair of IDX files of MNIST. A row names "photo.png",
"train.tar:cat/1.png", "train.parquet:17" or "images-idx3-ubyte.gz:17", which `media_content` opens.
"""

from __future__ import annotations

import gzip
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.config import Task
from regard.data.readers import PROMPT_SEPARATOR, InvalidRow, RawRow, string_field
from regard.data.readers.annotated import labelled_record
from regard.data.readers.tables import FILE, TABLES, Record, TableFormat, records
from regard.data.report import DataReport
from regard.errors import RegardError, UsageError, extra, located
from regard.inputs.media import member_names, open_media

MOST_BYTES = 1 << 31  # of the pictures of an IDX file, which is in memory
SUFFIXES = {
    "image": (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"),
    "video": (".gif", ".webp"),
    "audio": (".wav", ".flac", ".ogg", ".mp3"),
}


def read_media(
    path: Path, suffix: str, report: DataReport, table: TableFormat, task: Task, files: Path | None
) -> Iterator[RawRow]:
    """The rows of one corpus: where the file is, and its labels or text."""
    if task.name == "classify" and (path.is_dir() or suffix == ".tar"):
        yield from read_classes(path, task)
        return
    if suffix not in (".tsv", *TABLES):
        raise UsageError(
            f"{path}: {task.input} files need a folder or .tar with a folder for each class, or a table "
            "(.tsv, .csv, .jsonl, .parquet) with a column of files",
            code="E_DATA_TYPE",
        )
    files = files or files_beside(path)
    for number, record in records(path, suffix, report, table):
        try:
            name = record["file"]  # or the bytes themselves: {"bytes": ..., "path": ...}
            place = f"{path}:{number}" if isinstance(name, dict) else file_place(record, files)
            target = media_target(record, task)
        except InvalidRow as error:
            report.add(error.kind, str(path), number, note=error.note)
        else:
            yield number, place, target


def read_classes(path: Path, task: Task) -> Iterator[RawRow]:
    """`cat/1.png`: a file with the name of its folder as its label, in the order of the names."""
    names = sorted(
        (each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file())
        if path.is_dir()
        else member_names(path)
    )
    separator = "/" if path.is_dir() else ":"
    for number, name in enumerate(names, 1):
        if name.lower().endswith(SUFFIXES[task.input]) and "/" in name:
            yield number, f"{path}{separator}{name}", name.split("/")[-2]


def files_beside(table: Path) -> Path:
    """`train.tar` beside `train.tsv`, else the folder of the table."""
    tar = table.parent / f"{table.name.split('.')[0]}.tar"
    return tar if tar.is_file() else table.parent


def file_place(record: Record, files: Path) -> str:
    name = string_field(record, "file").strip()
    if not name:
        raise InvalidRow("empty")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise InvalidRow("malformed", "a file outside of data.files")
    return f"{files}{':' if files.suffix == '.tar' else '/'}{name}"


def media_target(record: Record, task: Task) -> str:
    """The labels of a row, or its text behind the question about it."""
    if task.name == "classify":
        return labelled_record({**record, "text": "file"}, task.multi_label)[1]
    text = string_field(record, "text") if "text" in record else ""
    question = string_field(record, "question") if "question" in record else ""
    return f"{question}{PROMPT_SEPARATOR}{text}" if question else text


def media_content(place: str) -> str | bytes | npt.NDArray[np.uint8]:
    """What a reader of frames opens: a path, the bytes in a .parquet, or the pixels of an IDX file."""
    container, _, number = place.rpartition(":")
    if container.endswith(".parquet") and number.isdecimal():
        return _parquet_bytes(container, int(number) - 1)
    if container.endswith(("-ubyte", "-ubyte.gz")) and number.isdecimal():
        picture: npt.NDArray[np.uint8] = _idx_pictures(container)[int(number)]
        return picture
    return place


def media_digest(place: str) -> str:
    """A hash of the content of a file; of one that cannot be opened, of its name."""
    try:
        content = media_content(place)
        data = open_media(content) if isinstance(content, str) else bytes(content)
    except RegardError:
        data = place.encode()
    return blake2b(data, digest_size=16).hexdigest()


def _parquet_bytes(path: str, row: int) -> bytes:
    """The bytes of one row; a whole row group is read and stays in memory, since rows are read in order."""
    starts = _parquet_groups(path)
    group = bisect_right(starts, row) - 1
    value = _parquet_group(path, group)[row - starts[group]]
    if not isinstance(value, dict) or not isinstance(value.get("bytes"), bytes):
        raise UsageError(f"{path}, row {row + 1}: no bytes of a file", code="E_DATA_DAMAGED")
    content: bytes = value["bytes"]
    return content


def _open_parquet(path: str) -> Any:
    with located(Path(path)), extra("hub"):
        return import_module("pyarrow.parquet").ParquetFile(path)


@lru_cache(maxsize=4)
def _parquet_groups(path: str) -> list[int]:
    """The first row of each row group."""
    facts = _open_parquet(path).metadata
    sizes = [facts.row_group(number).num_rows for number in range(facts.num_row_groups)]
    return [0, *accumulate(sizes[:-1])]


@lru_cache(maxsize=2)
def _parquet_group(path: str, group: int) -> list[Any]:
    table = _open_parquet(path).read_row_group(group)
    names = [name for name in table.column_names if name in FILE]
    values: list[Any] = table.column(names[0]).to_pylist()
    return values


@lru_cache(maxsize=4)
def _idx_pictures(path: str) -> npt.NDArray[np.uint8]:
    """[pictures, rows, columns, 1] of an IDX file."""
    with gzip.open(path) if path.endswith(".gz") else Path(path).open("rb") as file:
        head = file.read(16)
        count, rows, columns = (int.from_bytes(head[start : start + 4], "big") for start in (4, 8, 12))
        if head[:4] != b"\x00\x00\x08\x03" or not 0 < count * rows * columns <= MOST_BYTES:
            raise UsageError(f"{path}: not an IDX file of pictures", code="E_DATA_TYPE")
        pixels = file.read(count * rows * columns)
    if len(pixels) != count * rows * columns:
        raise UsageError(f"{path}: truncated", code="E_DATA_DAMAGED")
    return np.frombuffer(pixels, dtype=np.uint8).reshape(count, rows, columns, 1)


def read_idx(images: Path, labels: Path) -> Iterator[RawRow]:
    """The files of MNIST: labels are the bytes behind a head of 8."""
    with gzip.open(labels) if labels.suffix == ".gz" else labels.open("rb") as file:
        head, numbers = file.read(8), file.read()
    if head[:4] != b"\x00\x00\x08\x01" or int.from_bytes(head[4:], "big") != len(numbers):
        raise UsageError(f"{labels}: not an IDX file of labels", code="E_DATA_TYPE")
    return ((number + 1, f"{images}:{number}", str(label)) for number, label in enumerate(numbers))
