"""Native routes: score, fill, classify, tag, answer; limits, health, metrics."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import PlainTextResponse

from regard.server.api.routes import Route
from regard.server.api.translate import about, check_size
from regard.server.errors import APIError
from regard.server.requests import MOST_RANKED, MOST_TEXTS, RequestBody, Text
from regard.server.service import Call, Service
from regard.tasks import Answerer, Classifier, Filler, Generator, Tagger, Translator

Name = Annotated[str, Field(max_length=1000)]
Texts = Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]
Count = Annotated[int, Field(ge=1, le=MOST_RANKED)]


class NativeRequest(RequestBody):
    model: Name = Field("", description="default: the first model of this task")


class ScoreBody(NativeRequest):
    source: Texts | None = Field(None, description="source texts; only for translation models")
    target: Texts


class FillBody(NativeRequest):
    text: Texts
    top_k: Count = 5


class ClassifyBody(NativeRequest):
    text: Texts
    top_k: Count | None = Field(None, description="number of labels; default: those the model predicts")


class TagBody(NativeRequest):
    text: Texts


class AnswerBody(NativeRequest):
    question: Text
    context: Text
    top_k: Count = 1
    no_answer: float | None = Field(None, ge=-1e6, le=1e6)


class ScoreItem(RequestBody):
    log_probability: float | None
    pieces: list[str]
    log_probabilities: list[float | None]


class ScoreResponse(RequestBody):
    model: str
    results: list[ScoreItem]


class GuessItem(RequestBody):
    piece: str
    probability: float


class FillCandidate(RequestBody):
    text: str
    probability: float


class FillItem(RequestBody):
    candidates: list[FillCandidate]
    gaps: list[list[GuessItem]]


class FillResponse(RequestBody):
    model: str
    results: list[FillItem]


class LabelItem(RequestBody):
    name: str
    probability: float


class ClassificationItem(RequestBody):
    labels: list[LabelItem]
    cut: bool


class ClassifyResponse(RequestBody):
    model: str
    results: list[ClassificationItem]


class EntityItem(RequestBody):
    type: str
    start: int
    end: int
    text: str
    score: float


class TaggingItem(RequestBody):
    entities: list[EntityItem]


class TagResponse(RequestBody):
    model: str
    results: list[TaggingItem]


class AnswerItem(RequestBody):
    text: str
    start: int
    end: int
    score: float
    probability: float


class AnswerResponse(RequestBody):
    model: str
    results: list[AnswerItem]


class HealthStatus(RequestBody):
    status: str


def text_list(texts: str | list[str]) -> list[str]:
    result = [texts] if isinstance(texts, str) else list(texts)
    check_size(result)
    return result


async def score(service: Service, body: ScoreBody, call: Call) -> dict[str, Any]:
    """log p of each token of a text, and of the end token."""
    name, task = service.find(body.model, Translator, Generator)
    targets = text_list(body.target)
    if isinstance(task, Generator):
        if body.source is not None:
            raise APIError(
                400, "source: not supported by a language model; send the text as target", "source"
            )
        scores = await service.run(
            name, lambda: [list(each) for each in task.score(targets)], call, about(targets)
        )
    else:
        if body.source is None:
            raise APIError(400, "source: field required by a translation model", "source")
        sources = text_list(body.source)
        if len(sources) != len(targets):
            raise APIError(
                400, f"{len(sources)} sources and {len(targets)} targets: the numbers must be equal", "target"
            )
        check_readable(task, sources, targets)
        scores = await service.run(
            name, lambda: [list(each) for each in task.score(sources, targets)], call, about(targets)
        )
    tokenizer = task.folder.target
    ids = [[*tokenizer.encode(target), tokenizer.end] for target in targets]
    service.metrics.add("tokens", sum(map(len, ids)), kind="read", model=name)
    pieces = [tokenizer.tokens(tokens) if len(tokens) == len(log_p) else [""] * len(log_p)
              for tokens, log_p in zip(ids, scores)]  # fmt: skip
    results = [
        {"log_probability": math.fsum(log_p), "pieces": tokens, "log_probabilities": log_p}
        for tokens, log_p in zip(pieces, scores)
    ]
    return {"model": name, "results": results}


def check_readable(task: Translator, sources: list[str], targets: list[str]) -> None:
    """Reject texts longer than the model's positions."""
    for field, texts, tokenizer in (
        ("source", sources, task.folder.source),
        ("target", targets, task.folder.target),
    ):
        most = max(map(len, tokenizer.encode_batch(texts)))
        if most > task.longest:
            message = f"{field}: a text has {most} tokens; the model reads {task.longest}"
            raise APIError(400, message, field)


