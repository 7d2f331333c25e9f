"""Interactive lessons: documents of `builtin/lessons`, or of a teacher, with numbers computed live."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from regard.errors import UsageError
from regard.resources import PACKAGE
from regard.server.lessons import (  # their cells
    bert,
    choosing,
    cost,
    decoder,
    encoder,
    first,
    gpt,
    heads,
    history,
    learning,
    masks,
    media,
    model,
    order,
    pretraining,
    price,
    projections,
    scale,
    she,
    t5,
    tokens,
)
from regard.server.lessons.document import Lesson, read_folder
from regard.server.lessons.given import Given
from regard.server.lessons.render import about_lesson, lesson_json
from regard.server.requests import QueryString

LARGEST_WORDS, LARGEST_WIDTH = 100_000, 16_384

LESSONS: Mapping[str, Lesson] = {each.name: each for each in read_folder(PACKAGE / "builtin" / "lessons")}


def add_lessons(folder: Path | None) -> Mapping[str, Lesson]:
    """The built-in lessons, and after them those of a folder."""
    lessons = dict(LESSONS)
    for lesson in read_folder(folder) if folder else ():
        if lesson.name in lessons:
            message = f"{folder}: there is another lesson {lesson.name}; rename the file"
            raise UsageError(message, code="E_LESSON_NAME")
        lessons[lesson.name] = lesson
    return lessons


class LessonQuery(QueryString):
    model: str = ""
    text: Annotated[str, Field(max_length=20_000)] = ""
    n: int = Field(50, ge=2, le=LARGEST_WORDS)
    d: int = Field(512, ge=2, le=LARGEST_WIDTH)
    first: bool = False  # the first step alone
