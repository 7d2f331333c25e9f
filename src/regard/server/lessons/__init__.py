"""Interactive lessons, from weighted averages to the whole model, with numbers computed live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from regard.server.lessons import (
    cost,
    decoder,
    encoder,
    first,
    heads,
    history,
    masks,
    order,
    projections,
    scale,
    she,
)
from regard.server.lessons.given import Given, LessonUnavailable
from regard.server.lessons.step import Lesson
from regard.server.requests import QueryString, finite

__all__ = ["LESSONS", "Given", "LessonQuery", "about_lesson", "lesson_json"]


LARGEST_WORDS, LARGEST_WIDTH = 100_000, 16_384

LESSONS: Mapping[str, Lesson] = {
    lesson.name: lesson
    for module in (first, she, projections, scale, masks, heads, order, encoder, decoder, history, cost)
    for lesson in module.LESSONS
}


class LessonQuery(QueryString):
    model: str = ""
    text: Annotated[str, Field(max_length=20_000)] = ""
    n: int = Field(50, ge=2, le=LARGEST_WORDS)
    d: int = Field(512, ge=2, le=LARGEST_WIDTH)


def about_lesson(lesson: Lesson) -> dict[str, Any]:
    return {"name": lesson.name, "title": lesson.title, "about": lesson.about, "uses": list(lesson.uses)}


def lesson_json(lesson: Lesson, given: Given) -> dict[str, Any]:
    """A lesson as JSON; `missing` says why it has no steps."""
    try:
        steps = [step.as_json() for step in lesson.make(given)]
    except LessonUnavailable as reason:
        return {**about_lesson(lesson), "steps": [], "missing": str(reason)}
    text = given.sentence if "text" in lesson.uses else ""
    content = {**about_lesson(lesson), "model": given.name, "text": text, "n": given.words, "d": given.width}
    result: dict[str, Any] = finite({**content, "steps": steps, "missing": ""})
    return result
