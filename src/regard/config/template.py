"""The file that `regard config init` writes: a useful small run, and what else may be set as comments."""

from __future__ import annotations

import json

from regard.config.schema import Decode, Model, Section, Text, Train

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

[text]
{text}
[model]
preset = "transformer-tiny"     # -tiny, -small, -base, -big; every number below can be overridden
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
        text=commented(Text),
        model=commented(Model, skip=("preset", "family")),
        train=commented(Train, skip=("steps", "lr", "warmup")),
        decode=commented(Decode),
    )


def commented(section: type[Section], skip: tuple[str, ...] = ()) -> str:
    """`# field = default   # meaning` for each field of a section."""
    lines = []
    for name, field in section.model_fields.items():
        if name not in skip:
            default = field.get_default(call_default_factory=True)
            value = "(unset)" if default is None else json.dumps(default)
            lines.append(f"# {name} = {value}".ljust(32) + f"# {field.description}\n")
    return "".join(lines)
