"""The models that were pulled from the hub: a folder for each commit, whole or absent.

REGARD_CACHE/models/owner--name/COMMIT/ holds the files and `pulled.json`, which says what they were when they
came. Nothing else is remembered: of several commits the one pulled last is what the bare name means.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from regard.data.cache import MODELS, cache_folder
from regard.errors import RegardError, UsageError
from regard.storage.files import Json, read_json, sha256, told_plainly, write_json

RECORD = "pulled.json"
MAIN = "main"  # what a name without a revision asks for
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(f"{_PART}(?:/{_PART})?")
_COMMIT, _SHORT = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{7,40}")
_REVISION = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]{0,254}[A-Za-z0-9_])?")


@dataclass(frozen=True)
class Wanted:
    """A model of the hub as a person names it."""

    name: str
    revision: str | None = None  # a branch, a tag, a commit or its beginning

    def __str__(self) -> str:
        return self.name if self.revision is None else f"{self.name}@{self.revision}"


@dataclass(frozen=True)
class Pulled:
    """One commit of a model that is here."""

    name: str
    revision: str  # the commit
    asked: tuple[str, ...]  # by which names of revisions it was
    when: str
    files: dict[str, str]  # SHA-256 by name
    path: Path

    def answers(self, revision: str | None) -> bool:
        if revision is None or revision in self.asked:
            return True
        return bool(_SHORT.fullmatch(revision)) and self.revision.startswith(revision)


def parse(text: str) -> Wanted:
    """`owner/name` or `owner/name@revision`; anything else is an error that says so."""
    wanted = as_wanted(text)
    if wanted is None:
        raise UsageError(
            f'"{text}" is no name of a model of the hub: write owner/name or owner/name@revision'
        )
    return wanted


def as_wanted(text: str) -> Wanted | None:
    """None where a text cannot be the name of a model of the hub."""
    name, at, revision = text.partition("@")
    tricky = "--" in name or ".." in text or "//" in text or (at and not _REVISION.fullmatch(revision))
    return None if tricky or not _NAME.fullmatch(name) else Wanted(name, revision if at else None)


def is_commit(text: object) -> bool:
    return isinstance(text, str) and bool(_COMMIT.fullmatch(text))


def place() -> Path:
    return cache_folder() / MODELS


def home(name: str) -> Path:
    """No name of the hub holds "--", so that each has a folder of its own."""
    return place() / name.replace("/", "--")


def here() -> list[Pulled]:
    """All that is here, by name, of a name the one pulled last first."""
    roots = sorted(place().iterdir()) if place().is_dir() else []
    return [each for root in roots if root.is_dir() for each in commits(root)]


def commits(root: Path) -> list[Pulled]:
    found = (read(path) for path in root.iterdir() if is_commit(path.name)) if root.is_dir() else iter(())
    return sorted((each for each in found if each is not None), key=lambda each: each.when, reverse=True)


def read(path: Path) -> Pulled | None:
    """What a folder's record says; None where it has none, and so is no model."""
    if not (path / RECORD).is_file():
        return None
    content = read_json(path / RECORD)
    try:
        files = {str(name): str(value) for name, value in content["files"].items()}
        asked = tuple(map(str, content["asked"]))
        return Pulled(str(content["name"]), path.name, asked, str(content["when"]), files, path)
    except (KeyError, TypeError, AttributeError):
        raise UsageError(
            f"{path / RECORD}: not a record of what was pulled; delete the folder and pull the model again"
        ) from None


def find(wanted: Wanted) -> Pulled | None:
    """The commit that a name means here, without asking anyone."""
    return next((each for each in commits(home(wanted.name)) if each.answers(wanted.revision)), None)


def find_or_refuse(text: str) -> Pulled:
    found = find(parse(text))
    if found is None:
        raise UsageError(f'{text} is not here; "regard models pull {text}" brings it')
    return found


def record(
    path: Path,
    name: str,
    revision: str,
    asked: Iterable[str],
    files: dict[str, str],
    when: str | None = None,
) -> Pulled:
    """Write what was pulled, beside it; the folder may still get its name after that."""
    time = when or datetime.now(UTC).isoformat()
    pulled = Pulled(name, revision, tuple(sorted(set(asked))), time, files, path)
    content: Json = {key: value for key, value in asdict(pulled).items() if key != "path"}
    write_json(path / RECORD, content)
    return pulled


def mean_from_now_on(found: Pulled, asked: str) -> Pulled:
    """A commit that is here already was asked for by another name, or again after a newer one."""
    new = [] if found.answers(asked) else [asked]
    made = record(found.path, found.name, found.revision, [*found.asked, *new], found.files)
    take_names(found.path.parent, found.revision, new)
    return made


def take_names(root: Path, revision: str, names: Iterable[str]) -> None:
    """A branch that has moved on is the name of its new commit alone."""
    gone = set(names)
    for each in commits(root):
        if each.revision != revision and gone & set(each.asked):
            left = set(each.asked) - gone
            record(each.path, each.name, each.revision, left, each.files, each.when)


def faults(found: Pulled) -> Iterator[tuple[str, str]]:
    """What is not as it was when it came: the file, and what is wrong with it."""
    for name, known in sorted(found.files.items()):
        path = found.path / name
        if not path.is_file():
            yield name, "is missing"
        elif sha256(path) != known:
            yield name, "is not what it was: its checksum has changed"


def size(folder: Path) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def remove(found: Pulled) -> None:
    """Delete a commit: at once under its name, then the files."""
    aside = found.path.with_name(f".deleted-{found.revision}-{os.getpid()}")
    with told_plainly(found.path):
        found.path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    if aside.exists():
        raise RegardError(f"{aside}: not all of it could be deleted; delete the rest by hand")
    root = found.path.parent
    if not commits(root):  # with what an unfinished pull left
        shutil.rmtree(root, ignore_errors=True)
