"""Names and formats of earlier versions. Everything that Regard has written opens for ever.

`version` in run.toml, and `regard.version` in config.json, is the version of the format:

1   no `version` is written; `[model]` has the fields of all families, whatever its own is
2   `version` is written; `[model]` has the fields of its family alone
3   training: each row draws its own random numbers (which tokens are masked), not one after the other;
    the first token of the next part of a long document is predicted

A run keeps its version when it is resumed, with the field names of today. What
changes results (seeds, start tokens) depends on the version: equal bits are promised within a version.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from regard.errors import UsageError

VERSION = 3
Value = TypeVar("Value")

# {old name: name of today}, in some tables by section, family, task or option
_NAMES = tomllib.loads((Path(__file__).parent / "builtin" / "old_names.toml").read_text(encoding="utf-8"))
CONFIG_FIELDS: dict[str, dict[str, str]] = _NAMES["config_fields"]
FAMILY_FIELDS: dict[str, dict[str, str]] = _NAMES["family_fields"]
WEIGHT_NAMES: dict[str, str] = _NAMES["weight_names"]
MODULES: dict[str, str] = _NAMES["modules"]
PYTHON_NAMES: dict[str, str] = _NAMES["python_names"]
OPTIONS: dict[str, dict[str, str]] = _NAMES["options"]
RESULT_FIELDS: dict[str, dict[str, str]] = _NAMES["result_fields"]
OPTION_VALUES: dict[str, dict[str, str]] = _NAMES["option_values"]
ATTRIBUTES: dict[str, str] = _NAMES["attributes"]

# what version 1 always wrote into [model]; a person who describes one model does not write all of these
ALWAYS_WRITTEN_1 = {"family", "width", "heads", "norm", "positions", "cell", "score", "reverse_source"}
# command -> {old argument: arguments of today}, beside those of OPTIONS
ARGUMENTS: dict[str, dict[str, tuple[str, ...]]] = {"classify": {"--all": ("--num-results", "1000")}}


class OldNameWarning(FutureWarning):
    """A file or program of the user has an old name."""


def file_version(content: Mapping[str, Any], where: str) -> int:
    """The `version` of a file's content; 1 if it has none."""
    version = content.get("version", 1)
    if type(version) is not int or version < 1:
        raise UsageError(f"{where}: version = {version!r} is not a version number", code="E_CONFIG_VERSION")
    return version


def upgrade_config(
    tree: Mapping[str, Any], families: Mapping[str, Collection[str]], where: str, written: bool = False
) -> dict[str, Any]:
    """The settings of a run under the names of today. `families` are the fields that each family has.

    A file that a run wrote (`written`; else recognised by its content) is upgraded silently, and loses the
    fields of other families if its version is 1. A file of the user keeps them, to be refused by name.
    """
    tree = dict(tree)
    if "version" not in tree:
        tree["version"] = 1 if written or _is_version_1(tree.get("model")) else VERSION
    is_old = file_version(tree, where) == 1
    for section, names in CONFIG_FIELDS.items():
        if isinstance(fields := tree.get(section), dict):
            tree[section] = _rename(fields, names, section, where, silent=is_old or written)
    if isinstance(model := tree.get("model"), dict):
        tree["model"] = _upgrade_model(model, families, is_old)
    return tree


