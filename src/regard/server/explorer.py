"""Routes of the explorer: models, traces and their parts, comparisons, lessons. Errors are {"error", "code"}.

Traces, readings and lessons compute, so they run in the scheduler of the explorer, one at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response, StreamingResponse

from regard import __version__
from regard.errors import UsageError, near_miss
from regard.inputs.text import Tokenizer
from regard.interpret import TracedTokens, parse
from regard.interpret.interventions import KINDS
from regard.interpret.names import attention_shapes, stacks
from regard.interpret.page import SETTINGS
from regard.interpret.predictions import page_json
from regard.models.encoder import EncoderOnly
from regard.models.families import Model
from regard.server.errors import APIError, ErrorBody, responses
from regard.server.lessons import Given, LessonQuery, about_lesson, lesson_json
from regard.server.requests import LIMITS, CompareQuery, TensorQuery, TokenizeBody, TraceBody
from regard.server.service import TheCall, TheService
from regard.server.traces import (
    MEDIA_TYPES,
    ExportQuery,
    ReadingQuery,
    TensorStream,
    Traces,
    compare_traces,
    exported,
    number_of,
    reading_bytes,
    trace_tokens,
)
from regard.tasks.confidence import language_of
from regard.tasks.translation import segments
from regard.tasks.translator import Translator

READING_TOKENS = 50  # estimated work of a reading, a figure or a comparison
LESSON_TOKENS = 2000  # estimated work of a lesson
BYTES = "application/octet-stream"
router = APIRouter(prefix="/api/v1", tags=["Explorer"], responses=responses(ErrorBody))


def about(name: str, task: Any) -> dict[str, Any]:
    folder = task.folder
    return {
        "name": name,
        "task": folder.task.name,
        "source": folder.task.source,
        "target": folder.task.target,
        "family": folder.config.family,
        "config": folder.config.model_dump(mode="json"),
        "vocabulary": len(folder.output) if isinstance(folder.output, Tokenizer) else 0,
        "parameters": folder.parameters,
        "labels": list(folder.labels),
        "input": folder.task.input,
        "beam": folder.decode.beam,
        "interventions": available_interventions(folder.model),
    }


def available_interventions(model: Model) -> dict[str, Any]:
    """Interventions that the model supports: types, attentions with their heads, sides."""
    heads = {name: shape.heads for name, shape in attention_shapes(model).items()}
    examples: dict[str, dict[str, Any]] = {
        "zero_head": {"where": next(iter(heads), ""), "head": 0},
        "replace_token": {"position": 0, "text": "a"},
        "edit": {"name": "logits", "position": 0, "column": 0, "value": 0},
        "patch": {"name": "logits", "text": "a"},
    }
    return {
        "types": [kind for kind in KINDS if possible({"type": kind, **examples.get(kind, {})}, model)],
        "heads": heads,
        "stacks": list(stacks(model)),
        "sides": ["source"] if isinstance(model, EncoderOnly) else ["source", "target"],
    }


def possible(given: dict[str, Any], model: Model) -> bool:
    try:
        parse([given], model)
    except UsageError:
        return False
    return True


@router.get("/models", summary="List the models with their configuration.")
async def models(service: TheService) -> dict[str, Any]:
    listed = [about(name, task) for name, task in service.explorer.models.items()]
    limits = {"longest_text": LIMITS.text_characters, "settings": SETTINGS}
    return {"models": listed, "version": __version__, **limits}


@router.post("/tokenize", summary="Tokenize a text.")
async def tokenize(service: TheService, body: TokenizeBody) -> dict[str, Any]:
    """Of a translator also the sentences that it translates one by one, and the language of the text."""
    task = service.explorer.find(body.model)[1]
    ids = await asyncio.to_thread(task.folder.source.encode, body.text)
    tokens = TracedTokens.of(task.folder.source, ids)
    content = {**tokens.as_json(), "shown": list(tokens.shown)}
    if isinstance(task, Translator):
        content |= await asyncio.to_thread(translation_input, task, body.text, service.explorer.models)
    return content


def translation_input(task: Translator, text: str, models: Mapping[str, Any]) -> dict[str, Any]:
    """The text as `regard translate` splits it; its language, if it is clearly not the model's, and the
    models that read this language."""

    def count(part: str) -> int:
        return len(task.folder.source.encode(part))

    parts = [
        part.text
        for line in text.splitlines()
        for part in segments(line, count, "auto", task.split_above, task.longest)
    ]
    language = language_of(text, task.folder.task.source)[0]
    readers = [
        name
        for name, each in models.items()
        if isinstance(each, Translator) and language and each.folder.task.source == language
    ]
    return {"sentences": [part for part in parts if part], "language": language, "readers": readers}


@router.post("/trace", summary="Run a model and record a trace.", response_model=dict[str, Any])
async def trace(service: TheService, body: TraceBody, call: TheCall) -> Response:
    name, task = service.explorer.find(body.model)
    number = number_of(body.model_copy(update={"model": name}))
    tokens = await asyncio.to_thread(trace_tokens, task, body)

    def work() -> Response:
        content = page_json(number, service.explorer.trace(number, name, body))
        return JSONResponse({"model": name, **content})

    return await service.explore(work, call, tokens)


@router.get("/trace/{number}", summary="A trace again.")
async def again(service: TheService, number: str, call: TheCall) -> dict[str, Any]:
    kept = service.explorer.traces.require(number)
    return await service.explore(partial(page_json, number, kept), call, READING_TOKENS)


@router.get("/trace/{number}/tensors", summary="Tensors of a trace as safetensors.", response_class=Response)
async def tensors(service: TheService, number: str, query: Annotated[TensorQuery, Query()]) -> Response:
    return await stream(service.explorer.traces, number, query)


async def stream(
    traces: Traces, number: str, query: TensorQuery, meta: dict[str, str] | None = None
) -> StreamingResponse:
    file = await asyncio.to_thread(TensorStream, traces, number, query, meta)
    return StreamingResponse(file, media_type=BYTES, headers={"Content-Length": str(file.size)})


@router.get("/trace/{number}/reading", summary="A reading of a trace.", response_class=Response)
async def reading(
    service: TheService, number: str, query: Annotated[ReadingQuery, Query()], call: TheCall
) -> Response:
    kept = service.explorer.traces.require(number)
    content = await service.explore(partial(reading_bytes, kept, query), call, READING_TOKENS)
    return Response(content, media_type=BYTES)


@router.get("/trace/{number}/export", summary="A trace as a file.", response_class=Response)
async def export(
    service: TheService, number: str, query: Annotated[ExportQuery, Query()], call: TheCall
) -> Response:
    kept = service.explorer.traces.require(number)
    if query.format == "safetensors":
        everything = TensorQuery(name=["*"])
        meta = {"regard.trace": json.dumps(kept.as_json())}
        response: Response = await stream(service.explorer.traces, number, everything, meta)
    else:
        content = await service.explore(partial(exported, kept, query), call, READING_TOKENS)
        response = Response(content, media_type=MEDIA_TYPES[query.format])
    # saved, never rendered from this origin
    response.headers["Content-Disposition"] = f'attachment; filename="regard.{query.format}"'
    return response


@router.get("/compare", summary="Compare two traces.")
async def compare(
    service: TheService, query: Annotated[CompareQuery, Query()], call: TheCall
) -> dict[str, Any]:
    before, after = (service.explorer.traces.require(number) for number in (query.before, query.after))
    return await service.explore(partial(compare_traces, before, after, query.step), call, READING_TOKENS)


@router.get("/lessons", summary="List the lessons.")
async def lessons(service: TheService) -> dict[str, Any]:
    return {"lessons": [about_lesson(lesson) for lesson in service.lessons.values()]}


@router.get("/lessons/{name}", summary="A lesson with its numbers.")
async def lesson(
    service: TheService, name: str, query: Annotated[LessonQuery, Query()], call: TheCall
) -> dict[str, Any]:
    if name not in service.lessons:
        hint = near_miss(name, service.lessons)
        raise APIError(404, f'there is no lesson "{name}"{hint}', code="lesson_not_found")
    if not service.explorer.models:
        raise UsageError("a lesson needs a model that can be traced; none is loaded")
    model, _ = service.explorer.find(query.model)
    given = Given(service.explorer.models, model, query.text, query.n, query.d)
    return await service.explore(
        partial(lesson_json, service.lessons[name], given, query.first), call, LESSON_TOKENS
    )
