"""TOML to `Config` and back, with messages that name the field and say what is allowed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from regard.config.presets import DECODE_DEFAULTS, FAMILY_DEFAULTS, PRESETS
from regard.config.reading import SETTINGS, shown
from regard.config.schema import FAMILIES_OF, HEADS, METRICS, Config
from regard.errors import UsageError, near_miss

Tree = dict[str, Any]
CORPORA = ("train", "valid", "test")  # the fields of [data] that hold corpora
MOST_LINES = 8  # of what is wrong with a file
# `a.a.a...`: the parser's memory grows with the square of the parts, and ours have two
_NAME = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*"""
_LONG_NAME = re.compile(rf"(?:^|[\[{{,])[ \t]*{_NAME}(?:\.[ \t]*{_NAME}){{16}}", re.MULTILINE)
NAMES = ("phrasebook", "data")  # before a colon, or alone: the name of a corpus, not a path


def load_config(path: Path, overrides: Iterable[str] = ()) -> Config:
    """Read a run's TOML file; `overrides` are `section.field=value` strings that win over the file."""
    tree = read_toml(path)
    for override in overrides:
        apply_override(tree, override)
    return resolve(tree, base=path.parent, where=str(path))


def read_toml(path: Path) -> Tree:
    try:
        if (size := path.stat().st_size) > SETTINGS:
            raise UsageError(f"{path}: {size:,} bytes are more than the settings of a run ever have")
        text = path.read_text(encoding="utf-8-sig")
        if found := _LONG_NAME.search(text):
            line = text.count("\n", 0, found.start()) + 1
            raise UsageError(f"{path}, line {line}: a name of too many parts")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise UsageError(
            f'{path}: no such file; "regard config init {path}" writes one to start from'
        ) from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; give the TOML file of a run") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: a number of 5,000 digits
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def apply_override(tree: Tree, override: str) -> None:
    """Put `section.field=value` into the tree; the value is TOML, or a bare string."""
    name, equals, text = override.partition("=")
    parts = name.strip().split(".")
    if not equals or len(parts) != 2 or not all(parts):
        raise UsageError(f'--set {override}: write section.field=value, for example "--set train.lr=3e-4"')
    value = parse_value(text)
    section = tree.setdefault(parts[0], {})
    if not isinstance(section, dict):
        raise UsageError(f"[{parts[0]}] must be a section of fields")
    # a path on the command line is where the user stands, not where the file lies
    if parts[0] == "data" and parts[1] in CORPORA:
        value = absolute(value, Path())
    elif parts == ["init", "from"]:
        value = model_place(value, Path())
    section[parts[1]] = value


