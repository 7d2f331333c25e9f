"""The OpenAPI document, from the table of routes and the explorer's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from regard import __version__
from regard.server.api.routes import FORM, Route

PLACE = "#/components/schemas/{model}"
STATUSES = {
    400: "What was asked for cannot be done; the sentence names the field.",
    401: "A key is needed.",
    403: "Not for this page, this name of the server, or at all.",
    404: "There is no such model.",
    405: "This address is asked in another way.",
    408: "The request came too slowly.",
    411: "The request has no length.",
    413: "The request is too large.",
    415: "The request is of a kind that is not read.",
    429: "Too much is waiting; Retry-After says for how long.",
    431: "The headers are too large.",
    500: "This should not happen.",
    503: "No answer now; Retry-After says when to try again.",
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
    """The document; `keys` is whether one is needed."""
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
        "info": {"title": "Regard", "version": __version__, "description": "Transformers, served."},
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
    told: dict[str, Any] = {"200": {"description": "The answer.", "content": content}}
    if route.reads is None and 403 in route.refuses:
        told = {}
    for status in sorted({*USUAL, *route.refuses}):
        reference = {"$ref": PLACE.format(model=error)}
        told[str(status)] = {
            "description": STATUSES[status],
            "content": {"application/json": {"schema": reference}},
        }
    return told


def schema_of(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """A type as a schema, whose named parts go among the others under their names."""
    found = TypeAdapter(kind).json_schema(ref_template=PLACE, schema_generator=GenerateJsonSchema)
    schemas.update(found.pop("$defs", {}))
    name = getattr(kind, "__name__", "")
    if isinstance(kind, type) and found.get("type") == "object" and name not in ("dict", ""):
        schemas[name] = found
        return {"$ref": PLACE.format(model=name)}
    return dict(found)
