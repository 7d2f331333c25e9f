"""Readings of a trace as answers of the server: numbers, and what stands beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict
from safetensors.torch import save
from torch import Tensor

from regard.errors import UsageError, near_miss
from regard.interpret import Trace
from regard.interpret.looks import head_numbers, look
from regard.server.requests import checked
from regard.server.traces import Traces


class ReadingQuery(BaseModel):
    """Words of a query string, so that numbers come as text."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: str
    where: str = ""
    head: int | Literal["mean"] = "mean"
    words: bool = False


Reading = tuple[dict[str, Tensor], dict[str, Any]]  # tensors by name, and the rest as JSON


def one_look(trace: Trace, query: ReadingQuery) -> Reading:
    found = look(trace, query.kind, query.where, query.head, query.words)
    return {"values": found.values}, found.about()


KINDS: dict[str, Callable[[Trace, ReadingQuery], Reading]] = {
    "weights": one_look,
    "value_norm": one_look,
    "rollout": one_look,
    "heads": lambda trace, _: (head_numbers(trace), {}),
}


def to_bytes(trace: Trace, query: ReadingQuery) -> bytes:
    """A safetensors file; its metadata has the rest under `regard.reading`."""
    if query.kind not in KINDS:
        raise UsageError(
            f'kind: there is no "{query.kind}" among {", ".join(KINDS)}{near_miss(query.kind, KINDS)}'
        )
    tensors, about = KINDS[query.kind](trace, query)
    return save(
        {name: tensor.contiguous().clone() for name, tensor in tensors.items()},
        {"regard.reading": json.dumps(about)},
    )


def add_readings(app: FastAPI, traces: Traces) -> None:
    @app.get("/api/v1/trace/{number}/reading")
    def reading(number: str, request: Request) -> Response:
        query = checked(ReadingQuery, dict(request.query_params))
        return Response(to_bytes(traces.require(number), query), media_type="application/octet-stream")