def parse_value(text: str) -> Any:
    """A value as TOML writes it, `0.1`, `true`, `["a", "b"]`; anything else is a string without quotes."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text.strip()
    return parsed["value"] if len(parsed) == 1 else text.strip()


def resolve(tree: Mapping[str, Any], base: Path | None = None, where: str = "config") -> Config:
    """Fill in the preset, check everything, and make paths independent of the working folder."""
    tree = {key: given(value) if isinstance(value, dict) else value for key, value in tree.items()}
    if isinstance(tree.get("model"), dict):
        tree["model"] = with_preset(tree["model"], where)
    fill_dependent_defaults(tree)
    if base is not None and isinstance(tree.get("data"), dict):
        data = tree["data"]
        tree["data"] = {**data, **{key: absolute(data[key], base) for key in CORPORA if key in data}}
    if base is not None and isinstance(tree.get("init"), dict) and "from" in tree["init"]:
        tree["init"] = {**tree["init"], "from": model_place(tree["init"]["from"], base)}
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        lines = explain(error)
        more = (
            [f"and {len(lines) - MOST_LINES} more fields that are wrong"] if len(lines) > MOST_LINES else []
        )
        raise UsageError("\n".join(f"{where}: {line}" for line in lines[:MOST_LINES] + more)) from None


def given(section: Tree) -> Tree:
    """Without fields that are None: TOML cannot write it, so a run read back would not be the same."""
    return {name: value for name, value in section.items() if value is not None}


def usual_warmup(steps: int) -> int:
    """A tenth of the updates, the paper's 4,000 at most."""
    return min(4000, max(1, steps // 10))


def fill_dependent_defaults(tree: Tree) -> None:
    """Defaults that follow from another field; written out, so that resuming with other limits keeps them."""
    train, data = tree.setdefault("train", {}), tree.get("data")
    task = str(tree["task"].get("name", "translate")) if isinstance(tree.get("task"), dict) else "translate"
    if isinstance(train, dict):
        counted = "steps" not in train and "epochs" in train  # once the data is known
        if isinstance(steps := train.get("steps", 100_000), int) and not counted:
            train.setdefault("warmup", usual_warmup(steps))
        if task != "translate":
            train.setdefault("label_smoothing", 0.0)  # the paper's, for words of a translation
        train.setdefault("metric", METRICS.get(task, ("bleu",))[0])
    if isinstance(model := tree.setdefault("model", {}), dict):
        family = str(model.setdefault("family", FAMILIES_OF.get(task, ("transformer",))[0]))
        tree["model"] = {**FAMILY_DEFAULTS.get(family, {}), **model}
        if family == "bert" and task in HEADS:
            tree["model"].setdefault("head", HEADS[task])
    if task in DECODE_DEFAULTS and isinstance(decode := tree.setdefault("decode", {}), dict):
        tree["decode"] = {**DECODE_DEFAULTS[task], **searched(decode)}
    if isinstance(data, dict) and str(data.get("train", "")).split(":")[0] == "phrasebook":
        data.setdefault("valid", "phrasebook")
        data.setdefault("test", "phrasebook")


def searched(decode: Tree) -> Tree:
    """Who names a beam wants a search, unless told otherwise."""
    return {"sample": False, **decode} if "beam" in decode else decode


def with_preset(model: Tree, where: str) -> Tree:
    name = model.get("preset")
    if name is None:
        return model
    if not isinstance(name, str) or name not in PRESETS:
        near = near_miss(str(name), PRESETS)
        raise UsageError(f'{where}: model.preset = "{name}" is not one of {", ".join(PRESETS)}{near}')
    return {**PRESETS[name], **model}


def absolute(corpora: Any, base: Path) -> Any:
    """Paths in a config are relative to the config file; the names of corpora stay as they are."""
    if isinstance(corpora, str) and corpora.split(":")[0] not in NAMES:
        try:
            path = base / Path(corpora).expanduser()
            return str(path.parent.resolve() / path.name)  # a link keeps its name, which tells the format
        except (ValueError, RuntimeError, OSError) as error:  # "~nobody/x", a NUL, a circle of links
            raise UsageError(f"{shown(corpora)} cannot be a path: {error}") from None
    if isinstance(corpora, list):
        return [absolute(corpus, base) for corpus in corpora]
    if isinstance(corpora, dict) and "corpus" in corpora:
        return {**corpora, "corpus": absolute(corpora["corpus"], base)}
    return corpora


def model_place(model: Any, base: Path) -> Any:
    """The folder of a model, as `absolute` makes it; what is none may be the name of a pulled model."""
    place = absolute(model, base)
    if isinstance(model, str) and not Path(place).exists() and re.match(r"[\w-]", model):
        return model
    return place


def explain(error: ValidationError) -> list[str]:
    """One sentence for each field that is wrong, without pydantic's vocabulary."""
    lines: dict[tuple[int | str, ...], str] = {}
    for detail in error.errors():  # a field that may be of several kinds has an error for each of them
        if detail["loc"][:2] not in lines:
            lines[detail["loc"][:2]] = explain_one(detail)
    return list(lines.values())


def explain_one(detail: ErrorDetails) -> str:
    parts = [str(part) for part in detail["loc"] if isinstance(part, str)]
    field = ".".join(parts[:2])
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known, what = siblings(parts), "section" if len(parts) == 1 else "field"
        return f"unknown {what} {shown(field)}; known: {', '.join(known)}{near_miss(parts[-1], known)}"
    if len(parts) == 1 and kind in ("missing", "model_type"):
        return f"[{field}] is missing or not a section of fields: write [{field}] on a line of its own"
    if kind == "missing" and detail["loc"][-1] == parts[-1]:
        return f'"{field}" is missing: {meaning(parts)}'
    if kind == "value_error":
        return str(context["error"])
    if parts[:1] == ["data"]:
        return f"{field} = {shown(value)}: give {meaning(parts)}"
    if kind == "literal_error":
        near = near_miss(str(value), choices(parts))
        return f"{field} = {shown(value)} is not one of {context['expected']}{near}"
    reason = detail["msg"].lower().replace("tuple", "list").replace(" after validation", "")
    return f"{field} = {shown(value)}: {reason} ({meaning(parts)})"


def siblings(parts: list[str]) -> list[str]:
    """The fields that are allowed beside this one."""
    model: type[BaseModel] = Config
    for part in parts[:-1]:
        model = _section(part)
    return list(model.model_fields)


def meaning(parts: list[str]) -> str:
    if len(parts) < 2 or parts[1] not in _section(parts[0]).model_fields:
        return f"a section [{parts[0]}]"
    return _section(parts[0]).model_fields[parts[1]].description or parts[1]


def choices(parts: list[str]) -> list[str]:
    annotation = _section(parts[0]).model_fields[parts[1]].annotation
    return [str(choice) for choice in get_args(annotation)]


def _section(name: str) -> type[BaseModel]:
    annotation = Config.model_fields[name].annotation
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        raise TypeError(f"{name} is no section")
    return annotation


def to_tree(config: Config) -> Tree:
    return config.model_dump(mode="json", exclude_none=True)


def to_toml(config: Config) -> str:
    return tomli_w.dumps(to_tree(config))


def differing_field(one: Config, other: Config, ignore: Iterable[str] = ()) -> str | None:
    """The first `section.field` in which two configs differ, or None."""
    left, right, ignored = one.model_dump(), other.model_dump(), set(ignore)
    for section, fields in left.items():
        for field, value in fields.items():
            if right[section][field] != value and f"{section}.{field}" not in ignored:
                return f"{section}.{field}"
    return None
