"""The file that `regard config init` writes: a small run, and all other fields as comments."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from typing import get_args

from regard.config.load import resolve
from regard.config.model import Section
from regard.config.schema import Config, TaskName

HEAD = """\
# A run of Regard. Train:   regard train {name} -o runs/my-model
# Then use the model:       {use}
# Paths are relative to this file. A line that begins with # shows a default.

[task]
name = "{task}"
{languages}{task_fields}
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
steps = {steps}
lr = {lr}
warmup = {warmup}
{train}
[decode]
{decode}"""


@dataclass(frozen=True)
class Start:
    """A first run of a task."""

    use: str
    corpora: str
    preset: str
    steps: int = 2000
    lr: str = "1e-3"
    languages: str = 'source = "en"\n'


PAIRS = """\
train = "phrasebook"            # or "pairs.tsv", "pairs.jsonl", ["train.en", "train.de"], or a list of these
# valid = ["valid.en", "valid.de"]
# test = ["test.en", "test.de"]
"""


def files(suffix: str, meaning: str) -> str:
    train = f'train = "train{suffix}"'.ljust(32)
    return f'{train}# {meaning}\nvalid = "valid{suffix}"\n# test = "test{suffix}"\n'


TEXT = files(".txt", "or .jsonl with text")
STARTS: dict[TaskName, Start] = {
    "translate": Start(
        'echo "I see the small house." | regard translate -m runs/my-model',
        PAIRS,
        "transformer-tiny",
        lr="2e-3",
        languages='source = "en"\ntarget = "de"\n',
    ),
    "generate": Start('regard generate -m runs/my-model "Once upon a time"', TEXT, "gpt-tiny"),
    "fill": Start('regard fill -m runs/my-model "The <mask> sleeps."', TEXT, "bert-tiny"),
    "classify": Start(
        'echo "a text" | regard classify -m runs/my-model',
        files(".tsv", "text, tab, label; or .jsonl with text and label"),
        "bert-tiny",
    ),
    "tag": Start(
        'echo "a text" | regard tag -m runs/my-model',
        files(".conll", "one word and its tag per line, a blank line between sentences"),
        "bert-tiny",
    ),
    "answer": Start(
        'regard answer -m runs/my-model --context article.txt "Who wrote it?"',
        files(".json", "SQuAD's format; or .jsonl with question, context, answers"),
        "bert-tiny",
    ),
}


def template(name: str, task: TaskName = "translate") -> str:
    start = STARTS[task]
    numbers = f"steps = {start.steps}\nlr = {start.lr}\nwarmup = {start.steps // 5}\n"
    given = f'[task]\nname = "{task}"\n{start.languages}[data]\n{start.corpora}'
    given += f'[model]\npreset = "{start.preset}"\n[train]\n{numbers}'
    config = resolve(tomllib.loads(given))
    shown = {
        section: commented(config, section, given)
        for section in ("data", "init", "text", "model", "train", "decode")
    }
    return HEAD.format(
        name=name,
        use=start.use,
        task=task,
        languages=start.languages,
        task_fields=commented(config, "task", given),
        corpora=start.corpora,
        preset=start.preset,
        steps=start.steps,
        lr=start.lr,
        warmup=start.steps // 5,
        **shown,
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
