"""Models downloaded from the hub: one folder for each commit, complete or absent.

REGARD_CACHE/models/owner--name/COMMIT/ holds the files and `pulled.json`, with their checksums. A name
without a revision means the commit that was pulled last.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from regard.data.cache import MODELS, cache_folder
from regard.errors import RegardError, UsageError
from regard.storage.files import friendly_os_errors, read_json, sha256, write_json

RECORD = "pulled.json"
MAIN = "main"  # the revision of a name without one
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(f"{_PART}(?:/{_PART})?")
_COMMIT, _SHORT = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{7,40}")
_REVISION = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]{0,254}[A-Za-z0-9_])?")


@dataclass(frozen=True)
class HubName:
    """owner/name or owner/name@revision."""

    name: str
    revision: str | None = None  # a branch, a tag, a commit or its first digits

    def __str__(self) -> str:
        return self.name if self.revision is None else f"{self.name}@{self.revision}"


@dataclass(frozen=True)
class PulledModel:
    """One commit of a model on this machine."""

    name: str
    commit: str
    revisions: tuple[str, ...]  # branches and tags by which it was pulled
    time: str
    files: dict[str, str]  # SHA-256 by name
    path: Path

    def matches(self, revision: str | None) -> bool:
        if revision is None or revision in self.revisions:
            return True
        return bool(_SHORT.fullmatch(revision)) and self.commit.startswith(revision)

    def damage(self) -> Iterator[tuple[str, str]]:
        """Files that differ from what was downloaded: the name, and what is wrong."""
        for name, checksum in sorted(self.files.items()):
            path = self.path / name
            if not path.is_file():
                yield name, "missing"
            elif sha256(path) != checksum:
                yield name, "checksum mismatch"


def as_hub_name(text: str) -> HubName | None:
    """None if a text cannot be the name of a model on the hub."""
    name, at, revision = text.partition("@")
    invalid = "--" in name or ".." in text or "//" in text or (at and not _REVISION.fullmatch(revision))
    return None if invalid or not _NAME.fullmatch(name) else HubName(name, revision if at else None)


def parse_hub_name(text: str) -> HubName:
    name = as_hub_name(text)
    if name is None:
        raise UsageError(f'"{text}" is not a model name: write owner/name or owner/name@revision')
    return name


def model_root(name: str) -> Path:
    """The folder of all commits of a model. No name contains "--", so it is unique."""
    return cache_folder() / MODELS / name.replace("/", "--")


def pulled_models() -> list[PulledModel]:
    """All models, by name; the commits of a name by time, latest first."""
    place = cache_folder() / MODELS
    roots = sorted(place.iterdir()) if place.is_dir() else []
    return [model for root in roots if root.is_dir() for model in commits_in(root)]


def commits_in(root: Path) -> list[PulledModel]:
    folders = root.iterdir() if root.is_dir() else iter(())
    models = (read_record(path) for path in folders if _COMMIT.fullmatch(path.name))
    return sorted((model for model in models if model is not None), key=lambda each: each.time, reverse=True)


def read_record(path: Path) -> PulledModel | None:
    """None for a folder without a record."""
    if not (path / RECORD).is_file():
        return None
    content = read_json(path / RECORD)
    try:
        files = {str(name): str(value) for name, value in content["files"].items()}
        revisions = tuple(map(str, content["asked"]))
        return PulledModel(str(content["name"]), path.name, revisions, str(content["when"]), files, path)
    except (KeyError, TypeError, AttributeError):
        raise UsageError(f"{path / RECORD}: invalid; delete the folder and pull the model again") from None


def write_record(model: PulledModel) -> None:
    """Write pulled.json. Its keys are those of version 0.1."""
    content = {
        "name": model.name,
        "revision": model.commit,
        "asked": sorted(set(model.revisions)),
        "when": model.time,
        "files": model.files,
    }
    write_json(model.path / RECORD, content)


def now() -> str:
    return datetime.now(UTC).isoformat()


def find_pulled(name: HubName) -> PulledModel | None:
    """The commit that a name means on this machine."""
    return next((each for each in commits_in(model_root(name.name)) if each.matches(name.revision)), None)


def require_pulled(text: str) -> PulledModel:
    model = find_pulled(parse_hub_name(text))
    if model is None:
        raise UsageError(f'{text} is not on this machine; "regard models pull {text}" downloads it')
    return model


def release_revisions(root: Path, commit: str, revisions: Iterable[str]) -> None:
    """A branch or tag names one commit: remove it from the records of all others."""
    moved = set(revisions)
    for each in commits_in(root):
        if each.commit != commit and moved & set(each.revisions):
            left = tuple(name for name in each.revisions if name not in moved)
            write_record(PulledModel(each.name, each.commit, left, each.time, each.files, each.path))


def folder_size(folder: Path) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def remove_pulled(model: PulledModel) -> None:
    """Delete a commit: rename it first, so that it is never half there."""
    aside = model.path.with_name(f".deleted-{model.commit}-{os.getpid()}")
    with friendly_os_errors(model.path):
        model.path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    if aside.exists():
        raise RegardError(f"{aside}: could not be deleted completely; delete the rest by hand")
    if not commits_in(model.path.parent):  # with the part files of an interrupted download
        shutil.rmtree(model.path.parent, ignore_errors=True)
