"""What all routes share: models with their schedulers, limits, keys, metrics and the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from fastapi import Request as HTTPRequest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from regard.errors import RegardError
from regard.inputs.language import Detector
from regard.inputs.text.languages import source_language
from regard.server.connections import Connections
from regard.server.errors import APIError, unknown_model
from regard.server.keys import Keys
from regard.server.lessons import LESSONS, Lesson
from regard.server.media import FILE_ROUTES
from regard.server.requests import ServerLimits, sentence
from regard.server.scheduler import CALL_TOKENS, BatchLimits, Full, ModelCall, ServiceScheduler, TooLate
from regard.server.telemetry import Log, ServerMetrics
from regard.server.traces import Explorer
from regard.tasks import Embedder, Translator
from regard.tasks.spec import TASKS

T = TypeVar("T")
READY_SECONDS = 5.0  # timeout of the readiness probe
READY_AGAIN = 1.0  # seconds for which a probe counts


@dataclass(frozen=True)
class Call:
    """The client of a request, and its deadline (in `time.monotonic`)."""

    client: str = ""
    deadline: float | None = None
    number: str = ""  # of the request, for the log


@dataclass
class Service:
    models: Mapping[str, Any]
    bounds: ServerLimits = field(default_factory=ServerLimits)
    limits: BatchLimits = field(default_factory=BatchLimits)
    keys: Keys | None = None
    log: Log = field(default_factory=Log)
    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    lessons: Mapping[str, Lesson] = field(default_factory=lambda: LESSONS)
    draining: bool = False
    in_flight: int = 0
    unread_answers: int = 0  # bytes of large responses that are being sent

    def __post_init__(self) -> None:
        self.connections = Connections(self.bounds)
        self.explorer = Explorer(self.models)
        self.explorer_scheduler = ServiceScheduler(None, self.limits)  # traces and lessons: one at a time
        self.schedulers = {name: ServiceScheduler(task, self.limits) for name, task in self.models.items()}
        self.detector = Detector()
        self.pairs = pairs_of(self.models)
        self.probed_at = 0.0

    def find(self, name: str, *kinds: type[Any], files: bool = False) -> tuple[str, Any]:
        """The model called `name`, or the first of one of these kinds if `name` is empty.

        With `files` rather one that reads pictures or sounds, else rather one that reads texts.
        """
        if not name:
            able = [each for each in self.models.items() if isinstance(each[1], kinds)]
            if able:
                return min(able, key=lambda each: each[1].reads_files != files)  # the first of the best
            raise APIError(404, "no model of this server supports this request", "model", "model_not_found")
        if name not in self.models:
            raise unknown_model(name, self.models)
        task = self.models[name]
        if not isinstance(task, kinds):
            raise APIError(400, f'model: "{name}" cannot do this; ask it at {route_of(task)}', "model")
        return name, task

    def body_limit(self, path: str) -> int:
        """The largest body: larger for routes that take files, if a model reads them."""
        reads_files = any(task.reads_files for task in self.models.values())
        return self.bounds.media if reads_files and path in FILE_ROUTES else self.bounds.body

    async def run(self, name: str, work: Callable[[], T], call: Call, tokens: int = 1) -> T:
        """Run `work` on a model between decoding steps; `tokens` estimates its size."""
        return await self.schedulers[name].run(work, call.client, call.deadline, max(1, tokens))

    async def run_portions(self, name: str, portions: Sequence[ModelCall], call: Call) -> list[Any]:
        """Run several calls on a model; other clients have their turn between them."""
        return await self.schedulers[name].run_portions(portions, call.client, call.deadline)

    async def explore(self, work: Callable[[], T], call: Call, tokens: int) -> T:
        """Run a trace or a lesson, which may use several models, beside the decoding of all."""
        return await self.explorer_scheduler.run(work, call.client, call.deadline, max(1, tokens))

    def check_capacity(self, client: str) -> None:
        """Raise Full, counted at every scheduler, if the queues of all models are full for a client."""
        full = [scheduler.full(client, CALL_TOKENS) for scheduler in self.schedulers.values()]
        if full and all(full) and full[0] is not None:
            for scheduler in self.schedulers.values():
                scheduler.counts["refused"] += 1
            raise full[0]

    def api_error(self, error: Exception, path: str = "") -> APIError:
        """The response to an error; unexpected ones raise again, to be logged."""
        match error:
            case APIError():
                return error
            case Full(retry_after=seconds):
                self.metrics.add("refused")
                return APIError(429, f"Slowdown: {error}", retry_after=seconds)
            case TooLate():
                return APIError(503, str(error), code="timeout", retry_after=5)
            case RegardError():
                return APIError(400, self.without_paths(str(error)), code=error.code)
            case RequestValidationError():
                return validation_error(error, path)
            case HTTPException(status_code=status):
                return APIError(status, WORDS.get(status, "the request is not JSON in UTF-8"))
            case RecursionError():
                return APIError(400, "the request is nested too deeply")
            case MemoryError():
                return APIError(503, "not enough memory for this; try a shorter text", retry_after=5)
        raise error

    def without_paths(self, text: str) -> str:
        """A message with the paths of models replaced by their names."""
        for name, task in self.models.items():
            path = str(task.path if isinstance(task, Embedder) else task.folder.path)
            text = text.replace(path, name) if len(path) > 1 else text
        return text

    async def ready(self) -> None:
        """Return if every model responds; else raise APIError."""
        if self.draining:
            raise APIError(503, "the server is shutting down", retry_after=5)
        if time.monotonic() - self.probed_at < READY_AGAIN:
            return
        call = Call("readiness", time.monotonic() + READY_SECONDS)
        try:
            for name in self.models:  # a call between two steps: its worker is alive and not stuck
                await asyncio.wait_for(self.run(name, lambda: None, call), READY_SECONDS)
        except (TooLate, TimeoutError):
            raise APIError(503, "a model did not respond in time", retry_after=5) from None
        except Full:
            return  # busy, so it works
        self.probed_at = time.monotonic()

    def metrics_text(self) -> str:
        self.metrics.set("in_flight", self.in_flight)
        self.metrics.set("draining", self.draining)
        self.metrics.set("tasks", len(asyncio.all_tasks()))
        for name, scheduler in self.schedulers.items():
            for what, value in scheduler.counters().items():
                self.metrics.set("desk", value, model=name, what=what)
        return self.metrics.text()

    async def drain(self) -> None:
        """Fail what is pending."""
        for scheduler in (self.explorer_scheduler, *self.schedulers.values()):
            await scheduler.drain(0)

    def close(self) -> None:
        for scheduler in (self.explorer_scheduler, *self.schedulers.values()):
            scheduler.close()


WORDS = {404: "there is nothing at this address", 405: "method not allowed"}


def validation_error(error: RequestValidationError, path: str) -> APIError:
    """The first invalid field; a missing one of LibreTranslate's routes in its words."""
    first, *others = error.errors()
    if first["type"] == "string_type" and isinstance(first["input"], list):  # what is wrong with the list
        first = next((each for each in others if each["loc"][:2] == first["loc"][:2]), first)
    place = [str(each) for each in first["loc"] if each not in ("body", "query", "path")]
    field = place[0] if place and first["type"] != "json_invalid" else None
    if first["type"] == "missing" and field and not path.startswith(("/api/", "/v1/")):
        return APIError(400, f"Invalid request: missing {field} parameter", field)
    return APIError(400, f"{field or 'the request'}: {sentence(first)}", field)


