"""Write the pages that follow from the code: every command, every config field, the sources beside equations.

python docs/make.py            # write them again
python docs/make.py --check    # only say which are not current; exit 1 if any is
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from regard.cli.main import make_app
from regard.config import PRESETS, schema
from regard.config.input import INPUTS, Modifier
from regard.config.model import CLASSES
from regard.tasks.spec import TASKS

DOCS = Path(__file__).parent
SOURCES = DOCS.parent / "src"
RECIPES = DOCS.parent / "recipes"
WRITTEN = "<!-- Written by docs/make.py from the code; change it there. -->\n\n"
MARK = re.compile(r"(<!-- source: ([\w.]+):([\w.]+) -->\n)```python[^\n]*\n.*?\n```\n", re.DOTALL)
SECTIONS = {  # section: what it is about
    "task": "task and languages",
    "data": "training, validation and test data",
    "text": "tokenizer",
    "input": "pictures, videos or sounds that the model reads instead of text",
    "model": "architecture",
    "train": "training",
    "decode": "decoding",
    "init": "a pretrained model to start from",
    "recipe": "published results of this file",
}


def pages() -> dict[Path, str]:
    """Every page that is made here, with the text that it must have."""
    made = {
        DOCS / "reference" / "commands.md": commands_page(),
        DOCS / "reference" / "config.md": config_page(),
        DOCS / "reference" / "tasks.md": tasks_page(),
        DOCS / "recipes.md": recipes_page(),
    }
    equations = DOCS / "equations.md"
    return made | {equations: with_sources(equations.read_text(encoding="utf-8"))}


# commands


def commands_page() -> str:
    root = typer.main.get_command(make_app())
    commands = list(walk(root, "regard"))
    listed = [f"- [`{path}`](#{anchor(path)}): {first_sentence(command)}" for path, command in commands]
    intro = (
        "# Every command\n\nResults go to stdout, messages to stderr. `-` is stdin. The exit code is 0 when "
        "done, 1 on failure, 2 on wrong use,\n130 when interrupted. `--debug` anywhere shows the traceback "
        "of an error. `regard --install-completion` teaches your shell\nto complete commands and options "
        "with the tab key.\n"
    )
    parts = [WRITTEN, intro, "\n", "\n".join(listed), "\n"]
    parts += [command_section(path, command) for path, command in commands]
    return "".join(parts)


def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The commands of a group and of the groups in it, in the order of the help."""
    for name, each in getattr(command, "commands", {}).items():
        if path == "regard serve" and name == "run":  # the default of `regard serve`
            yield path, each
        elif getattr(each, "commands", None):
            yield from walk(each, f"{path} {name}")
        elif not each.hidden:
            yield f"{path} {name}", each


def anchor(path: str) -> str:
    return path.replace(" ", "-")


