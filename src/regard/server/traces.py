"""Recent traces of the explorer, and their parts as bytes: tensors, readings, exports."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Literal

import torch
from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import save
from torch import Tensor

from regard.errors import UsageError, near_miss
from regard.interpret import Trace
from regard.interpret.activations import attention_matrix
from regard.interpret.predictions import max_pool
from regard.server.errors import APIError
from regard.server.requests import TensorQuery, checked

MOST = 16  # traces
MOST_BYTES = 1 << 30


class Traces:
    """An LRU cache in memory, bounded by count and bytes."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.kept: OrderedDict[str, Trace] = OrderedDict()
        self.lock = Lock()

    def get(self, number: str) -> Trace | None:
        with self.lock:
            if number in self.kept:
                self.kept.move_to_end(number)
            return self.kept.get(number)

    def require(self, number: str) -> Trace:
        trace = self.get(number)
        if trace is None:
            raise APIError(410, "this trace is no longer cached; request it again", code="trace_expired")
        return trace

    def add(self, number: str, trace: Trace) -> None:
        with self.lock:
            self.kept[number] = trace
            # a comparison needs two, an intervention one more: keep three of any size
            while len(self.kept) > self.most or (len(self.kept) > 3 and self.bytes() > self.most_bytes):
                self.kept.popitem(last=False)

    def bytes(self) -> int:
        return sum(t.nbytes for trace in self.kept.values() for t in trace.tensors.values())


def number_of(key: str) -> str:
    """The id of a trace: equal requests share it, so reloading a page computes nothing."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:24]


SHARES = (".weights", ".probabilities", ".mask")  # values between 0 and 1


def tensor_bytes(trace: Trace, query: TensorQuery) -> bytes:
    """A safetensors file of the named tensors; patterns such as `*.weights` are allowed."""
    tensors = {name: part(trace, name, query) for name in chosen(trace, query.name)}
    return save({name: tensor.contiguous().clone() for name, tensor in tensors.items()})


def chosen(trace: Trace, patterns: list[str]) -> list[str]:
    names: dict[str, None] = {}
    for pattern in patterns:
        matches = trace.names(pattern) if "*" in pattern else []
        if not matches:
            _ = trace[pattern]  # raises, naming the nearest
        names |= dict.fromkeys(matches or [pattern])
    return list(names)


def part(trace: Trace, name: str, query: TensorQuery) -> Tensor:
    tensor = trace[name]
    if query.head is not None and tensor.dim() == 3:
        tensor = of_head(trace, name, tensor, query.head)
    if query.row is not None:
        tensor = one_of(name, tensor, "row", query.row, -2)
    if query.column is not None:
        tensor = one_of(name, tensor, "column", query.column, -1)
    if query.pool is not None:
        tensor = max_pool(tensor, query.pool)
    return in_bytes(name, tensor) if query.dtype == "U8" else tensor


def one_of(name: str, tensor: Tensor, what: str, number: int, dimension: int) -> Tensor:
    """One row or column; keeps its dimension, so that both can be selected together."""
    if tensor.dim() < 2 or number >= tensor.shape[dimension]:
        size = tensor.shape[dimension] if tensor.dim() > 1 else 0
        raise UsageError(f"{what} = {number}: {name} has {size}, from 0 on")
    return tensor.narrow(dimension, number, 1)


def of_head(trace: Trace, name: str, tensor: Tensor, head: int) -> Tensor:
    """The slice of a head; with grouped-query attention, keys and values of its group."""
    queries = f"{name.rpartition('.')[0]}.query"
    heads = len(trace[queries]) if queries in trace and trace[queries].dim() == 3 else len(tensor)
    if head >= heads:
        raise UsageError(f"head = {head}: {name} has {heads} heads, from 0 on")
    return tensor[head * len(tensor) // heads]


def in_bytes(name: str, tensor: Tensor) -> Tensor:
    if not name.endswith(SHARES):
        raise UsageError(f"{name}: only weights, probabilities and masks can be sent as U8; use F32")
    return (tensor.float() * 255).round().clamp(0, 255).to(torch.uint8)


class ReadingQuery(BaseModel):
    """Query string parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: str
    where: str = ""
    head: int | Literal["mean"] = "mean"
    words: bool = False


Reading = tuple[dict[str, Tensor], dict[str, Any]]  # tensors by name, and the rest as JSON


def one_look(trace: Trace, query: ReadingQuery) -> Reading:
    view = attention_matrix(trace, query.kind, query.where, query.head, query.words)
    return {"values": view.values}, view.as_json()


READINGS: dict[str, Callable[[Trace, ReadingQuery], Reading]] = {
    "weights": one_look,
    "value_norm": one_look,
    "rollout": one_look,
    "heads": lambda trace, _: (trace.head_statistics(), {}),
}


def reading_bytes(trace: Trace, query: ReadingQuery) -> bytes:
    """A safetensors file; its metadata holds the rest under `regard.reading`."""
    if query.kind not in READINGS:
        raise UsageError(
            f'kind: there is no "{query.kind}" among {", ".join(READINGS)}{near_miss(query.kind, READINGS)}'
        )
    tensors, about = READINGS[query.kind](trace, query)
    return save(
        {name: tensor.contiguous().clone() for name, tensor in tensors.items()},
        {"regard.reading": json.dumps(about)},
    )


def add_readings(app: FastAPI, traces: Traces) -> None:
    @app.get("/api/v1/trace/{number}/reading")
    def reading(number: str, request: Request) -> Response:
        query = checked(ReadingQuery, dict(request.query_params))
        return Response(reading_bytes(traces.require(number), query), media_type="application/octet-stream")


MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
    "safetensors": "application/octet-stream",
}


class ExportQuery(BaseModel):
    """Query string parameters. `view` and the following select the figure of svg, png and json."""

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
        named = f'attachment; filename="regard.{query.format}"'  # saved, never rendered from this origin
        return Response(content, media_type=MEDIA_TYPES[query.format], headers={"Content-Disposition": named})


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
