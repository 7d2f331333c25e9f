"""What a model folder says of itself, in config.json, README.md and the headers of its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from regard.config.load import load_run_settings
from regard.errors import UsageError
from regard.storage import builtin, models
from regard.storage.files import Json, read_json
from regard.storage.huggingface import model_config, task_of
from regard.storage.models import RECORD
from regard.storage.weights import shapes_in, weight_files

EMBED = "embed"  # what a body without a head is for
_FIELD = re.compile(r"([A-Za-z_]+):\s*(.*)")


@dataclass(frozen=True)
class Facts:
    """What a person wants to know before using a model; empty where its files do not say it."""

    name: str
    task: str
    family: str
    size: int  # bytes
    revision: str  # a commit of the hub, else ""
    licence: str
    path: Path
    why_not: str = ""  # the reason, where Regard cannot open it


def all_facts() -> list[Facts]:
    """Of every model that has a name here: those that were pulled, and those of the package."""
    pulled = [facts(each.name, each.path, each.revision) for each in models.here()]
    return [*pulled, *(facts(name, builtin.PLACE / name) for name in builtin.names())]


def facts_of(text: str) -> Facts:
    """Of the model that a command would open under this name."""
    path = builtin.find_model(Path(text))
    pulled = models.read(path)
    return facts(pulled.name, path, pulled.revision) if pulled else facts(text, path)


def facts(name: str, path: Path, revision: str = "") -> Facts:
    task = family = why_not = ""
    try:
        content = read_json(path / "config.json")
        family = str(content.get("model_type", ""))
        family = model_config(content, str(path / "config.json")).family
        task = task_name(path, content)
    except UsageError as error:
        why_not = str(error)
    return Facts(name, task, family, models.size(path), revision, licence(front_matter(path)), path, why_not)


def task_name(path: Path, content: Json) -> str:
    if (path / "run.toml").is_file():
        return load_run_settings(path / "run.toml").task.name
    task = task_of(content, str(path / "config.json"))
    return EMBED if task is None or (path / "modules.json").is_file() else task.name


def front_matter(path: Path) -> dict[str, list[str]]:
    """The fields at the head of README.md that are a word or a list of words; others are passed over."""
    try:
        lines = (path / "README.md").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    if not lines or lines[0].strip() != "---":
        return {}
    found: dict[str, list[str]] = {}
    last: list[str] = []
    for line in lines[1:]:
        if line.strip() == "---":
            return found
        if match := _FIELD.fullmatch(line):
            last = found.setdefault(match[1], [])
            inside = match[2].strip().removeprefix("[").removesuffix("]")
            last += [bare for word in inside.split(",") if (bare := word.strip(" \"'"))]
        elif line.lstrip().startswith("- ") and len(line) - len(line.lstrip()) <= 2:
            last.append(line.strip()[2:].strip("\"' "))
    return {}  # a head without an end is none


def licence(head: Mapping[str, list[str]]) -> str:
    return ", ".join([*head.get("license", []), *head.get("license_name", [])])


def parameters(path: Path) -> str:
    """How many numbers the weights are, by the headers of their files alone."""
    try:
        shapes = [shape for file in weight_files(path) for shape in shapes_in(file).values()]
    except UsageError:
        return ""
    return f"{sum(map(prod, shapes)):,}"


def card(found: Facts) -> dict[str, str]:
    """A folder's facts in words, for a table of two columns."""
    config = read_json(found.path / "config.json")
    head, pulled = front_matter(found.path), models.read(found.path)
    told = {
        "name": found.name,
        "task": found.task,
        "family": found.family,
        "parameters": parameters(found.path),
        "vocabulary": f"{config['vocab_size']:,}" if isinstance(config.get("vocab_size"), int) else "",
        "languages": ", ".join(head.get("language", [])),
        "licence": found.licence,
        "data": ", ".join(head.get("datasets", [])),
        "tags": ", ".join([*head.get("pipeline_tag", []), *head.get("tags", [])]),
        "revision": found.revision,
        "asked for as": ", ".join(pulled.asked) if pulled else "",
        "pulled": pulled.when[:19].replace("T", " ") + " UTC" if pulled else "",
        "path": str(found.path),
        "files": ", ".join(sorted(file_names(found.path))),
        "cannot be opened": found.why_not,
    }
    return {key: value for key, value in told.items() if value}


def file_names(path: Path) -> list[str]:
    return [
        each.relative_to(path).as_posix()
        for each in path.rglob("*")
        if each.is_file() and each.name != RECORD and not each.name.startswith(".")
    ]
