"""Interactive lessons, from weighted averages to the whole model, with numbers computed live."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Annotated, Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field

from regard.errors import UsageError, near_miss
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
from regard.server.requests import checked, finite, whole

__all__ = ["LESSONS", "add_lessons"]


LARGEST_WORDS, LARGEST_WIDTH = 100_000, 16_384

LESSONS: Mapping[str, Lesson] = {
    lesson.name: lesson
    for module in (first, she, projections, scale, masks, heads, order, encoder, decoder, history, cost)
    for lesson in module.LESSONS
}


class LessonQuery(BaseModel):
    """Query string parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    model: str = ""
    text: Annotated[str, Field(max_length=20_000)] = ""
    n: int = Field(50, ge=2, le=LARGEST_WORDS)
    d: int = Field(512, ge=2, le=LARGEST_WIDTH)


def about(lesson: Lesson) -> dict[str, Any]:
    return {"name": lesson.name, "title": lesson.title, "about": lesson.about, "uses": list(lesson.uses)}


def lesson_json(lesson: Lesson, given: Given) -> dict[str, Any]:
    """A lesson as JSON; `missing` says why it has no steps."""
    try:
        steps = [step.as_json() for step in lesson.make(given)]
    except LessonUnavailable as reason:
        return {**about(lesson), "steps": [], "missing": str(reason)}
    text = given.sentence if "text" in lesson.uses else ""
    content = {**about(lesson), "model": given.name, "text": text, "n": given.words, "d": given.width}
    result: dict[str, Any] = finite({**content, "steps": steps, "missing": ""})
    return result


def add_lessons(app: FastAPI, models: Mapping[str, Any]) -> None:
    running = Lock()

    @app.get("/api/v1/lessons")
    def lessons() -> dict[str, Any]:
        return {"lessons": [about(lesson) for lesson in LESSONS.values()]}

    @app.get("/api/v1/lessons/{name}")
    def lesson(name: str, request: Request) -> dict[str, Any]:
        if name not in LESSONS:
            raise UsageError(f'there is no lesson "{name}"{near_miss(name, LESSONS)}')
        query = checked(LessonQuery, whole(dict(request.query_params)))
        model = query.model or next(iter(models), "")
        if not model:
            raise UsageError("a lesson needs a model that can be traced; none is loaded")
        if model not in models:
            raise UsageError(f'model: there is no "{model}"{near_miss(model, models)}')
        with running:  # one at a time: lessons measure times
            return lesson_json(LESSONS[name], Given(models, model, query.text, query.n, query.d))
