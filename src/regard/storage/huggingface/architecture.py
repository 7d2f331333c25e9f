"""A `model_type` of Hugging Face: its fields, its weights, and errors for what Regard does not support."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from regard.config.reading import shown
from regard.errors import UsageError
from regard.storage.files import Json
from regard.storage.huggingface.table import Table

# our name -> their names; the first is the one that is written
ACTIVATIONS = {
    "relu": ("relu",),
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh"),
    "swish": ("silu", "swish"),
}


@dataclass(frozen=True)
class Shape:
    """What decides the weights beside the config of the model."""

    joint: bool = True  # one vocabulary for both sides
    vocabulary: int = 0  # of the target
    head: str | None = "words"  # BERT's; None: an encoder without one


@dataclass(frozen=True)
class Architecture:
    """One `model_type`, for one of our families."""

    name: str
    family: str
    tasks: Mapping[str, str | None]  # class in `architectures` -> task; None: an encoder without a head
    write: Callable[[Any], Json]  # our config -> their fields
    read: Callable[[Json], Json]  # their fields -> ours
    table: Callable[[Any, Shape], Table]
    two_vocabularies: bool = False  # it can have one for each side


def activation(name: str, field: str) -> str:
    """Our name of an activation."""
    for ours, names in ACTIVATIONS.items():
        if name in names:
            return ours
    raise UsageError(f"{field} = {shown(name)} is an activation that Regard does not have", code=UNSUPPORTED)


def refuse(config: Json, **expected: Any) -> None:
    """Fields that change the result must have the value that Regard computes with, or be absent."""
    for field, value in expected.items():
        if config.get(field, value) not in (value, None):
            raise unsupported(field, config[field])


UNSUPPORTED = "E_MODEL_UNSUPPORTED"


def unsupported(field: str, value: object) -> UsageError:
    return UsageError(f"{field} = {shown(value)} is not supported by Regard", code=UNSUPPORTED)