async def service_of(request: HTTPRequest) -> Service:
    service: Service = request.app.state.service
    return service


async def call_of(request: HTTPRequest) -> Call:
    context, service = request.scope["regard"], request.app.state.service
    deadline = time.monotonic() + service.bounds.request_seconds
    return Call(context["client"], deadline, context["number"])


# what a route asks FastAPI for
TheService = Annotated[Service, Depends(service_of)]
TheCall = Annotated[Call, Depends(call_of)]


def route_of(task: Any) -> str:
    """The route of a model's task."""
    name = next(spec.name for spec in TASKS.values() if isinstance(task, spec.classes))
    return f"/api/v1/{name}"


def pairs_of(models: Mapping[str, Any]) -> dict[tuple[str, str], tuple[str, Translator]]:
    """The translator of each (source, target) language pair; the first model wins."""
    pairs: dict[tuple[str, str], tuple[str, Translator]] = {}
    for name, task in models.items():
        if not isinstance(task, Translator):
            continue
        source, languages = task.folder.task.source, task.folder.source.languages
        if task.folder.target.language_tokens and task.special.forced_bos is None:
            source = source_language(task.folder.source) or source
            languages = tuple(task.folder.target.language_tokens)
        for target in languages or (task.folder.task.target,):
            chosen = task.into(target) if languages else task
            pairs.setdefault((source, target), (name, chosen))
    return pairs
