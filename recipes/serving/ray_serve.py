"""A model as a Ray Serve deployment: copies on the machines of a cluster, as many as the load needs.

    REGARD_MODEL=runs/demo serve run recipes.serving.ray_serve:app
    curl -d '{"texts": ["A dog runs."]}' http://127.0.0.1:8000

Ray Serve starts, balances and replaces the copies; each decodes what arrives together as one batch.
`regard serve` has what this example lacks: keys, limits of each client, streams, the explorer.
"""

from __future__ import annotations

import os
from typing import Any

from ray import serve
from starlette.requests import Request

import regard

LONGEST = 64  # texts of one request


@serve.deployment(
    ray_actor_options={"num_cpus": 2},
    autoscaling_config={"min_replicas": 1, "max_replicas": 8, "target_ongoing_requests": 4},
)
class Translator:
    def __init__(self, folder: str) -> None:
        self.model: Any = regard.load(folder)

    @serve.batch(max_batch_size=16, batch_wait_timeout_s=0.01)
    async def translate(self, requests: list[list[str]]) -> list[list[str]]:
        texts = [text for request in requests for text in request]
        results = iter(self.model.translate(texts))
        return [[next(results).text for _ in request] for request in requests]

    async def __call__(self, request: Request) -> dict[str, Any]:
        body = await request.json()
        texts = body.get("texts") if isinstance(body, dict) else None
        if not isinstance(texts, list) or not 0 < len(texts) <= LONGEST or not all(map(is_text, texts)):
            return {"error": f"send {{texts: [...]}}, one to {LONGEST} strings"}
        return {"translations": await self.translate(texts)}


def is_text(value: object) -> bool:
    return isinstance(value, str)


app = Translator.bind(os.environ.get("REGARD_MODEL", "runs/demo"))  # type: ignore[attr-defined]
