"""Tokenised corpora on disk: memory-mapped .npy files, and a manifest with their names and checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.checksums import sha256
from regard.data.dataset import CorpusShards, Encoded, Ids, Shard, ShardColumn, narrowest
from regard.errors import RegardError

MANIFEST = "manifest.json"
SHARD = 1 << 20  # rows of a shard
SIDES = ("source", "target")


@dataclass
class ShardWriter:
    """Write the shards of one corpus: `add` rows, then `close`, which returns the entries of the manifest."""

    folder: Path
    name: str  # prefix of the files' names
    longest: int  # maximum number of ids of a row
    buffer: list[tuple[Encoded, Encoded]] = field(default_factory=list)
    count: int = 0  # rows in the buffer
    entries: list[dict[str, Any]] = field(default_factory=list)

    def add(self, source: Encoded, target: Encoded) -> None:
        self.buffer.append((source, target))
        self.count += len(source[1])
        if self.count >= SHARD:
            self.flush()

    def flush(self) -> None:
        names = {}
        for number, side in enumerate(SIDES):
            ids = np.concatenate([sides[number][0] for sides in self.buffer])
            lengths = np.concatenate([sides[number][1] for sides in self.buffer])
            for kind, array in (("ids", ids), ("lengths", lengths.astype(narrowest(self.longest + 1)))):
                name = f"{self.name}-{len(self.entries):05d}-{side}-{kind}.npy"
                names[f"{side}-{kind}"] = {"file": name, "sha256": write_array(self.folder / name, array)}
        self.entries.append({"pairs": self.count, "arrays": names})
        self.buffer, self.count = [], 0

    def close(self) -> list[dict[str, Any]]:
        if self.count:
            self.flush()
        return self.entries


def write_array(path: Path, array: npt.NDArray[Any]) -> str:
    """Write one .npy file and return its SHA-256."""
    with path.open("wb") as file:
        np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return sha256(path)


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    (folder / MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(folder, str(error)) from None
    if not isinstance(content, dict):
        raise damaged(folder, "the manifest is not a JSON object")
    return content


def open_shards(folder: Path, entries: Sequence[Mapping[str, Any]], weight: float) -> CorpusShards:
    """Map one corpus of a manifest. Only files of `ShardWriter` are accepted."""
    try:
        shards = [Shard(*(_open_column(folder, entry, side) for side in SIDES)) for entry in entries]
        if [len(shard) for shard in shards] != [entry["pairs"] for entry in entries]:
            raise ValueError("a count of the manifest is wrong")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(folder, str(error)) from None
    return CorpusShards(shards, weight)


def _open_column(folder: Path, entry: Mapping[str, Any], side: str) -> ShardColumn:
    return ShardColumn(*(_map(folder, entry, side, kind) for kind in ("ids", "lengths")))


def _map(folder: Path, entry: Mapping[str, Any], side: str, kind: str) -> Ids:
    name = Path(entry["arrays"][f"{side}-{kind}"]["file"]).name  # never a path outside the folder
    if not (folder / name).stat().st_size:
        raise ValueError(f"{name} is empty")
    mapped: Ids = np.load(folder / name, mmap_mode="r", allow_pickle=False)
    if mapped.ndim != 1 or mapped.dtype.kind != "u":
        raise ValueError(f"{name} is not an array of ids")
    return mapped


def fingerprint(parts: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """A hash of all ids and lengths, from the checksums of a manifest."""
    digest = hashlib.sha256()
    for entries in parts:
        digest.update(b"corpus")
        for entry in entries:
            for side in SIDES:
                for kind in ("ids", "lengths"):
                    digest.update(bytes.fromhex(entry["arrays"][f"{side}-{kind}"]["sha256"]))
    return digest.hexdigest()[:16]


def damaged(folder: Path, reason: str) -> RegardError:
    message = f"{folder}: prepared data is damaged ({reason}); delete that folder to create it again"
    return RegardError(message, code="E_DATA_CACHE")
