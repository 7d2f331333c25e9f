"""The options that several tasks have, or that need more than a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from regard.tasks.task_model import TooLong

NumResults = Annotated[int, Field(ge=1, le=1000, description="Results for each text, best first.")]
OnTooLong = Annotated[
    TooLong, Field(description="A text too long for the model: read a part of it, skip it, or stop.")
]
Beam = Annotated[int | None, Field(ge=1, le=1000, description="Beam width of the search; 1 is greedy.")]
JSONSchema = Annotated[
    dict[str, Any] | None, Field(description="JSON of this schema follows; needs the extra structured.")
]
DecodeFields = Annotated[
    Mapping[str, Any] | None,
    Field(description="Any fields of the section decode, such as length_penalty: 0.6."),
]
Choices = Annotated[
    Sequence[str],
    Field(max_length=100, description="One of these texts follows; all are compared."),
]
