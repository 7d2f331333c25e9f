"""Registers all API routes in an app, with their OpenAPI document and its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Route as Address

from regard import __version__
from regard.errors import RegardError
from regard.server.api import libretranslate, native, openai
from regard.server.api.routes import FORM, Route
from regard.server.app import WEB
from regard.server.errors import APIError, error_response
from regard.server.requests import TokenizeBody, TraceBody
from regard.server.service import Call, Service

ROUTES = [*libretranslate.ROUTES, *openai.ROUTES, *native.ROUTES]
WORDS = {404: "there is nothing at this address", 405: "method not allowed"}


async def elsewhere(service: Service, _: object, __: Call) -> None:
    raise NotImplementedError("handled by the explorer")


EXPLORER_ROUTES = [  # handled by app.py; listed for the OpenAPI document
    Route(
        "GET",
        "/api/v1/models",
        "Explorer",
        "List the models with their configuration.",
        elsewhere,
        gives=dict,
    ),
    Route("POST", "/api/v1/tokenize", "Explorer", "Tokenize a text.", elsewhere, TokenizeBody, dict),
    Route("POST", "/api/v1/trace", "Explorer", "Run a model and record a trace.", elsewhere, TraceBody, dict),
]


def add_api(app: FastAPI, service: Service) -> None:
    for route in ROUTES:
        app.router.routes.append(Address(route.path, route.endpoint(service), methods=[route.method]))
    document = describe([*ROUTES, *EXPLORER_ROUTES], service.keys is not None)

    @app.get("/openapi.json", include_in_schema=False)
    @app.get("/spec", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(document)

    @app.get("/docs", include_in_schema=False)
    def docs() -> FileResponse:
        return FileResponse(WEB / "docs.html")

    add_error_handlers(app, service)


def add_error_handlers(app: FastAPI, service: Service) -> None:
    """Errors outside of the API routes, in the JSON shape of the API that was called."""

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        text = WORDS.get(error.status_code, str(error.detail))
        answer = error_response(request.url.path, APIError(error.status_code, text))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(RegardError)
    async def refused(request: Request, error: RegardError) -> JSONResponse:
        api_error = error if isinstance(error, APIError) else APIError(400, service.without_paths(str(error)))
        return error_response(request.url.path, api_error)

    @app.exception_handler(Exception)
    async def surprised(request: Request, error: Exception) -> JSONResponse:
        number = request.scope.get("regard", {}).get("number", "")
        service.log.error(error, request=number)
        text = f"internal error; see the server log, request {number}"
        return error_response(request.url.path, APIError(500, text))


PLACE = "#/components/schemas/{model}"
STATUSES = {
    400: "Invalid request; the message names the field.",
    401: "API key missing or invalid.",
    403: "Origin or host not allowed, or feature disabled.",
    404: "No such model.",
    405: "Method not allowed.",
    408: "Request timed out.",
    411: "Content-Length is missing.",
    413: "The request is too large.",
    415: "Unsupported media type.",
    429: "Queue full; see Retry-After.",
    431: "The headers are too large.",
    500: "Internal error.",
    503: "Temporarily unavailable; see Retry-After.",
}
USUAL = (400, 401, 403, 405, 408, 411, 413, 415, 429, 503)
PLAIN = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
OBJECT = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def describe(routes: Sequence[Route], keys: bool) -> dict[str, Any]:
    """The OpenAPI document; `keys`: whether an API key is needed."""
    schemas: dict[str, Any] = {"Error": PLAIN, "OpenAIError": {"anyOf": [OBJECT, PLAIN]}}
    paths: dict[str, Any] = {}
    for route in routes:
        operation: dict[str, Any] = {
            "tags": [route.group],
            "summary": route.summary,
            "operationId": (route.method + route.path).lower().replace("/", "_").strip("_"),
            "responses": answers(route, schemas),
        }
        if route.reads is not None:
            schema = schema_of(route.reads, schemas)
            kinds = ["application/json", *([FORM] if route.form else [])]
            operation["requestBody"] = {
                "required": True,
                "content": {kind: {"schema": schema} for kind in kinds},
            }
        if keys and not route.open:
            operation["security"] = [{"key": []}]
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    components: dict[str, Any] = {"schemas": schemas}
    if keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Regard", "version": __version__, "description": "Transformer models over HTTP."},
        "paths": paths,
        "components": components,
    }


def answers(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    error = "OpenAIError" if route.path.startswith("/v1/") else "Error"
    content: dict[str, Any] = {route.media: {"schema": {"type": "string"}}}
    if route.gives is not None:
        content = {route.media: {"schema": schema_of(route.gives, schemas)}}
        if route.path == "/v1/completions":
            content["text/event-stream"] = {"schema": {"type": "string"}}
    responses: dict[str, Any] = {"200": {"description": "Success.", "content": content}}
    if route.reads is None and 403 in route.refuses:
        responses = {}
    for status in sorted({*USUAL, *route.refuses}):
        reference = {"$ref": PLACE.format(model=error)}
        responses[str(status)] = {
            "description": STATUSES[status],
            "content": {"application/json": {"schema": reference}},
        }
    return responses


def schema_of(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type; its named parts are added to `schemas`."""
    schema = TypeAdapter(kind).json_schema(ref_template=PLACE, schema_generator=GenerateJsonSchema)
    schemas.update(schema.pop("$defs", {}))
    name = getattr(kind, "__name__", "")
    if isinstance(kind, type) and schema.get("type") == "object" and name not in ("dict", ""):
        schemas[name] = schema
        return {"$ref": PLACE.format(model=name)}
    return dict(schema)
