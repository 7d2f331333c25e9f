"""What a trace is taken home as: the page in one file, a figure, its numbers, or the trace itself."""

from __future__ import annotations

from typing import Literal

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from regard.interpret import Trace
from regard.server.requests import checked
from regard.server.traces import Traces

KINDS = {
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
    "safetensors": "application/octet-stream",
}


class ExportQuery(BaseModel):
    """Words of a query string. `view` and what follows choose the figure of svg, png and json."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Literal["html", "svg", "png", "json", "safetensors"]
    view: str = "heads"
    layer: int | None = Field(None, ge=0)
    head: int | None = Field(None, ge=0)
    where: str | None = None
    words: bool = False


def add_export(app: FastAPI, traces: Traces) -> None:
    @app.get("/api/v1/trace/{number}/export")
    def export(number: str, request: Request) -> Response:
        query = checked(ExportQuery, dict(request.query_params))
        content = exported(traces.require(number), query)
        named = f'attachment; filename="regard.{query.format}"'  # saved, never opened as a page of ours
        return Response(content, media_type=KINDS[query.format], headers={"Content-Disposition": named})


def exported(trace: Trace, query: ExportQuery) -> bytes:
    if query.format == "html":
        return trace.page().html.encode()
    if query.format == "safetensors":
        return trace.to_bytes()
    figure = trace.figure(query.view, query.layer, query.head, query.where, query.words)
    match query.format:
        case "svg":
            return figure.svg.encode()
        case "png":
            return figure.scene.png()
    return figure.json.encode()
