"""OpenAI's routes but completions: `/v1/models`, `/v1/embeddings`."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import Field

from regard.server.api.asked import Completion, CompletionBody
from regard.server.api.completions import completions
from regard.server.api.routes import Route
from regard.server.api.translating import about, check_size
from regard.server.limits import MOST_TEXTS
from regard.server.refusals import APIError
from regard.server.requests import RequestBody, Text
from regard.server.service import Call, Service
from regard.tasks import Embedder


class EmbeddingBody(RequestBody):
    model: str = Field(max_length=1000)
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = Field(None, max_length=1000)


class EmbeddingItem(RequestBody):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(RequestBody):
    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(RequestBody):
    object: Literal["list"]
    data: list[EmbeddingItem]
    model: str
    usage: EmbeddingUsage


class ModelItem(RequestBody):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(RequestBody):
    object: Literal["list"]
    data: list[ModelItem]


async def embeddings(service: Service, body: EmbeddingBody, call: Call) -> dict[str, Any]:
    name, embedder = service.find(body.model, Embedder)
    if body.dimensions not in (None, embedder.width):
        raise APIError(400, f"dimensions: the vectors of this model have {embedder.width}", "dimensions")
    texts = [body.input] if isinstance(body.input, str) else list(body.input)
    check_size(texts)
    found = await service.run(name, lambda: embedder.embed(texts), call, about(texts))
    count = sum(len(embedder.tokenizer.encode(text)) for text in texts)
    service.metrics.add("tokens", count, kind="read", model=name)
    vectors = [each.vector.astype("<f4") for each in found]
    coded = [
        base64.b64encode(vector.tobytes()).decode() if body.encoding_format == "base64" else vector.tolist()
        for vector in vectors
    ]
    data = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(coded)]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}


async def models(service: Service, _: None, __: Call) -> dict[str, Any]:
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "local"} for name in service.models]
    return {"object": "list", "data": data}


GROUP = "OpenAI"
ROUTES = [
    Route("POST", "/v1/completions", GROUP, "What follows a prompt.", completions, CompletionBody, Completion,
          refuses=(404,)),
    Route("POST", "/v1/embeddings", GROUP, "The vectors of texts.", embeddings, EmbeddingBody, EmbeddingResponse,
          refuses=(404,)),
    Route("GET", "/v1/models", GROUP, "The models that were opened.", models, gives=ModelList),
]  # fmt: skip