async def fill(service: Service, body: FillBody, call: Call) -> dict[str, Any]:
    name, task = service.find(body.model, Filler)
    texts = text_list(body.text)
    fillings = await service.run(name, lambda: task.fill(texts, body.top_k), call, about(texts))
    results = [
        {
            "candidates": [{"text": c.text, "probability": c.probability} for c in each.candidates],
            "gaps": [
                [{"piece": guess.text, "probability": guess.probability} for guess in guesses]
                for guesses in each.guesses
            ],
        }
        for each in fillings
    ]
    return {"model": name, "results": results}


async def classify(service: Service, body: ClassifyBody, call: Call) -> dict[str, Any]:
    name, task = service.find(body.model, Classifier)
    texts = text_list(body.text)
    classifications = await service.run(name, lambda: task.classify(texts, body.top_k), call, about(texts))
    results = [
        {
            "labels": [{"name": label.name, "probability": label.probability} for label in each.labels],
            "cut": each.truncated,
        }
        for each in classifications
    ]
    return {"model": name, "results": results}


async def tag(service: Service, body: TagBody, call: Call) -> dict[str, Any]:
    name, task = service.find(body.model, Tagger)
    texts = text_list(body.text)
    taggings = await service.run(name, lambda: task.tag(texts), call, about(texts))
    results = [{"entities": [vars(entity) for entity in each.entities]} for each in taggings]
    return {"model": name, "results": results}


async def answer(service: Service, body: AnswerBody, call: Call) -> dict[str, Any]:
    name, task = service.find(body.model, Answerer)
    check_size([body.question, body.context])
    pairs = [(body.question, body.context)]
    size = about([body.question, body.context])
    answers = await service.run(
        name, lambda: task.answer_pairs(pairs, body.top_k, body.no_answer), call, size
    )
    return {"model": name, "results": [vars(item) for item in answers[0].answers]}


async def limits(service: Service, _: None, __: Call) -> dict[str, Any]:
    batch_limits = {f"desk_{name}": value for name, value in vars(service.limits).items()}
    return service.bounds.as_dict() | batch_limits


async def live(service: Service, _: None, __: Call) -> dict[str, str]:
    return {"status": "ok"}


async def ready(service: Service, _: None, __: Call) -> dict[str, str]:
    await service.ready()
    return {"status": "ready"}


async def metrics(service: Service, _: None, __: Call) -> PlainTextResponse:
    return PlainTextResponse(service.metrics_text(), media_type="text/plain; version=0.0.4")


GROUP = "Regard"
ROUTES = [
    Route("POST", "/api/v1/score", GROUP, "Log-probability of given texts, by token.", score, ScoreBody,
          ScoreResponse, refuses=(404,)),
    Route("POST", "/api/v1/fill", GROUP, "Fill in <mask> tokens.", fill, FillBody, FillResponse,
          refuses=(404,)),
    Route("POST", "/api/v1/classify", GROUP, "Classify texts.", classify, ClassifyBody, ClassifyResponse,
          refuses=(404,)),
    Route("POST", "/api/v1/tag", GROUP, "Tag entities in texts.", tag, TagBody, TagResponse, refuses=(404,)),
    Route("POST", "/api/v1/answer", GROUP, "Extract the answer to a question from a context.", answer,
          AnswerBody, AnswerResponse, refuses=(404,)),
    Route("GET", "/api/v1/limits", GROUP, "The limits of the server.", limits, gives=dict[str, float | None]),
    Route("GET", "/health/live", GROUP, "Whether the server runs.", live, gives=HealthStatus, open=True),
    Route("GET", "/health/ready", GROUP, "Whether every model responds.", ready, gives=HealthStatus,
          refuses=(503,)),
    Route("GET", "/metrics", GROUP, "Prometheus metrics.", metrics, media="text/plain"),
]  # fmt: skip
