"""What all routes share: models with their schedulers, limits, keys, metrics and the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from regard.errors import near_miss
from regard.generation import Request
from regard.inputs.language import Detector
from regard.server.errors import APIError
from regard.server.keys import Keys
from regard.server.requests import ServerLimits
from regard.server.service_scheduler import CALL_TOKENS, BatchLimits, Full, ServiceScheduler, TooLate
from regard.server.telemetry import Log, ServerMetrics
from regard.tasks import Answerer, Classifier, Embedder, Filler, Generator, Tagger, Translator

T = TypeVar("T")
TASK_ROUTES = {  # the route of each task
    Translator: "/translate",
    Generator: "/v1/completions",
    Embedder: "/v1/embeddings",
    Filler: "/api/v1/fill",
    Classifier: "/api/v1/classify",
    Tagger: "/api/v1/tag",
    Answerer: "/api/v1/answer",
}
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
    draining: bool = False
    in_flight: int = 0

    def __post_init__(self) -> None:
        self.schedulers = {name: ServiceScheduler(task, self.limits) for name, task in self.models.items()}
        self.detector = Detector()
        self.pairs = pairs_of(self.models)
        self.probed_at = 0.0

    def find(self, name: str, *kinds: type[Any]) -> tuple[str, Any]:
        """The model called `name`, or the first of one of these kinds if `name` is empty."""
        if not name:
            for candidate, task in self.models.items():
                if isinstance(task, kinds):
                    return candidate, task
            raise APIError(404, "no model of this server supports this request", "model", "model_not_found")
        if name not in self.models:
            hint = near_miss(name, self.models) or f"; there are {', '.join(self.models)}"
            raise APIError(404, f'model: there is no "{name}"{hint}', "model", "model_not_found")
        task = self.models[name]
        if not isinstance(task, kinds):
            raise APIError(
                400, f'model: "{name}" cannot do this; ask it at {TASK_ROUTES[type(task)]}', "model"
            )
        return name, task

    async def run(self, name: str, work: Callable[[], T], call: Call, tokens: int = 1) -> T:
        """Run `work` on a model between decoding steps; `tokens` estimates its size."""
        return await self.schedulers[name].run(work, call.client, call.deadline, max(1, tokens))

    def full(self) -> Full | None:
        """The error of any request while all queues are full; None if one has room."""
        full: Full | None = None
        for scheduler in self.schedulers.values():
            full = scheduler.full(CALL_TOKENS)
            if full is None:
                return None
        return full

    def check_capacity(self) -> None:
        """Raise Full, counted at every scheduler, if all queues are full."""
        if (full := self.full()) is not None:
            for scheduler in self.schedulers.values():
                scheduler.counts["refused"] += 1
            raise full

    def note(
        self, route: str, method: str, status: int, seconds: float, number: str, key: str | None
    ) -> None:
        """Count a finished request and log it."""
        self.metrics.add("requests", route=route, method=method, status=str(status))
        self.metrics.observe("seconds", seconds, route=route)
        self.log(
            "request",
            id=number,
            method=method,
            route=route,
            status=status,
            seconds=round(seconds, 4),
            key=key,
        )

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
            for name, task in self.models.items():
                await asyncio.wait_for(self.probe(name, task, call), READY_SECONDS)
        except (TooLate, TimeoutError):
            raise APIError(503, "a model did not respond in time", retry_after=5) from None
        except Full:
            return  # busy, so it works
        self.probed_at = time.monotonic()

    async def probe(self, name: str, task: Any, call: Call) -> None:
        """One small real request."""
        if isinstance(task, Translator | Generator):
            tokenizer = task.folder.source
            ids: Sequence[int] = tokenizer.encode("1")[:4]
            ids = task.source_ids(ids) if isinstance(task, Translator) else task.with_start(ids)
            options = task.folder.decode.model_copy(update={"beam": 1, "max_length": 1, "sample": False})
            await self.schedulers[name].generate([Request(ids, options)], call.client, call.deadline)
        else:
            await self.run(name, lambda: probe_task(task), call)

    def metrics_text(self) -> str:
        self.metrics.set("in_flight", self.in_flight)
        self.metrics.set("draining", self.draining)
        self.metrics.set("tasks", len(asyncio.all_tasks()))
        for name, scheduler in self.schedulers.items():
            for what, value in scheduler.counters().items():
                self.metrics.set("desk", value, model=name, what=what)
        return self.metrics.text()

    def close(self) -> None:
        for scheduler in self.schedulers.values():
            scheduler.close()


def probe_task(task: Any) -> None:
    match task:
        case Embedder():
            task.embed("1")
        case Filler():
            task.fill("<mask>", 1)
        case Classifier():
            task.classify("1")
        case Tagger():
            task.tag("1")
        case Answerer():
            task.answer("1", "1")


def pairs_of(models: Mapping[str, Any]) -> dict[tuple[str, str], tuple[str, Translator]]:
    """The translator of each (source, target) language pair; the first model wins."""
    pairs: dict[tuple[str, str], tuple[str, Translator]] = {}
    for name, task in models.items():
        if not isinstance(task, Translator):
            continue
        source, languages = task.folder.task.source, task.folder.source.languages
        for target in languages or (task.folder.task.target,):
            chosen = task.into(target) if languages else task
            pairs.setdefault((source, target), (name, chosen))
    return pairs
