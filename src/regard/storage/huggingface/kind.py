"""What a kind of Hugging Face model is to us, and words for what it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from regard.config import Model
from regard.config.reading import shown
from regard.errors import UsageError
from regard.storage.files import Json
from regard.storage.huggingface.table import Table

# their names of activations; the first is the one that is written
ACTIVATIONS = {
    "relu": ("relu",),
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh"),
    "swish": ("silu", "swish"),
}


@dataclass(frozen=True)
class Shape:
    """What of a model's numbers is not in `config.Model`."""

    joint: bool = True  # one vocabulary for both sides
    vocabulary: int = 0  # of what is written
    head: str | None = "words"  # BERT's; None: a body without one


@dataclass(frozen=True)
class Kind:
    """One `model_type`: its fields, its weights, and what its classes are for."""

    name: str
    tasks: Mapping[str, str | None]  # class in `architectures` -> task; None: a body without a head
    fits: Callable[[Model, bool], bool]  # a model (with one vocabulary or two) that the class can express
    write: Callable[[Model], Json]
    read: Callable[[Json], Json]
    table: Callable[[Model, Shape], Table]


def activation(theirs: str, field: str) -> str:
    for ours, names in ACTIVATIONS.items():
        if theirs in names:
            return ours
    raise UsageError(f"{field} = {shown(theirs)} is an activation that Regard does not have")


def refuse(config: Json, **expected: Any) -> None:
    """Fields that change the numbers must have the value that we compute with, also their default."""
    for field, value in expected.items():
        if config.get(field, value) not in (value, None):
            raise UsageError(f"{field} = {shown(config[field])} is something that Regard cannot do yet")
