"""TOML to `Config` and back; the file to start from. Errors name the file, the field and what is allowed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from regard.compat import VERSION, file_version, upgrade_config
from regard.config.input import INPUTS, Modifier
from regard.config.model import CLASSES, FIELDS
from regard.config.model_base import Section
from regard.config.reading import SETTINGS, shown
from regard.config.schema import DECODE_DEFAULTS, FAMILIES_OF, HEADS, METRICS, Config, Decode, Task, TaskName
from regard.errors import UsageError, near_miss
from regard.resources import read_data, task_texts

Tree = dict[str, Any]
TAGS: dict[str, type[BaseModel]] = {**CLASSES, **INPUTS}  # classes of [model] by family, of [input] by kind
CORPORA = ("train", "valid", "test")  # the fields of [data] that hold corpora
PRESETS: dict[str, Tree] = read_data("presets")
MAX_ERRORS = 8  # lines of a message
# `a.a.a...`: the parser's memory grows with the square of the parts; ours have two
_NAME = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*"""
_LONG_NAME = re.compile(rf"(?:^|[\[{{,])[ \t]*{_NAME}(?:\.[ \t]*{_NAME}){{16}}", re.MULTILINE)
NAMES = ("phrasebook", "data")  # before a colon, or alone: a built-in corpus, not a path


def load_config(path: Path, overrides: Iterable[str] = ()) -> Config:
    """Read a run's TOML file; `overrides` are `section.field=value` strings that win over the file."""
    tree = read_toml(path)
    for override in overrides:
        apply_override(tree, override)
    return resolve(tree, base=path.parent, where=str(path))


def read_toml(path: Path) -> Tree:
    try:
        if (size := path.stat().st_size) > SETTINGS:
            raise UsageError(
                f"{path}: {size:,} bytes are more than a config file ever has", code="E_CONFIG_FILE"
            )
        text = path.read_text(encoding="utf-8-sig")
        if match := _LONG_NAME.search(text):
            line = text.count("\n", 0, match.start()) + 1
            raise UsageError(f"{path}, line {line}: a name of too many parts", code="E_CONFIG_FILE")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise UsageError(
            f'{path}: no such file; "regard config init {path}" writes one to start from',
            code="E_CONFIG_FILE",
        ) from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; give the TOML file of a run", code="E_CONFIG_FILE") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"{path}, line {line}: not UTF-8 text; save the file as UTF-8"
        raise UsageError(message, code="E_CONFIG_FILE") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", code="E_CONFIG_FILE") from None
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: a number of 5,000 digits
        raise UsageError(f"{path}: not valid TOML: {error}", code="E_CONFIG_FILE") from None


def apply_override(tree: Tree, override: str) -> None:
    """Put `section.field=value` into the tree; the value is TOML, or a bare string."""
    name, equals, text = override.partition("=")
    parts = name.strip().split(".")
    if not equals or len(parts) != 2 or not all(parts):
        raise UsageError(
            f'--set {override}: write section.field=value, for example "--set train.lr=3e-4"',
            code="E_CONFIG_OVERRIDE",
        )
    value = parse_value(text)
    section = tree.setdefault(parts[0], {})
    if not isinstance(section, dict):
        raise UsageError(f"[{parts[0]}] must be a section of fields", code="E_CONFIG_SECTION")
    # a path on the command line is relative to the working folder, not to the file
    if parts[0] == "data" and parts[1] in CORPORA:
        value = absolute(value, Path())
    elif parts == ["init", "from"]:
        value = model_place(value, Path())
    elif parts == ["model", "family"] and isinstance(value, str) and value in FIELDS:
        # the fields of the file's family that this one lacks go with the family
        for name in frozenset().union(*FIELDS.values()) - FIELDS[value]:
            section.pop(name, None)
    section[parts[1]] = value


