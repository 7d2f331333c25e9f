"""The file that `regard config init` writes: a small run, and all other fields as comments."""

from __future__ import annotations

import json
import tomllib
from typing import get_args

from regard.config.load import resolve
from regard.config.model import Section
from regard.config.schema import Config, TaskName
from regard.resources import task_texts

HEAD = """\
# A run of Regard. Train:   regard train {file} -o runs/my-model
# Then use the model:       {use}
# Paths are relative to this file. A line that begins with # shows a default.

[task]
name = "{name}"
{languages}{task}
[data]
{corpora}{data}
[init]
{init}
[text]
{text}
[model]
preset = "{preset}"     # every field below can be overridden
{model}
[train]
{numbers}{train}
[decode]
{decode}"""


SECTIONS = ("task", "data", "init", "text", "model", "train", "decode")
STEPS = 2000


def template(name: str, task: TaskName = "translate") -> str:
    texts = task_texts()[task]
    languages, corpora = texts.get("languages", 'source = "en"\n'), texts["corpora"]
    numbers = f"steps = {STEPS}\nlr = {texts.get('lr', '1e-3')}\nwarmup = {STEPS // 5}\n"
    given = f'[task]\nname = "{task}"\n{languages}[data]\n{corpora}'
    given += f'[model]\npreset = "{texts["preset"]}"\n[train]\n{numbers}'
    config = resolve(tomllib.loads(given))
    return HEAD.format(
        file=name,
        use=texts["command"].format(model="runs/my-model"),
        name=task,
        languages=languages,
        corpora=corpora,
        preset=texts["preset"],
        numbers=numbers,
        **{section: commented(config, section, given) for section in SECTIONS},
    )


def commented(config: Config, section: str, given: str) -> str:
    """`# field = value   # meaning` for each field of a section that is not given, with its default."""
    fields: Section = getattr(config, section)
    written = tomllib.loads(given).get(section, {})
    lines = []
    for field, info in type(fields).model_fields.items():
        name = info.alias or field
        if name in written or field in ("train", "valid", "test", "family"):
            continue
        value = getattr(fields, field)
        text = "(unset)" if value is None else json.dumps(value)
        choices = [choice for choice in get_args(info.annotation) if isinstance(choice, str)]
        among = f" ({', '.join(choices)})" if choices else ""
        lines.append(f"# {name} = {text}".ljust(32) + f"# {info.description}{among}\n")
    return "".join(lines)
