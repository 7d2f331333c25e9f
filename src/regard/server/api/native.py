"""Native routes: `POST /api/v1/{task}` for every task of `regard.tasks.spec`; limits, health, metrics."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field, create_model

from regard.compat import OPTIONS, RESULT_FIELDS
from regard.config.reading import finite
from regard.server.errors import APIError, ErrorBody, responses
from regard.server.media import holds_files, media_inputs
from regard.server.requests import LIMITS, RequestBody, check_decode
from regard.server.scheduler import ModelCall
from regard.server.service import Call, Service, TheCall, TheService
from regard.tasks import Translator
from regard.tasks.results import as_dict
from regard.tasks.spec import TASKS, TaskSpec
from regard.tasks.task_model import Deferred

router = APIRouter(tags=["Regard"], responses=responses(ErrorBody))
PORTION = 500  # tokens that a call reads; then other clients have their turn
DECODED = ("translate", "generate", "caption")  # their texts join the running batch of the model


class NativeRequest(RequestBody):
    model: str = Field("", max_length=1000, description="Default: the first model of this task.")


async def run_task(
    service: Service, spec: TaskSpec, name: str, task: Any, inputs: dict[str, Any], options: Any, call: Call
) -> list[Any]:
    """The results of a task, through the scheduler of the model."""
    inputs = await asyncio.to_thread(media_inputs, name, task, inputs)
    cost = spec.cost(inputs, options)
    service.schedulers[name].check_capacity(call.client, cost)  # before the texts are tokenized
    if spec.name == "transcribe":
        results = await transcribe(service, name, task, inputs, options, call)
    elif spec.name in DECODED:
        work = partial(spec.run, task.deferred(), inputs, options)
        # files are decoded one after another, which bounds the memory for it
        (deferred,) = await (service.run(name, work, call) if task.reads_files else asyncio.to_thread(work))
        results = await decode(service, name, deferred, call, cost)
    else:
        named = spec.named(inputs)
        portions = [
            ModelCall(partial(run_part, spec, task, part, options, first), spec.cost(part, options))
            for first, part in parts_of(spec, named, options)
        ]
        results = [each for part in await service.run_portions(name, portions, call) for each in part]
    service.metrics.add("tokens", cost, kind="estimated", model=name)
    return results


async def transcribe(
    service: Service, name: str, task: Any, inputs: dict[str, Any], options: Any, call: Call
) -> list[Any]:
    """Window by window: other clients have their turn between them."""
    run = task.run(inputs["file"], longest=LIMITS.sound_seconds, **options)
    while not run.done:
        await service.run(name, run.advance, call, task.reader.most)
    results: list[Any] = run.results()
    return results


async def decode(service: Service, name: str, deferred: Deferred, call: Call, cost: int) -> list[Any]:
    """Decode in the running batch of a model; what decodes by itself is called between its steps."""
    if not deferred.requests:
        return await service.run(name, partial(deferred.finish, []), call, cost)
    hypotheses = await service.schedulers[name].generate(deferred.requests, call.client, call.deadline)
    read = sum(len(request.ids) for request in deferred.requests)
    service.metrics.add("tokens", read, kind="read", model=name)
    written = sum(len(best[0].tokens) for best in hypotheses if best)
    service.metrics.add("tokens", written, kind="written", model=name)
    results = await asyncio.to_thread(deferred.finish, hypotheses)
    if results and isinstance(results[0], Deferred):  # second tries
        return await decode(service, name, results[0], call, cost)
    return results


async def translate(
    service: Service,
    name: str,
    translator: Translator,
    texts: Sequence[str],
    call: Call,
    count: int = 1,
) -> list[list[str]]:
    """The candidates of each text, best first. Each line is translated separately."""
    check_size(texts)
    lines = [text.split("\n") for text in texts]
    flat = [line for text_lines in lines for line in text_lines]
    spec = TASKS["translate"]
    options = {option.name: option.default for option in spec.options.values()} | {"num_results": count}
    translations = iter(await run_task(service, spec, name, translator, {"text": flat}, options, call))
    candidates = [[[c.text for c in next(translations).candidates] for _ in each] for each in lines]
    return [["\n".join(each) for each in aligned(text_lines)] for text_lines in candidates]


def aligned(candidates: Sequence[Sequence[str]]) -> list[list[str]]:
    """Candidates of a whole from those of its parts: the k-th has the k-th of each part, or its last."""
    count = max(map(len, candidates), default=1)
    return [[each[min(k, len(each) - 1)] for each in candidates] for k in range(count)]


def check_size(texts: Sequence[str]) -> None:
    size = sum(map(len, texts))
    if size > LIMITS.characters:
        raise APIError(
            400, f"Invalid request: request ({size}) exceeds text limit ({LIMITS.characters})", "q"
        )


def parts_of(spec: TaskSpec, inputs: dict[str, Any], options: Any) -> list[tuple[int, dict[str, Any]]]:
    """The inputs in portions of at most `PORTION` tokens, each with the index of its first text."""
    count = max(len(each) for each in inputs.values() if not isinstance(each, str))

    def part(start: int, end: int) -> dict[str, Any]:
        return {name: each if isinstance(each, str) else each[start:end] for name, each in inputs.items()}

    parts, start, total = [], 0, 0
    for at in range(count):
        cost = spec.cost(part(at, at + 1), options)
        if at > start and total + cost > PORTION:
            parts.append((start, part(start, at)))
            start, total = at, 0
        total += cost
    return [*parts, (start, part(start, count))]


def run_part(spec: TaskSpec, task: Any, part: dict[str, Any], options: Any, first: int) -> list[Any]:
    method = getattr(type(task), spec.method)
    others = {"first_line": first + 1} if "first_line" in inspect.signature(method).parameters else {}
    return list(spec.run(task, part, options, **others))


def check_sizes(spec: TaskSpec, inputs: dict[str, Any], options: dict[str, Any]) -> None:
    """Of texts; the size of files is that of the body."""
    named = {} if holds_files(inputs) else spec.named(inputs)
    texts = [*named.values(), options.get("choices") or []]
    size = sum(len(each) if isinstance(each, str) else sum(map(len, each)) for each in texts)
    if size > LIMITS.characters:
        raise APIError(400, f"the request has {size} characters; at most {LIMITS.characters} are allowed")
    check_decode(options, LIMITS.max_tokens, "")
    check_decode(options.get("decode") or {}, LIMITS.max_tokens)
    counts = {"num_results": options.get("num_results") or 1, "choices": len(options.get("choices") or ())}
    for name, count in counts.items():
        if spec.name in DECODED and count > LIMITS.beam:
            raise APIError(400, f"{name}: this server allows {LIMITS.beam} at most", name)
    lists = {name: each for name, each in inputs.items() if isinstance(each, list)}
    if len(set(map(len, lists.values()))) > 1:
        numbers = " and ".join(f"{len(each)} {name}s" for name, each in lists.items())
        raise APIError(400, f"{numbers}: the numbers must be equal", next(iter(lists)))


def row_of(spec: TaskSpec, result: Any) -> dict[str, Any]:
    """A result as JSON, with the field names of earlier versions."""
    row = as_dict(result)
    row |= {old: row[new] for old, new in RESULT_FIELDS.get(spec.name, {}).items()}
    if "gaps" in row:
        row["gaps"] = [[{**guess, "piece": guess["text"]} for guess in gap] for gap in row["gaps"]]
    content: dict[str, Any] = finite(row)
    return content


def add_task(spec: TaskSpec) -> None:
    body_type = spec.request_model(
        NativeRequest, LIMITS.texts, LIMITS.text_characters, LIMITS.file_characters
    )
    answer = create_model(
        f"{spec.name.capitalize()}Response",
        model=str,
        precision=str,
        results=list[spec.result],  # type: ignore[name-defined]
    )

    async def route(service: TheService, body: Any, call: TheCall, request: Request) -> JSONResponse:
        inputs, options = spec.split(body)
        name, task = service.find(body.model, *spec.classes, files=holds_files(inputs))
        check_sizes(spec, inputs, options)
        results = await run_task(service, spec, name, task, inputs, options, call)
        rows = await asyncio.to_thread(lambda: [row_of(spec, each) for each in results])
        precision = rows[0]["precision"] if rows else task.precision
        response = JSONResponse({"model": name, "precision": precision, "results": rows})
        names = OPTIONS.get(spec.name, {})
        if old := [name for name in await request.json() if name in names]:
            words = "; ".join(f"{name} is an old name of {names[name]}" for name in old)
            response.headers["Warning"] = f'299 - "{words}"'
        return response

    route.__annotations__["body"] = body_type
    summary = spec.summary.replace("\n", " ")
    router.post(f"/api/v1/{spec.name}", summary=summary, response_model=answer, name=spec.name)(route)


for each in TASKS.values():
    add_task(each)


class HealthStatus(BaseModel):
    status: str


@router.get("/api/v1/limits", summary="The limits of the server.")
async def limits(service: TheService) -> dict[str, int | float | None]:
    batch_limits = {f"desk_{name}": value for name, value in vars(service.limits).items()}
    return vars(LIMITS) | vars(service.bounds) | batch_limits


@router.get("/health/live", summary="Whether the server runs.")
async def live() -> HealthStatus:
    return HealthStatus(status="ok")


@router.get("/health/ready", summary="Whether every model responds.")
async def ready(service: TheService) -> HealthStatus:
    await service.ready()
    return HealthStatus(status="ready")


@router.get("/metrics", summary="Prometheus metrics.", response_class=PlainTextResponse)
async def metrics(service: TheService) -> PlainTextResponse:
    return PlainTextResponse(service.metrics_text(), media_type="text/plain; version=0.0.4")