def parse_value(text: str) -> Any:
    """A TOML value, `0.1`, `true`, `["a", "b"]`; anything else is a string without quotes."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text.strip()
    return parsed["value"] if len(parsed) == 1 else text.strip()


def resolve(tree: Mapping[str, Any], base: Path | None = None, where: str = "config") -> Config:
    """Apply preset and defaults, check everything, and make paths absolute (relative to `base`)."""
    tree = {key: without_none(value) if isinstance(value, dict) else value for key, value in tree.items()}
    tree = upgrade_config(tree, FIELDS, where)
    if file_version(tree, where) > VERSION:
        raise UsageError(
            f"{where}: version = {tree['version']} is newer than this version of Regard reads ({VERSION})",
            code="E_CONFIG_VERSION",
        )
    fill_dependent_defaults(tree, where)
    if base is not None and isinstance(tree.get("data"), dict):
        data = tree["data"]
        places = (*CORPORA, "files")
        tree["data"] = {**data, **{key: absolute(data[key], base) for key in places if key in data}}
    if base is not None and isinstance(tree.get("init"), dict) and "from" in tree["init"]:
        tree["init"] = {**tree["init"], "from": model_place(tree["init"]["from"], base)}
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise config_error(error, where) from None


@dataclass(frozen=True)
class RunSettings:
    """What inference needs of the run.toml of a model folder."""

    version: int
    task: Task
    decode: Decode
    model: Tree  # not checked: config.json describes the model


def load_run_settings(path: Path) -> RunSettings:
    """Read the run.toml of a model folder for inference.

    Training settings need not be valid, and unknown fields are ignored, so that a model opens whatever later
    or earlier version of Regard wrote it.
    """
    tree = {
        name: each for name, each in read_toml(path).items() if isinstance(each, dict) or name == "version"
    }
    tree = upgrade_config(tree, FIELDS, str(path), written=True)
    try:
        task = Task.model_validate(existing_fields(tree.get("task", {}), Task))
        given = existing_fields(tree.get("decode", {}), Decode)
        decode = Decode.model_validate({**DECODE_DEFAULTS.get(task.name, {}), **searched(given)})
    except ValidationError as error:
        section = "decode" if error.title == "Decode" else "task"
        raise config_error(error, str(path), (section,)) from None
    return RunSettings(tree["version"], task, decode, tree.get("model", {}))


def existing_fields(fields: Mapping[str, Any], section: type[BaseModel]) -> Tree:
    return {name: value for name, value in fields.items() if name in section.model_fields}


def config_error(error: ValidationError, where: str, prefix: tuple[str, ...] = ()) -> UsageError:
    lines = explain(error, prefix)
    more = len(lines) - MAX_ERRORS
    texts = [text for text, _ in lines[:MAX_ERRORS]] + [f"and {more} more fields that are wrong"] * (more > 0)
    return UsageError("\n".join(f"{where}: {text}" for text in texts), code=lines[0][1])


def without_none(section: Tree) -> Tree:
    """Leave out fields that are None: TOML has no None, so the run would not read back equal."""
    return {name: value for name, value in section.items() if value is not None}


def usual_warmup(steps: int) -> int:
    """A tenth of the updates, at most the paper's 4,000."""
    return min(4000, max(1, steps // 10))


def fill_dependent_defaults(tree: Tree, where: str = "config") -> None:
    """Defaults that follow from another field; written out, so that resuming with other limits keeps them."""
    train, data = tree.setdefault("train", {}), tree.get("data")
    task = str(tree["task"].get("name", "translate")) if isinstance(tree.get("task"), dict) else "translate"
    if isinstance(train, dict):
        counted = "steps" not in train and "epochs" in train  # computed once the data is read
        if isinstance(steps := train.get("steps", 100_000), int) and not counted:
            train.setdefault("warmup", usual_warmup(steps))
        if task != "translate":
            train.setdefault("label_smoothing", 0.0)  # the paper smooths translations
        train.setdefault("metric", METRICS.get(task, ("bleu",))[0])
    kind = section["kind"] if isinstance(section := tree.get("input"), dict) and "kind" in section else "text"
    if kind != "text" and isinstance(tree.get("task"), dict):
        tree["task"] = {**tree["task"], "input": tree["task"].get("input", kind)}
    families = FAMILIES_OF.get(task, ("transformer",)) if kind == "text" or task != "classify" else ("vit",)
    if isinstance(model := tree.setdefault("model", {}), dict):
        tree["model"] = model = with_preset(model, where)
        if model.setdefault("family", families[0]) == "bert" and task in HEADS:
            model.setdefault("head", HEADS[task])
    if task in DECODE_DEFAULTS and isinstance(decode := tree.setdefault("decode", {}), dict):
        tree["decode"] = {**DECODE_DEFAULTS[task], **searched(decode)}
    if isinstance(data, dict) and str(data.get("train", "")).split(":")[0] == "phrasebook":
        data.setdefault("valid", "phrasebook")
        data.setdefault("test", "phrasebook")


def searched(decode: Tree) -> Tree:
    """`beam` without `sample` means search."""
    return {"sample": False, **decode} if "beam" in decode else decode


def with_preset(model: Tree, where: str) -> Tree:
    """`[model]` with the fields of its preset; those that another family lacks are left out."""
    name = model.get("preset")
    if name is None:
        return dict(model)
    if not isinstance(name, str) or name not in PRESETS:
        near = near_miss(str(name), PRESETS)
        message = f'{where}: model.preset = "{name}" is not one of {", ".join(PRESETS)}{near}'
        raise UsageError(message, code="E_CONFIG_VALUE")
    preset: Tree = {"family": "transformer", **PRESETS[name]}
    family = model.get("family", preset["family"])
    valid_fields = FIELDS.get(family, frozenset()) if isinstance(family, str) else ()
    return {**{field: value for field, value in preset.items() if field in valid_fields}, **model}


def absolute(corpora: Any, base: Path) -> Any:
    """Paths in a config are relative to the config file; names of built-in corpora stay as they are."""
    if isinstance(corpora, str) and corpora.split(":")[0] not in NAMES:
        try:
            path = base / Path(corpora).expanduser()
            path.resolve()  # raises for what cannot be a path
            return str(path.parent.resolve() / path.name)  # a link keeps its name, which tells the format
        except (ValueError, RuntimeError, OSError) as error:  # "~nobody/x", a NUL, a circle of links
            raise UsageError(f"{shown(corpora)} cannot be a path: {error}", code="E_CONFIG_PATH") from None
    if isinstance(corpora, list):
        return [absolute(corpus, base) for corpus in corpora]
    if isinstance(corpora, dict) and "corpus" in corpora:
        return {
            **corpora,
            **{key: absolute(corpora[key], base) for key in ("corpus", "files") if key in corpora},
        }
    return corpora


def model_place(model: Any, base: Path) -> Any:
    """The absolute path of a model folder; what is no folder may be the name of a pulled model."""
    place = absolute(model, base)
    if isinstance(model, str) and not Path(place).exists() and re.match(r"[\w-]", model):
        return model
    return place


def explain(error: ValidationError, prefix: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """One sentence and one code for each wrong field, without pydantic's vocabulary."""
    lines: dict[tuple[str, ...], tuple[str, str]] = {}
    for detail in error.errors():  # a field that may be of several types has an error for each of them
        parts = [*prefix, *(part for part in detail["loc"] if isinstance(part, str))]
        family = (
            parts.pop(1) if parts[:1] in (["model"], ["input"]) and parts[1:2] and parts[1] in TAGS else ""
        )
        if parts[:2] == ["data", "modifiers"] and len(parts) > 2:
            parts = ["data.modifiers", parts[2]]
        if tuple(parts[:2]) not in lines:
            lines[tuple(parts[:2])] = explain_one(detail, parts, family)
    return list(lines.values())


def explain_one(detail: ErrorDetails, parts: list[str], family: str) -> tuple[str, str]:
    field = ".".join(parts[:2])
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown_field(parts, family), "E_CONFIG_FIELD" if len(parts) > 1 else "E_CONFIG_SECTION"
    if len(parts) == 1 and kind in ("missing", "model_type", "model_attributes_type"):
        text = f"[{field}] is missing or not a section of fields: write [{field}] on a line of its own"
        return text, "E_CONFIG_SECTION"
    if kind == "missing" and detail["loc"][-1] == parts[-1]:
        return f'"{field}" is missing: {meaning(parts, family)}', "E_CONFIG_FIELD"
    if kind.startswith("union_tag"):
        tag, tags = ("model.family", CLASSES) if parts[0] == "model" else ("input.kind", INPUTS)
        value = value.get(tag.split(".")[1]) if isinstance(value, dict) else value
        near = near_miss(str(value), tags)
        return f"{tag} = {shown(value)} is not one of {', '.join(tags)}{near}", "E_CONFIG_VALUE"
    if kind == "value_error":
        return str(context["error"]), "E_CONFIG_VALUE"
    if parts[:1] == ["data"] and kind != "literal_error":
        return f"{field} = {shown(value)}: give {meaning(parts, family)}", "E_CONFIG_VALUE"
    if kind == "literal_error":
        near = near_miss(str(value), re.findall("'([^']*)'", context["expected"]))
        of = f" of the family {family}" if family else ""
        return f"{field} = {shown(value)} is not one of {context['expected']}{of}{near}", "E_CONFIG_VALUE"
    reason = detail["msg"].lower().replace("tuple", "list").replace(" after validation", "")
    return f"{field} = {shown(value)}: {reason} ({meaning(parts, family)})", "E_CONFIG_VALUE"


def unknown_field(parts: list[str], family: str) -> str:
    fields = list(section_fields(parts[0], family) if len(parts) > 1 else Config.model_fields)
    name = shown(".".join(parts[:2]))
    if others := [other for other, fields in FIELDS.items() if family and parts[1] in fields]:
        has = f"the family {family} does not have it, {' and '.join(others)} {'do' if others[1:] else 'does'}"
        return f"the field {name}: {has}; known: {', '.join(fields)}"
    what = "section" if len(parts) == 1 else "field"
    return f"unknown {what} {name}; known: {', '.join(fields)}{near_miss(parts[-1], fields)}"


def meaning(parts: list[str], family: str) -> str:
    if len(parts) < 2 or parts[1] not in section_fields(parts[0], family):
        return f"a section [{parts[0]}]" if parts[0] != "version" else "the format of the file"
    return section_fields(parts[0], family)[parts[1]].description or parts[1]


def section_fields(name: str, family: str = "") -> dict[str, FieldInfo]:
    """The fields of a section by name; those of [model] for one family."""
    if name == "data.modifiers":
        return Modifier.model_fields
    annotation = TAGS[family] if family else Config.model_fields[name].annotation
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return {}
    return annotation.model_fields


def to_tree(config: Config) -> Tree:
    return config.model_dump(mode="json", exclude_none=True)


def to_toml(config: Config) -> str:
    return tomli_w.dumps(to_tree(config))


def differing_field(one: Config, other: Config, ignore: Iterable[str] = ()) -> str | None:
    """The first `section.field` in which two configs differ, or None. The version is ignored."""
    left, right, ignored = one.model_dump(), other.model_dump(), set(ignore)
    for section, fields in left.items():
        if section == "version":
            continue
        fields, others = fields or {}, right[section] or {}
        for field in {**fields, **others}:
            if others.get(field) != fields.get(field) and f"{section}.{field}" not in ignored:
                return f"{section}.{field}"
    return None


TEMPLATE = """\
# A run of Regard. Train:   regard train {file} -o runs/my-model
# Then use the model:       {use}
# Paths are relative to this file. A line that begins with # shows a default.
"""


def template(name: str, task: TaskName = "translate") -> str:
    """The file that `regard config init` writes: a small run, and all other fields as comments."""
    texts = task_texts()[task]
    languages, preset = texts.get("languages", 'source = "en"\n'), texts["preset"]
    given = {
        "task": f'name = "{task}"\n{languages}',
        "data": texts["corpora"],
        "init": "",
        "text": "",
        "model": f'preset = "{preset}"     # every field below can be overridden\n',
        "train": f"steps = 2000\nlr = {texts.get('lr', '1e-3')}\nwarmup = 400\n",
        "decode": "",
    }
    if "input" in texts:
        given["input"] = texts["input"]
    tree = {section: tomllib.loads(fields) for section, fields in given.items()}
    config = resolve(tree)
    head = TEMPLATE.format(file=name, use=texts["command"].format(model="runs/my-model"))
    parts = (f"[{each}]\n{given[each]}{commented(config, each, tree[each])}" for each in given)
    return "\n".join([head, *parts])


def commented(config: Config, section: str, given: Mapping[str, object]) -> str:
    """`# field = value   # meaning` for each field of a section that is not given, with its default."""
    fields: Section = getattr(config, section)
    lines = []
    for field, info in type(fields).model_fields.items():
        name = info.alias or field
        if name in given or field in ("train", "valid", "test", "family"):
            continue
        value = getattr(fields, field)
        text = "(unset)" if value is None else json.dumps(value)
        choices = [choice for choice in get_args(info.annotation) if isinstance(choice, str)]
        among = f" ({', '.join(choices)})" if choices else ""
        lines.append(f"# {name} = {text}".ljust(32) + f"# {info.description}{among}\n")
    return "".join(lines)
