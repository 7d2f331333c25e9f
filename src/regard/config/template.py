"""The file that `regard config init` writes: a useful small run, and what else may be set as comments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import get_args

from regard.config.presets import PRESETS
from regard.config.schema import Data, Decode, Model, Section, Text, Train

PRESET = "transformer-tiny"
HEAD = """\
# A run of Regard. Train it:   regard train {name} --out runs/my-model
# Then use it:                 echo "I see the small house." | regard translate -m runs/my-model
# Paths are relative to this file. A line that begins with # shows a default.

[task]
name = "translate"
source = "en"
target = "de"

[data]
train = "phrasebook"            # or "pairs.tsv", "pairs.jsonl", ["train.en", "train.de"], or a list of these
# valid = ["valid.en", "valid.de"]
# test = ["test.en", "test.de"]
{data}
[text]
{text}
[model]
preset = "{preset}"     # -tiny, -small, -base, -big; every number below can be overridden
{model}
[train]
steps = 2000
lr = 2e-3
warmup = 400
{train}
[decode]
{decode}"""


def template(name: str) -> str:
    return HEAD.format(
        name=name,
        preset=PRESET,
        data=commented(Data, skip=("train", "valid", "test")),
        text=commented(Text),
        model=commented(Model, skip=("preset", "family"), instead=PRESETS[PRESET]),
        train=commented(Train, skip=("steps", "lr", "warmup")),
        decode=commented(Decode),
    )


def commented(
    section: type[Section], skip: tuple[str, ...] = (), instead: Mapping[str, object] | None = None
) -> str:
    """`# field = default   # meaning` for each field of a section; a preset's numbers stand `instead`."""
    lines = []
    for name, field in section.model_fields.items():
        if name not in skip:
            default = (instead or {}).get(name, field.get_default(call_default_factory=True))
            value = "(unset)" if default is None else json.dumps(default)
            choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
            among = f" ({', '.join(choices)})" if choices else ""
            lines.append(f"# {name} = {value}".ljust(32) + f"# {field.description}{among}\n")
    return "".join(lines)
