"""SHA256SUMS of a model folder: what its files were when they were written, so that a changed bit is noticed.

The form is that of `sha256sum`, which checks it too; transformers passes over the file. It lists what is read
when the model is opened. A folder without it (of another program, or stripped by hand) opens unchecked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.config.reading import LARGE, read_bytes
from regard.errors import UsageError
from regard.storage.files import SUMS, remove_tree, sha256, sync_folder, told_plainly, write_text
from regard.storage.weights import WEIGHTS

IDENTITY = (
    "config.json",
    "generation_config.json",
    "run.toml",
    "tokenizer.json",
    "tokenizer_config.json",
    "target_tokenizer.json",
    "target_tokenizer_config.json",
)
_LINE = re.compile(r"([0-9a-f]{64})  ([a-z_]+\.[a-z]+)")
_OWN = "# of the lines above: "


def seal(folder: Path) -> None:
    """Write down what the files are now."""
    names = [name for name in (*IDENTITY, WEIGHTS) if (folder / name).is_file()]
    with told_plainly(folder, "read"):
        lines = "".join(f"{sha256(folder / name)}  {name}\n" for name in names)
    write_text(folder / SUMS, f"{lines}{_OWN}{_sum(lines)}\n")


def unseal(folder: Path) -> None:
    """Before a file is replaced: at no moment are there sums of other files, not even after a power cut."""
    if (folder / SUMS).is_file():
        with told_plainly(folder / SUMS):
            remove_tree(folder / SUMS)
            sync_folder(folder)


def faults(folder: Path, weights: bool = True) -> list[Path]:
    """The files that are not what they were, the sums themselves included; one that was deleted is none."""
    path = folder / SUMS
    if not path.is_file():
        return []
    sums = _read(path)
    if sums is None:
        return [path]
    wanted = {name: known for name, known in sums.items() if weights or name != WEIGHTS}
    with told_plainly(folder, "read"):
        return [folder / name for name, known in wanted.items() if _has_changed(folder / name, known)]


def _has_changed(path: Path, known: str) -> bool:
    if not path.is_file():
        return False
    endless = path.name != WEIGHTS and path.stat().st_size > LARGE  # which was never written, nor is it read
    return endless or sha256(path) != known


@contextmanager
def as_sealed(folder: Path, weights: bool = True) -> Iterator[None]:
    """What is read inside counts only if no file has changed; an error is put down to one that has."""
    try:
        yield
    except UsageError as error:
        # what is wrong with weights was said with their name, and links are not followed
        if not _has_links(folder) and (changed := faults(folder, weights=False)):
            raise UsageError(f"{error}; {_told(changed[0])}") from None
        raise
    if changed := faults(folder, weights):
        raise UsageError(_told(changed[0]))


def _has_links(folder: Path) -> bool:
    return any((folder / name).is_symlink() for name in (SUMS, *IDENTITY))


def _told(path: Path) -> str:
    if path.name == SUMS:
        return f"{path}: damaged; delete it if the other files are known to be good"
    return (
        f"{path}: not what it was when it was written ({SUMS} says so); put the original back, or delete "
        f"{SUMS} if the change is meant"
    )


def _read(path: Path) -> dict[str, str] | None:
    """None where the file is not as `seal` writes it."""
    try:
        text = read_bytes(path).decode("ascii")
    except (OSError, ValueError, UsageError):
        return None
    lines, own, end = text.rpartition(_OWN)
    found = [_LINE.fullmatch(line) for line in lines.split("\n")[:-1]]
    if not own or end != f"{_sum(lines)}\n" or not all(found):
        return None
    sums = {each[2]: each[1] for each in found if each}
    return sums if sums.keys() <= {*IDENTITY, WEIGHTS} else None


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
