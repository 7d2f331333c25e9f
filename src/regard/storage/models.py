"""Models by name: a folder of the user, a model pulled from the hub, or a built-in model.

A pulled model has a folder for each commit, complete or absent: REGARD_CACHE/models/owner--name/COMMIT/ with
its files, SHA256SUMS, and `pulled.json`, the revisions that it was pulled by. A name without a revision means
the commit that was pulled last.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import prod
from pathlib import Path

from regard.checksums import SUMS, damaged_files
from regard.config.load import load_run_settings
from regard.data.cache import MODELS, cache_folder
from regard.errors import UsageError, near_miss
from regard.resources import PACKAGE
from regard.storage.checksums import read_sums
from regard.storage.files import Json, friendly_os_errors, read_json, remove_whole, write_json
from regard.storage.huggingface import model_config, read_config, task_of
from regard.storage.weights import open_safetensors, weight_files, weight_shapes

PLACE = PACKAGE / "builtin" / "models"
RECORD = "pulled.json"
MAIN = "main"  # the revision of a name without one
EMBED = "embed"  # the task of an encoder without a head
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(f"{_PART}(?:/{_PART})?")
_COMMIT, _SHORT = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{7,40}")
_REVISION = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]{0,254}[A-Za-z0-9_])?")
_FIELD = re.compile(r"([A-Za-z_]+):\s*(.*)")


def find_model(path: Path) -> Path:
    """A folder, else a pulled model, else a built-in model of that name; nothing is downloaded."""
    if path.is_dir():
        return path
    if path.exists():
        raise UsageError(f"{path} is not a folder", code="E_MODEL_FOLDER")
    name = path.as_posix()
    hub_name = as_hub_name(name)
    if hub_name is not None and (pulled := find_pulled(hub_name)) is not None:
        return pulled.path
    if name in names():
        return PLACE / path
    near = near_miss(name, [*names(), *(each.name for each in pulled_models())])
    others = f"; built-in models: {', '.join(names())}" if names() and len(path.parts) == 1 else ""
    hub = "" if hub_name is None else f'; "regard models pull {name}" downloads it if it is on the hub'
    raise UsageError(f"{path}: no such folder{hub}{near or others}", code="E_MODEL_NOT_FOUND")


# Built-in models


def names() -> list[str]:
    """The built-in models, for lessons and first tries."""
    return sorted(folder.name for folder in PLACE.iterdir() if folder.is_dir()) if PLACE.is_dir() else []


def translators() -> dict[tuple[str, str], str]:
    """The built-in translators by source and target: the name ends with both, as in x-en-de."""
    endings = {name: tuple(name.split("-")[-2:]) for name in names()}
    pairs = {(pair[0], pair[1]): name for name, pair in endings.items() if list(map(len, pair)) == [2, 2]}
    return dict(sorted(pairs.items(), key=lambda item: item[0][0] != "en"))


def of_texts(task: str) -> str | None:
    """The built-in model of a task that reads text; an encoder that says how its states are pooled embeds."""
    for name in names():
        if (PLACE / name / "run.toml").is_file():
            settings = load_run_settings(PLACE / name / "run.toml").task
            embeds = task == EMBED and (PLACE / name / "modules.json").is_file()
            if settings.input == "text" and (settings.name == task or embeds):
                return name
    return None


def prefixes() -> dict[str, str]:
    """What a text for the built-in T5 begins with, and the model: transformers' `task_specific_params`."""
    name = of_texts("translate")
    tasks = read_json(PLACE / name / "config.json").get("task_specific_params", {}) if name else {}
    return {str(task["prefix"]): str(name) for task in tasks.values()}


# Pulled models


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
        return damaged_files(self.path, self.files)


def as_hub_name(text: str) -> HubName | None:
    """None if a text cannot be the name of a model on the hub."""
    name, at, revision = text.partition("@")
    invalid = "--" in name or ".." in text or "//" in text or (at and not _REVISION.fullmatch(revision))
    return None if invalid or not _NAME.fullmatch(name) else HubName(name, revision if at else None)


def parse_hub_name(text: str) -> HubName:
    name = as_hub_name(text)
    if name is None:
        message = f'"{text}" is not a model name: write owner/name or owner/name@revision'
        raise UsageError(message, code="E_HUB_NAME")
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
    """None for a folder without a record. Version 0.1 wrote the checksums into it."""
    if not (path / RECORD).is_file():
        return None
    content = read_json(path / RECORD)
    try:
        if (path / SUMS).is_file():
            content["files"] = read_sums(path / SUMS)
        files = {str(name): str(value) for name, value in content["files"].items()}
        revisions = tuple(map(str, content["asked"]))
        return PulledModel(str(content["name"]), path.name, revisions, str(content["when"]), files, path)
    except (KeyError, TypeError, AttributeError, ValueError):
        message = f"{path / RECORD}: invalid; delete the folder and pull the model again"
        raise UsageError(message, code="E_HUB_RECORD") from None


def write_record(model: PulledModel) -> None:
    """Write pulled.json. Its keys are those of version 0.1."""
    content = {
        "name": model.name,
        "revision": model.commit,
        "asked": sorted(set(model.revisions)),
        "when": model.time,
    }
    old = {} if (model.path / SUMS).is_file() else {"files": model.files}
    write_json(model.path / RECORD, content | old)


def now() -> str:
    return datetime.now(UTC).isoformat()


def find_pulled(name: HubName) -> PulledModel | None:
    """The commit that a name means on this machine."""
    return next((each for each in commits_in(model_root(name.name)) if each.matches(name.revision)), None)


