"""The app of the explorer and its routes. They return JSON or bytes; errors are {"error": message}."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from regard import __version__
from regard.errors import RegardError, UsageError, near_miss
from regard.interpret import TracedTokens
from regard.interpret.predictions import page_json
from regard.server.compare import available_interventions, compare_traces
from regard.server.lessons import add_lessons
from regard.server.origin_policy import OriginPolicy, OriginPolicyMiddleware
from regard.server.requests import (
    LONGEST_TEXT,
    CompareQuery,
    TensorQuery,
    TokenizeBody,
    TraceBody,
    check_decode,
    checked,
    key_of,
    parse,
)
from regard.server.traces import Traces, add_export, add_readings, number_of, tensor_bytes
from regard.tasks.task_model import TaskModel

WEB = Path(__file__).parent / "web"


async def raw_body(request: Request) -> bytes:
    return await request.body()


Raw = Annotated[bytes, Depends(raw_body)]


def make_app(models: Mapping[str, Any], access: OriginPolicy = OriginPolicy()) -> FastAPI:
    """The explorer over loaded models by name; the first is the default."""
    models = {name: task for name, task in models.items() if isinstance(task, TaskModel)}
    app = FastAPI(title="regard", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(OriginPolicyMiddleware, access=access)
    traces = Traces()
    add_errors(app)
    add_models(app, models)
    add_traces(app, models, traces)
    add_comparisons(app, traces)
    add_lessons(app, models)
    add_page(app)
    return app


def add_page(app: FastAPI) -> None:
    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(WEB / "index.html")

    app.mount("/web", StaticFiles(directory=WEB), name="web")


def add_models(app: FastAPI, models: Mapping[str, Any]) -> None:
    # Frequent routes are coroutines. FastAPI runs plain functions in threads: used for traces and files.
    @app.get("/api/v1/models")
    async def list_models() -> dict[str, Any]:
        listed = [about(name, task) for name, task in models.items()]
        return {"models": listed, "version": __version__, "longest_text": LONGEST_TEXT}

    @app.post("/api/v1/tokenize")
    async def tokenize(raw: Raw) -> dict[str, Any]:
        return await asyncio.to_thread(pieces_of, models, parse(TokenizeBody, raw))


def pieces_of(models: Mapping[str, Any], body: TokenizeBody) -> dict[str, Any]:
    tokenizer = find(models, body.model)[1].folder.source
    pieces = TracedTokens.of(tokenizer, tokenizer.encode(body.text))
    return {**pieces.as_json(), "shown": list(pieces.shown)}


def add_comparisons(app: FastAPI, traces: Traces) -> None:
    @app.get("/api/v1/compare")
    def side_by_side(request: Request) -> dict[str, Any]:
        query = checked(CompareQuery, dict(request.query_params))
        return compare_traces(traces.require(query.before), traces.require(query.after), query.step)


def add_traces(app: FastAPI, models: Mapping[str, Any], traces: Traces) -> None:
    running = Lock()

    @app.post("/api/v1/trace")
    def trace(raw: Raw) -> dict[str, Any]:
        body = parse(TraceBody, raw)
        name, task = find(models, body.model)
        check_target(task.folder, body.target)
        number = number_of(key_of(body.model_copy(update={"model": name})))
        with running:  # one trace at a time uses all cores
            result = traces.get(number)
            if result is None:
                result = task.trace(
                    body.source,
                    body.target,
                    prefix=body.prefix,
                    context=body.context,
                    decode=check_decode(body.decode, task.folder.config.max_length),
                    interventions=body.interventions,
                )
                result = replace(result, meta={**result.meta, "model": name})  # no local path
                traces.add(number, result)
        return {"model": name, **page_json(number, result)}

    @app.get("/api/v1/trace/{number}")
    def again(number: str) -> dict[str, Any]:
        return page_json(number, traces.require(number))

    @app.get("/api/v1/trace/{number}/tensors")
    def tensors(number: str, request: Request) -> Response:
        parameters = request.query_params
        given: dict[str, Any] = {field: parameters[field] for field in parameters} | {
            "name": parameters.getlist("name")
        }
        query = checked(TensorQuery, given)
        content = tensor_bytes(traces.require(number), query)
        return Response(content, media_type="application/octet-stream")

    add_readings(app, traces)
    add_export(app, traces)


def check_target(folder: Any, target: str | None) -> None:
    """Attention grows with the square of the length, and computed positions have no limit."""
    pieces, most = len(folder.target.encode(target or "")), folder.config.max_length
    if pieces > most:
        raise UsageError(f"target: {pieces} tokens are too long, at most {most} are allowed")


def find(models: Mapping[str, Any], name: str) -> tuple[str, Any]:
    name = name or next(iter(models), "")
    if name not in models:
        hint = near_miss(name, models) or f"; there are {', '.join(models) or 'none to look into'}"
        raise UsageError(f'model: there is no "{name}"{hint}')
    return name, models[name]


def about(name: str, task: Any) -> dict[str, Any]:
    folder = task.folder
    return {
        "name": name,
        "task": folder.task.name,
        "source": folder.task.source,
        "target": folder.task.target,
        "family": folder.config.family,
        "config": folder.config.model_dump(mode="json"),
        "vocabulary": len(folder.target),
        "parameters": folder.parameters,
        "labels": list(folder.labels),
        "beam": folder.decode.beam,
        "interventions": available_interventions(folder.model),
    }


def add_errors(app: FastAPI) -> None:
    @app.exception_handler(RegardError)
    async def refused(_: Request, error: RegardError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> JSONResponse:
        words = {404: "there is nothing at this address", 405: "method not allowed"}
        return JSONResponse({"error": words.get(error.status_code, str(error.detail))}, error.status_code)

    @app.exception_handler(MemoryError)
    async def too_much(_: Request, __: MemoryError) -> JSONResponse:
        return JSONResponse({"error": "not enough memory for this text; try a shorter one"}, 507)

    @app.exception_handler(Exception)
    async def surprised(_: Request, error: Exception) -> JSONResponse:
        text = f"{type(error).__name__}: {error}; internal error, see the terminal"
        return JSONResponse({"error": text}, 500)
