"""SHA-256 checksums of model folders and checkpoints: a changed bit is detected and the file is named.

A model folder has SHA256SUMS, in the format of `sha256sum`, which can check it too. It lists the files that
are read when the model is opened. A folder without it (of another program, or removed by hand) opens
unchecked. A checkpoint lists its files in manifest.json, with the entries of `file_entry`.

What is verified when:
- opening a model: every listed file. The hash of a large file is computed once and remembered until the file
  changes (`digest`), so that opening does not read all weights of a large model every time.
- resuming: all files of the checkpoint, always.
- `regard models pull` and `regard models verify`: all files, always.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.checksums import SUMS, format_sums, parse_sums, sha256, sha256_of
from regard.config.reading import LARGE, read_bytes
from regard.data.cache import cache_folder
from regard.errors import RegardError, UsageError
from regard.storage.files import (
    Json,
    friendly_os_errors,
    remove_tree,
    sync_folder,
    write_atomically,
    write_text,
)

WEIGHTS = "model.safetensors"
FOLDER_FILES = (  # of a model folder beside the weights: config, decoding options, tokenizers, readers
    "config.json",
    "generation_config.json",
    "run.toml",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "target_tokenizer.json",
    "target_tokenizer_config.json",
    "source.spm",
    "target.spm",
    "vocab.json",
    "target_vocab.json",
    "vocab.txt",
    "merges.txt",
    "preprocessor_config.json",
)
REMEMBERED_ABOVE = 1 << 24  # bytes; hashing a smaller file takes less time than looking it up is worth
CHANGED = "E_MODEL_CHECKSUM"
CLOCK_TICK = 2.0  # seconds within which a second change may leave the time of a file as it is


def digest(path: Path) -> str:
    """SHA-256 of a file. That of a large file is remembered in the user's cache, as long as its size, inode
    and times of change are the same."""
    if path.stat().st_size <= REMEMBERED_ABOVE:
        return sha256(path)
    state, note = _state(path), cache_folder() / f".sha256-{sha256_of(str(path.resolve()).encode())[:32]}"
    with suppress(OSError, ValueError):
        remembered, _, value = note.read_text(encoding="ascii").rpartition(" ")
        if remembered == state and re.fullmatch("[0-9a-f]{64}", value):
            return value
    value = sha256(path)
    is_settled = time.time() - path.stat().st_mtime > CLOCK_TICK
    if is_settled and _state(path) == state:
        with suppress(RegardError, OSError):  # a cache that cannot be written is no error
            write_atomically(note, f"{state} {value}".encode())
    return value


def _state(path: Path) -> str:
    at = path.stat()
    return f"{at.st_size} {at.st_mtime_ns} {at.st_ctime_ns} {at.st_ino}"


def file_entry(path: Path) -> Json:
    """The entry of a file in a manifest."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS of the files as they are now."""
    names = [name for name in (*FOLDER_FILES, WEIGHTS) if (folder / name).is_file()]
    with friendly_os_errors(folder, "read"):
        sums = {name: sha256(folder / name) for name in names}
    write_text(folder / SUMS, format_sums(sums))


def remove_checksums(folder: Path) -> None:
    """Remove SHA256SUMS before a file is replaced, so that not even a power cut leaves checksums of other
    files."""
    if (folder / SUMS).is_file():
        with friendly_os_errors(folder / SUMS):
            remove_tree(folder / SUMS)
            sync_folder(folder)


def changed_files(folder: Path, weights: bool = True) -> list[Path]:
    """The files that differ from their checksums, SHA256SUMS included; missing files are not listed."""
    path = folder / SUMS
    if not path.is_file():
        return []
    sums = read_sums(path)
    if sums is None:
        return [path]
    names = [name for name in sums if name in FOLDER_FILES or (weights and is_weights(name))]
    with friendly_os_errors(folder, "read"):
        return [folder / name for name in names if _has_changed(folder / name, sums[name])]


def is_weights(name: str) -> bool:
    """True for model.safetensors, and for its parts in the same folder."""
    return "/" not in name and name.endswith(".safetensors")


def _has_changed(path: Path, expected: str) -> bool:
    if not path.is_file():
        return False
    if is_weights(path.name):
        return digest(path) != expected
    return path.stat().st_size > LARGE or sha256(path) != expected  # none is that large


@contextmanager
def verified(folder: Path, weights: bool = True) -> Iterator[None]:
    """Verify checksums after the block; raise if a file has changed, also to explain an error from inside."""
    try:
        yield
    except UsageError as error:
        # an error about weights names them already; links are not followed
        if not _has_links(folder) and (changed := changed_files(folder, weights=False)):
            raise UsageError(f"{error}; {_message(changed[0])}", code=CHANGED) from None
        raise
    if changed := changed_files(folder, weights):
        raise UsageError(_message(changed[0]), code=CHANGED)


def _has_links(folder: Path) -> bool:
    return any((folder / name).is_symlink() for name in (SUMS, *FOLDER_FILES))


def _message(path: Path) -> str:
    if path.name == SUMS:
        return f"{path}: damaged; delete it if you know that the other files are good"
    return (
        f"{path}: changed since it was written (its SHA-256 is not that of {SUMS}); restore the original, "
        f"or delete {SUMS} if the change is intended"
    )


def read_sums(path: Path) -> dict[str, str] | None:
    """SHA-256 by name; None if the file is not as `format_sums` gives it."""
    try:
        return parse_sums(read_bytes(path).decode("ascii"), strict=True)
    except (OSError, ValueError, UsageError):
        return None