def first_sentence(command: Any) -> str:
    return escaped(plain(inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")))


def plain(text: str) -> str:
    """Help without the marks of colours."""
    return re.sub(r"(?<!\\)\[/?(?:bold)?\]", "", text).replace("\\[", "[").replace("\f", "")


def command_section(path: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each
        for each in command.params
        if each.param_type_name == "option" and not each.hidden and "--help" not in each.opts
    ]
    usage = " ".join([path, *(shown_argument(each) for each in arguments), "[OPTIONS]"])
    parts = [f"\n## {path}\n\n```text\n{usage}\n```\n\n{described(command.help or '')}\n"]
    if arguments:
        rows = [f"| `{shown_argument(each)}` | {cell(plain(each.help or ''))} |" for each in arguments]
        parts.append("\n| argument | |\n|---|---|\n" + "\n".join(rows) + "\n")
    if options:
        rows = [option_row(each) for each in options]
        parts.append("\n| option | value | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "".join(parts)


def shown_argument(param: Any) -> str:
    name = (param.metavar or param.name or "").upper() + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def described(text: str) -> str:
    """A docstring as Markdown: indented lines become a block, that of shell where they are examples."""
    parts = []
    for block in inspect.cleandoc(text).split("\n\n"):
        lines = [plain(line) for line in block.split("\n")]
        if all(line.startswith("  ") for line in lines):
            commands = any("regard " in line for line in lines)
            kind = "sh no-run: an example of the help" if commands else "text"
            parts.append("\n".join([f"```{kind}", *(line[2:] for line in lines), "```"]))
        else:
            parts.append("\n".join(escaped(line) for line in lines))
    return "\n\n".join(parts)


def escaped(text: str) -> str:
    return text.replace("<", "&lt;")


def cell(text: str) -> str:
    return escaped(" ".join(text.split())).replace("|", "\\|")


def option_row(param: Any) -> str:
    names = ", ".join(f"`{name}`" for name in param.opts)
    value = "" if param.is_flag else value_of(param.type_descriptor.annotation)
    several = " (repeatable)" if param.multiple and not re.search("several|repeat", param.help or "") else ""
    default = param.default() if callable(param.default) else param.default
    unset = default in (None, "", [], ()) or param.is_flag or getattr(param, "show_default", True) is False
    shown_default = "required" if param.required else "" if unset else f"`{default}`"
    return f"| {names} | {value} | {shown_default} | {cell(plain(param.help or ''))}{several} |"


def value_of(annotation: Any) -> str:
    """What an option takes."""
    inner = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    names = {int: "whole number", float: "number", str: "text", Path: "path"}
    return names.get(inner) or ", ".join(f"`{choice}`" for choice in get_args(inner))


# tasks


def tasks_page() -> str:
    """The inputs and options of each task, by their names in Python, over HTTP and on the command line."""
    parts = [
        WRITTEN,
        "# Every task\n\nA task has one description, the typed method of its class. Its command, its route "
        "`POST /api/v1/TASK` and this page\nfollow from it: the same options, defaults and results. Fields "
        "of a request have the names of the Python arguments.\n",
    ]
    for name, spec in TASKS.items():
        methods = " or ".join(f"`{kind}.{spec.method}`" for kind in spec.methods)
        texts = ", ".join(
            f"`{each}`" + ("" if needed else " (optional)") for each, needed in spec.inputs.items()
        )
        parts.append(f"\n## {name}\n\n{spec.summary} {methods}, `regard {name}`, `POST /api/v1/{name}`.\n")
        parts.append(f"\nTexts: {texts}.\n\n| Python, HTTP | command | default | |\n|---|---|---|---|\n")
        for option in spec.options.values():
            flag = {"decode": "--set", "num_results": "-n, --num-results"}.get(
                option.name, f"--{option.name.replace('_', '-')}"
            )
            default = "" if option.default in (None, ()) else f"`{option.default}`"
            parts.append(f"| `{option.name}` | `{flag}` | {default} | {cell(option.description)} |\n")
        result = ", ".join(f"`{field.name}`" for field in dataclasses.fields(spec.result))
        parts.append(f"\nResult `{spec.result.__name__}`: {result}.\n")
    return "".join(parts)


# recipes


def opening(text: str) -> str:
    """Of the comment that a recipe begins with, up to its commands."""
    words: list[str] = []
    for line in text.split("\n"):
        if not line.startswith("# ") or line.startswith("#   "):
            break
        words.append(line.removeprefix("# "))
    return re.split(r"(?<=\.)(?<!al\.)\s", " ".join(words))[0]


def recipes_page() -> str:
    intro = (
        "# Recipes\n\nRuns for public corpora, in `recipes/`. Each begins with the commands that bring its "
        "data and train it (sets without a public\naddress need a copy of yours, `--from`), and ends with "
        "what to expect; the end of a run prints that beside what was\nreached.\n"
    )
    rows = []
    for path in sorted(RECIPES.glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        about = opening(text)
        promised = tomllib.loads(text)["recipe"]
        cells = (cell(about), cell(promised["expected"]), cell(promised["time"]))
        rows.append(f"| `{path.name}` | {' | '.join(cells)} |")
    table = "\n| recipe | what | expected | time |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    programs = [
        (path.name, (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0])
        for path in sorted(RECIPES.glob("*.py"))
    ]
    listed = "".join(f"| `python recipes/{name}` | {cell(about)} |\n" for name, about in programs)
    return (
        WRITTEN
        + intro
        + table
        + "\nPrograms that make several runs:\n\n| program | what |\n|---|---|\n"
        + listed
    )


# config fields


def config_page() -> str:
    parts = [
        WRITTEN,
        "# Every config field\n\nA run is one TOML file. `regard config init` writes one with every field "
        "and its default, `regard config show` prints the complete\nconfig of a run, `regard config check` "
        "checks it. Any field can be set on the command line:\n`--set train.lr=3e-4`. An unknown field is an "
        "error that names the nearest known one. `version` is the version\nof the format, which `run.toml` "
        "has.\n",
    ]
    for section, about in SECTIONS.items():
        parts.append(f"\n## [{section}]: {about}\n")
        if section == "model":
            about = "`family`", "by task", "the builder of the model", "families"
            parts.append(union_table(CLASSES, *about))
            continue
        if section == "input":
            parts.append(union_table(INPUTS, "`kind`", "required", "what is read", "kinds"))
            continue
        kind = schema.Config.model_fields[section].annotation
        rows = [field_row(kind, name) for name in kind.model_fields]  # type: ignore[union-attr]
        parts.append("\n| field | value | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "".join([*parts, weighted(), modifiers(), presets(), tasks()])


def union_table(classes: Mapping[str, Any], tag: str, default: str, meaning: str, several: str) -> str:
    """Each class has its own fields; those that are alike share a row."""
    rows: dict[str, list[str]] = {}
    names = list(dict.fromkeys(name for each in classes.values() for name in each.model_fields))
    for name in names:
        for kind, each in classes.items():
            if name in each.model_fields and f"`{name}`" != tag:
                rows.setdefault(field_row(each, name), []).append(kind)
    kinds = ", ".join(f'"{kind}"' for kind in classes)
    lines = [f"| {tag} | {kinds} | {default} | {meaning} | |"]
    for row, having in rows.items():
        lines.append(f"{row} {'all' if len(having) == len(classes) else ', '.join(having)} |")
    return (
        f"\nA field that the {tag.strip('`')} does not have is an error.\n"
        f"\n| field | value | default | meaning | {several} |\n|---|---|---|---|---|\n"
        + "\n".join(lines)
        + "\n"
    )


def field_row(kind: Any, name: str) -> str:
    field = kind.model_fields[name]
    value = "required" if field.is_required() else shown(field.get_default(call_default_factory=True))
    written = field.alias or name
    return f"| `{written}` | {cell(values(field))} | {value} | {cell(field.description or '')} |"


def shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            return f'`"{value}"`'
        case tuple():
            return f"`{list(value)}`"
    return f"`{value}`"


def values(field: Any) -> str:
    """What a field may hold, in words, with its limits."""
    limits = []
    for each in field.metadata:
        for sign, word in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            if (limit := getattr(each, sign, None)) is not None:
                limits.append(f"{word} {limit}")
    return " ".join([kind_of(field.annotation), ", ".join(limits)]).strip()


def kind_of(annotation: Any) -> str:
    names = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    if annotation in names:
        return names[annotation]
    if get_origin(annotation) is tuple:
        return "numbers" if Ellipsis in get_args(annotation) else "two numbers"
    options = [each for each in get_args(annotation) if each is not type(None)]
    if annotation == schema.Corpora or set(get_args(schema.Corpora)) <= set(options):
        return "corpora"
    literal = [each for each in options if not isinstance(each, type) and not get_args(each)]
    nested = [kind_of(each) for each in options if isinstance(each, type) or get_args(each)]
    return ", ".join([*nested, *(shown(each).strip("`") for each in literal)])


def weighted() -> str:
    rows = [field_row(schema.Weighted, name) for name in schema.Weighted.model_fields]
    return (
        f"\n## Corpora\n\n`data.train`, `valid` and `test` take {schema.CORPORA}.\nIn the last form:\n"
        "\n| field | value | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def modifiers() -> str:
    rows = [field_row(Modifier, name) for name in Modifier.model_fields]
    pictures, sounds = ", ".join(Modifier.IMAGE), ", ".join((*Modifier.AUDIO, *Modifier.FRAMES))
    texts = "".join(f"Texts to {task}: {', '.join(names)}.\n" for task, names in Modifier.TEXT.items())
    return (
        "\n## Modifiers\n\nEntries of `data.modifiers` change training samples at random, in their order: "
        '`{name = "shift", strength = 4}`.\n'
        f"Pictures and videos: {pictures}.\nSounds: {sounds}.\n{texts}"
        "What they do to texts: [training data](../data.md#modifiers-of-text).\n"
        "\n| field | value | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def presets() -> str:
    rows = []
    for name, preset in PRESETS.items():
        fields = ", ".join(f"{field} = {shown(value).strip('`')}" for field, value in preset.items())
        rows.append(f"| `{name}` | {fields} |")
    return (
        '\n## Presets\n\n`model.preset = "..."` sets these fields; other fields of `[model]` override them.\n'
        "\n| preset | |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


def tasks() -> str:
    rows = [
        f"| `{task}` | {', '.join(families)} | {', '.join(schema.METRICS[task])} |"
        for task, families in schema.FAMILIES_OF.items()
    ]
    return (
        "\n## Families and metrics of each task\n\nThe first of each is the default.\n"
        "\n| `task.name` | `model.family` | `train.metric` |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


# sources beside equations


def with_sources(page: str) -> str:
    """The page with the block behind each mark `<!-- source: module:name -->` as the code has it now."""
    return MARK.sub(lambda match: match[1] + source_block(match[2], match[3]), page)


def source_block(module: str, name: str) -> str:
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    code = textwrap.dedent(inspect.getsource(target))
    path = Path(inspect.getsourcefile(target) or "").resolve().relative_to(SOURCES.resolve())
    return f"```python no-run: from {path.as_posix()}\n{code.rstrip()}\n```\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--check", action="store_true")
    check = options.parse_args().check
    old = [path for path, text in pages().items() if not path.is_file() or path.read_text("utf-8") != text]
    for path in old:
        print(f"{path.relative_to(DOCS.parent)} {'is not what the code says' if check else 'written'}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages()[path], encoding="utf-8")
    return int(bool(check and old))


if __name__ == "__main__":
    sys.exit(main())
