"""Tokenised corpora on disk: .npy files that are mapped, and a manifest that names and hashes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.data.dataset import Column, Encoded, Ids, Part, Shard, narrowest
from regard.errors import RegardError

MANIFEST = "manifest.json"
SHARD = 1 << 20  # pairs in a shard
SIDES = ("source", "target")


@dataclass
class Writer:
    """Shards of one corpus: `add` portions, then `close` gives the manifest's entry."""

    folder: Path
    name: str  # the files' names begin with it
    longest: int  # pieces of a sentence at most
    waiting: list[tuple[Encoded, Encoded]] = field(default_factory=list)
    count: int = 0  # pairs that wait
    entries: list[dict[str, Any]] = field(default_factory=list)

    def add(self, source: Encoded, target: Encoded) -> None:
        self.waiting.append((source, target))
        self.count += len(source[1])
        if self.count >= SHARD:
            self.flush()

    def flush(self) -> None:
        names = {}
        for number, side in enumerate(SIDES):
            ids = np.concatenate([pair[number][0] for pair in self.waiting])
            lengths = np.concatenate([pair[number][1] for pair in self.waiting])
            for kind, array in (("ids", ids), ("lengths", lengths.astype(narrowest(self.longest + 1)))):
                name = f"{self.name}-{len(self.entries):05d}-{side}-{kind}.npy"
                names[f"{side}-{kind}"] = {"file": name, "sha256": write_array(self.folder / name, array)}
        self.entries.append({"pairs": self.count, "arrays": names})
        self.waiting, self.count = [], 0

    def close(self) -> list[dict[str, Any]]:
        if self.count:
            self.flush()
        return self.entries


def write_array(path: Path, array: npt.NDArray[Any]) -> str:
    """Write one .npy file: its SHA-256."""
    with path.open("wb") as file:
        np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    (folder / MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(folder, str(error)) from None
    if not isinstance(content, dict):
        raise damaged(folder, "the manifest is no object")
    return content


def open_shards(folder: Path, entries: Sequence[Mapping[str, Any]], weight: float) -> Part:
    """One corpus of a manifest, mapped. Only what `Writer` wrote is accepted."""
    try:
        shards = [
            Shard(
                *(Column(*(_map(folder, entry, side, kind) for kind in ("ids", "lengths"))) for side in SIDES)
            )
            for entry in entries
        ]
        if [len(shard) for shard in shards] != [entry["pairs"] for entry in entries]:
            raise ValueError("a count of the manifest is wrong")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(folder, str(error)) from None
    return Part(shards, weight)


def _map(folder: Path, entry: Mapping[str, Any], side: str, kind: str) -> Ids:
    name = Path(entry["arrays"][f"{side}-{kind}"]["file"]).name  # of this folder, whatever the manifest says
    if not (folder / name).stat().st_size:
        raise ValueError(f"{name} is empty")
    mapped: Ids = np.load(folder / name, mmap_mode="r", allow_pickle=False)
    if mapped.ndim != 1 or mapped.dtype.kind != "u":
        raise ValueError(f"{name} does not hold ids")
    return mapped


def fingerprint(parts: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """Of all ids and lengths, from the hashes in a manifest."""
    digest = hashlib.sha256()
    for entries in parts:
        digest.update(b"corpus")
        for entry in entries:
            for side in SIDES:
                for kind in ("ids", "lengths"):
                    digest.update(bytes.fromhex(entry["arrays"][f"{side}-{kind}"]["sha256"]))
    return digest.hexdigest()[:16]


def damaged(folder: Path, reason: str) -> RegardError:
    return RegardError(f"{folder}: prepared data is damaged ({reason}); delete that folder, it is made again")