def require_pulled(text: str) -> PulledModel:
    model = find_pulled(parse_hub_name(text))
    if model is None:
        if text in names():
            raise UsageError(
                f"{text} is a built-in model, which belongs to the package", code="E_MODEL_BUILTIN"
            )
        message = f'{text} is not on this machine; "regard models pull {text}" downloads it'
        raise UsageError(message, code="E_MODEL_NOT_FOUND")
    return model


def release_revisions(root: Path, commit: str, revisions: Iterable[str]) -> None:
    """A branch or tag names one commit: remove it from the records of all others."""
    moved = set(revisions)
    for each in commits_in(root):
        if each.commit != commit and moved & set(each.revisions):
            write_record(replace(each, revisions=tuple(set(each.revisions) - moved)))


def remove_pulled(model: PulledModel) -> None:
    """Delete a commit."""
    with friendly_os_errors(model.path):
        remove_whole(model.path)
    if not commits_in(model.path.parent):  # with the part files of an interrupted download
        shutil.rmtree(model.path.parent, ignore_errors=True)


# What is known about a model: from config.json, README.md and the headers of the weights


@dataclass(frozen=True)
class ModelInfo:
    """What a user wants to know about a model; "" where its files do not contain it."""

    name: str
    task: str
    family: str
    size: int  # bytes
    revision: str  # a commit of the hub, else ""
    licence: str
    path: Path
    error: str = ""  # why Regard cannot open it


def all_models() -> list[ModelInfo]:
    """Every model with a name: pulled models and built-in models."""
    pulled = [read_info(each.name, each.path, each.commit) for each in pulled_models()]
    return [*pulled, *(read_info(name, PLACE / name) for name in names())]


def model_info(name: str) -> ModelInfo:
    """The model that a command opens under this name."""
    path = find_model(Path(name))
    pulled = read_record(path)
    return read_info(pulled.name, path, pulled.commit) if pulled else read_info(name, path)


def read_info(name: str, path: Path, revision: str = "") -> ModelInfo:
    task = family = reason = ""
    try:
        content = read_config(path / "config.json")
        family = str(content.get("model_type", ""))
        family = model_config(content, str(path / "config.json")).family
        task = task_name(path, content)
    except UsageError as error:
        reason = str(error)
    head = front_matter(path)
    licence = ", ".join([*head.get("license", []), *head.get("license_name", [])])
    return ModelInfo(name, task, family, folder_size(path), revision, licence, path, reason)


def task_name(path: Path, content: Json) -> str:
    if (path / "run.toml").is_file():
        return load_run_settings(path / "run.toml").task.name
    task = task_of(content, str(path / "config.json"))
    return EMBED if task is None or (path / "modules.json").is_file() else task.name


def front_matter(path: Path) -> dict[str, list[str]]:
    """The fields of README.md's YAML head that are a word or a list of words; others are ignored."""
    try:
        lines = (path / "README.md").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    if not lines or lines[0].strip() != "---":
        return {}
    fields: dict[str, list[str]] = {}
    last: list[str] = []
    for line in lines[1:]:
        if line.strip() == "---":
            return fields
        if match := _FIELD.fullmatch(line):
            last = fields.setdefault(match[1], [])
            inside = match[2].strip().removeprefix("[").removesuffix("]")
            last += [item for word in inside.split(",") if (item := word.strip(" \"'"))]
        elif line.lstrip().startswith("- ") and len(line) - len(line.lstrip()) <= 2:
            last.append(line.strip()[2:].strip("\"' "))
    return {}  # the head has no end


def folder_size(folder: Path) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def count_parameters(path: Path) -> int:
    """From the headers of the weight files; 0 if they cannot be read."""
    try:
        return sum(map(prod, weight_shapes(path)))
    except UsageError:
        return 0


def stored_precision(path: Path) -> str:
    """The types of the weights in their files, as safetensors names them."""
    types: set[str] = set()
    try:
        for part in weight_files(path):
            with open_safetensors(part) as file:
                types |= {str(file.get_slice(name).get_dtype()) for name in file.keys()}  # noqa: SIM118
    except UsageError:
        return ""
    return ", ".join(sorted(types))


def memory(parameters: int) -> str:
    """Of the weights alone, at inference: four bytes a number, or one."""
    return f"{parameters * 4 / 1e6:,.0f} MB in float32, {parameters / 1e6:,.0f} MB in int8"


def context_of(model: ModelInfo, config: Json) -> str:
    """The tokens that a model reads at once."""
    if model.error:
        return ""
    length = model_config(config, str(model.path / "config.json")).max_length
    return f"{length:,} tokens"


def describe_model(model: ModelInfo) -> dict[str, str]:
    """All information about a model, for a table of two columns."""
    config = read_config(model.path / "config.json")
    count = count_parameters(model.path)
    head, pulled = front_matter(model.path), read_record(model.path)
    files = (path.relative_to(model.path) for path in model.path.rglob("*") if path.is_file())
    rows = {
        "name": model.name,
        "task": model.task,
        "family": model.family,
        "parameters": f"{count:,}" if count else "",
        "context": context_of(model, config),
        "precision": stored_precision(model.path),
        "memory": memory(count) if count else "",
        "vocabulary": f"{size:,}" if isinstance(size := config.get("vocab_size"), int) else "",
        "languages": ", ".join(head.get("language", [])),
        "licence": model.licence,
        "data": ", ".join(head.get("datasets", [])),
        "tags": ", ".join([*head.get("pipeline_tag", []), *head.get("tags", [])]),
        "revision": model.revision,
        "branches": ", ".join(pulled.revisions) if pulled else "",
        "pulled": pulled.time[:19].replace("T", " ") + " UTC" if pulled else "",
        "path": str(model.path),
        "files": ", ".join(sorted(file.as_posix() for file in files if file.name[0] != ".")),
        "error": model.error,
    }
    return {key: value for key, value in rows.items() if value}