def upgrade_model(fields: Mapping[str, Any], families: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """The model of a config.json of version 1 under the names of today."""
    named = _rename(fields, CONFIG_FIELDS["model"], "model", "config.json", silent=True)
    return _upgrade_model(named, families, is_old=True)


def _upgrade_model(
    fields: Mapping[str, Any], families: Mapping[str, Collection[str]], is_old: bool
) -> dict[str, Any]:
    family = str(fields.get("family", "transformer"))
    renames, valid = FAMILY_FIELDS.get(family, {}), families.get(family)
    model = {name: value for name, value in fields.items() if name not in renames}
    model |= {renames[name]: value for name, value in fields.items() if name in renames and value is not None}
    if is_old and valid is not None:
        other_families = set().union(*families.values()) - set(valid)
        model = {name: value for name, value in model.items() if name not in other_families}
    return model


def _rename(
    fields: Mapping[str, Any], names: Mapping[str, str], section: str, where: str, silent: bool
) -> dict[str, Any]:
    for old, new in names.items():
        if old in fields and new in fields:
            raise UsageError(
                f"{where}: {section}.{old} is the old name of {section}.{new}: give one of them",
                code="E_CONFIG_FIELD",
            )
        if old in fields and not silent:
            message = f"{section}.{old} is an old name; write {section}.{new}"
            warnings.warn_explicit(message, OldNameWarning, filename=where, lineno=0)
    return {names.get(name, name): value for name, value in fields.items()}


def _is_version_1(model: object) -> bool:
    return isinstance(model, dict) and model.keys() >= ALWAYS_WRITTEN_1


def current_weight_name(name: str) -> str:
    for pattern, replacement in WEIGHT_NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name


def current_weight_names(tensors: Mapping[str, Value]) -> dict[str, Value]:
    """Tensors, or ranges of layers, under the weight names of today."""
    return {current_weight_name(name): value for name, value in tensors.items()}


def current_options(task: str, options: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """The options of a task under their names and values of today; an old name is warned of."""
    names = OPTIONS.get(task, {})
    current: dict[str, Any] = {}
    for name, value in options.items():
        new = names.get(name, name)
        if new != name:
            if new in options:
                raise UsageError(
                    f"{where}{name} is the old name of {new}: give one of them", code="E_OLD_NAME"
                )
            warnings.warn(f"{where}{name} is an old name of {new}", OldNameWarning, stacklevel=4)
        values = OPTION_VALUES.get(new, {})
        current[new] = values.get(value, value) if isinstance(value, str) else value
    return current


def current_arguments(arguments: Sequence[str], warn: Callable[[str], None]) -> list[str]:
    """The arguments of a command with the options of today; `warn` gets a line about each old one."""
    if not arguments:
        return []
    command, *rest = arguments
    flags = {old: flag(new) for old, new in OPTIONS.get(command, {}).items() if old != "top_k"}
    names = {flag(old): (new,) for old, new in flags.items()} | ARGUMENTS.get(command, {})
    values = {flag(option): each for option, each in OPTION_VALUES.items()}
    current, option = [command], ""  # the option whose value comes next
    for at, argument in enumerate(rest):
        if argument == "--":
            return [*current, *rest[at:]]
        name, equals, value = argument.partition("=")
        if name in names:
            warn(f"{name} is an old name of {' '.join(names[name])}")
            name, *others = names[name]
            argument = f"{name}={values.get(name, {}).get(value, value)}" if equals else name
            current += [argument, *others]
            option = "" if equals or others else name
            continue
        if name in values and equals:
            argument = f"{name}={values[name].get(value, value)}"
        current.append(values.get(option, {}).get(argument, argument))
        option = argument
    return current


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def old_names(module: str) -> Callable[[str], object]:
    """A module's `__getattr__` for the names of PYTHON_NAMES that it had in earlier versions."""

    def get(name: str) -> object:
        if (current := PYTHON_NAMES.get(f"{module}.{name}")) is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is an old name of {current}", OldNameWarning, stacklevel=2)
        home, _, attribute = current.rpartition(".")
        return getattr(importlib.import_module(home), attribute)

    return get


def lazy_names(package: str, modules: Mapping[str, Collection[str]]) -> Callable[[str], object]:
    """A package's `__getattr__` that imports the names of its modules, and old names, on first use."""
    home = {name: f"{package}.{module}" for module, names in modules.items() for name in names}
    old = old_names(package)

    def get(name: str) -> object:
        if name not in home:
            return old(name)
        value = getattr(importlib.import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get


class OldAttributes:
    """A class whose objects also have the attributes of ATTRIBUTES; type checkers do not see them."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            old = f"{type(self).__name__}.{name}"
            if old not in ATTRIBUTES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warnings.warn(f"{old} is an old name of {ATTRIBUTES[old]}", OldNameWarning, stacklevel=2)
            return getattr(self, ATTRIBUTES[old])


class OldModule(ModuleType):
    """A module under its old name. `regard.train` is a function today, and stays one once the old module of
    that name was imported."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*arguments, **options)


class OldModuleFinder:
    """Imports the modules of MODULES, which no other finder knows, as the modules of today."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        old = next((old for old in MODULES if name == old or name.startswith(f"{old}.")), None)
        if old is None:
            return None
        from importlib.util import find_spec  # slow to import

        current = find_spec(MODULES[old] + name[len(old) :])
        if current is None:
            return None
        is_package = current.submodule_search_locations is not None
        return ModuleSpec(name, self, loader_state=current.name, is_package=is_package)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return OldModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        current = importlib.import_module(module.__spec__.loader_state)  # type: ignore[union-attr]
        warnings.warn(f"{module.__name__} is an old name of {current.__name__}", OldNameWarning, stacklevel=2)
        module.__dict__["__getattr__"] = lambda name: getattr(current, name)
