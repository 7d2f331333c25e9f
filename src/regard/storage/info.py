"""Information about a model folder, from config.json, README.md and the headers of the weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from regard.config.load import load_run_settings
from regard.errors import UsageError
from regard.storage import builtin
from regard.storage.files import Json, read_json
from regard.storage.huggingface import model_config, task_of
from regard.storage.pulled import RECORD, folder_size, pulled_models, read_record
from regard.storage.weights import shapes_in, weight_files

EMBED = "embed"  # the task of an encoder without a head
_FIELD = re.compile(r"([A-Za-z_]+):\s*(.*)")


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
    return [*pulled, *(read_info(name, builtin.PLACE / name) for name in builtin.names())]


def model_info(name: str) -> ModelInfo:
    """The model that a command opens under this name."""
    path = builtin.find_model(Path(name))
    pulled = read_record(path)
    return read_info(pulled.name, path, pulled.commit) if pulled else read_info(name, path)


def read_info(name: str, path: Path, revision: str = "") -> ModelInfo:
    task = family = reason = ""
    try:
        content = read_json(path / "config.json")
        family = str(content.get("model_type", ""))
        family = model_config(content, str(path / "config.json")).family
        task = task_name(path, content)
    except UsageError as error:
        reason = str(error)
    return ModelInfo(
        name, task, family, folder_size(path), revision, licence(front_matter(path)), path, reason
    )


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


def licence(head: Mapping[str, list[str]]) -> str:
    return ", ".join([*head.get("license", []), *head.get("license_name", [])])


def parameters(path: Path) -> str:
    """Number of parameters, from the headers of the weight files."""
    try:
        shapes = [shape for file in weight_files(path) for shape in shapes_in(file).values()]
    except UsageError:
        return ""
    return f"{sum(map(prod, shapes)):,}"


def describe(model: ModelInfo) -> dict[str, str]:
    """All information about a model, for a table of two columns."""
    config = read_json(model.path / "config.json")
    head, pulled = front_matter(model.path), read_record(model.path)
    rows = {
        "name": model.name,
        "task": model.task,
        "family": model.family,
        "parameters": parameters(model.path),
        "vocabulary": f"{config['vocab_size']:,}" if isinstance(config.get("vocab_size"), int) else "",
        "languages": ", ".join(head.get("language", [])),
        "licence": model.licence,
        "data": ", ".join(head.get("datasets", [])),
        "tags": ", ".join([*head.get("pipeline_tag", []), *head.get("tags", [])]),
        "revision": model.revision,
        "branches": ", ".join(pulled.revisions) if pulled else "",
        "pulled": pulled.time[:19].replace("T", " ") + " UTC" if pulled else "",
        "path": str(model.path),
        "files": ", ".join(sorted(file_names(model.path))),
        "error": model.error,
    }
    return {key: value for key, value in rows.items() if value}


def file_names(path: Path) -> list[str]:
    return [
        each.relative_to(path).as_posix()
        for each in path.rglob("*")
        if each.is_file() and each.name != RECORD and not each.name.startswith(".")
    ]
