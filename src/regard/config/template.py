"""The file that `regard config init` writes: a small run, and all other fields as comments."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import get_args

from regard.config.load import resolve
from regard.config.model import Section
from regard.config.schema import Config, TaskName
from regard.resources import task_texts

HEAD = """\
# A run of Regard. Train:   regard train {file} -o runs/my-model
# Then use the model:       {use}
# Paths are relative to this file. A line that begins with # shows a default.
"""
SECTIONS = ("task", "data", "init", "text", "model", "train", "decode")
STEPS = 2000


def template(name: str, task: TaskName = "translate") -> str:
    texts = task_texts()[task]
    languages, preset = texts.get("languages", 'source = "en"\n'), texts["preset"]
    given = {
        "task": f'name = "{task}"\n{languages}',
        "data": texts["corpora"],
        "model": f'preset = "{preset}"     # every field below can be overridden\n',
        "train": f"steps = {STEPS}\nlr = {texts.get('lr', '1e-3')}\nwarmup = {STEPS // 5}\n",
    }
    tree = {section: tomllib.loads(fields) for section, fields in given.items()}
    config = resolve(tree)
    head = HEAD.format(file=name, use=texts["command"].format(model="runs/my-model"))
    parts = (
        f"[{each}]\n{given.get(each, '')}{commented(config, each, tree.get(each, {}))}" for each in SECTIONS
    )
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
