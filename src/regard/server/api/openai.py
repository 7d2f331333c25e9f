"""OpenAI-compatible routes: `/v1/completions`, `/v1/embeddings`, `/v1/models`."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from statistics import fmean
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from regard.config.reading import finite
from regard.errors import RegardError
from regard.generation import Request
from regard.server.api.choices import Choice, IncrementalLogprobs, TokenLogprob, token_logprobs
from regard.server.api.completions import (
    Completion,
    CompletionBody,
    Prompt,
    check,
    check_room,
    completion_frame,
    decode_requests,
    most_tokens,
    prompts_of,
    read,
    usage_of,
)
from regard.server.api.native import check_size, run_task, translate
from regard.server.errors import APIError, OpenAIErrorBody, error_response, responses
from regard.server.requests import RequestBody, ResponseBody, Text, Texts
from regard.server.scheduler import ResultStream
from regard.server.service import Call, Service, TheCall, TheService, route_of
from regard.tasks import Embedder, Generator, Translator
from regard.tasks.loading import CLASSES
from regard.tasks.spec import TASKS


class EmbeddingBody(RequestBody):
    model: str = Field(max_length=1000)
    input: Text | Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = Field(None, max_length=1000)


class EmbeddingItem(ResponseBody):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(ResponseBody):
    object: Literal["list"] = "list"
    data: list[EmbeddingItem]
    model: str
    usage: EmbeddingUsage


class ModelItem(ResponseBody):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "local"


class ModelList(ResponseBody):
    object: Literal["list"] = "list"
    data: list[ModelItem]


router = APIRouter(prefix="/v1", tags=["OpenAI"], responses=responses(OpenAIErrorBody))


@router.post("/embeddings", summary="Embed texts.")
async def embeddings(service: TheService, body: EmbeddingBody, call: TheCall) -> EmbeddingResponse:
    name, embedder = service.find(body.model, Embedder)
    if body.dimensions not in (None, embedder.width):
        raise APIError(400, f"dimensions: this model has {embedder.width}", "dimensions")
    texts = [body.input] if isinstance(body.input, str) else list(body.input)
    check_size(texts)
    embedded = await run_task(service, TASKS["embed"], name, embedder, {"text": texts}, {}, call)
    count = (
        len(texts) * embedder.reader.most
        if embedder.reads_files
        else await asyncio.to_thread(lambda: sum(map(len, embedder.tokenizer.encode_batch(texts))))
    )
    service.metrics.add("tokens", count, kind="read", model=name)
    vectors = [each.vector.astype("<f4") for each in embedded]
    if body.encoding_format == "base64":
        coded = [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
    else:
        coded = [vector.tolist() for vector in vectors]
    data = [EmbeddingItem(index=index, embedding=each) for index, each in enumerate(coded)]
    usage = EmbeddingUsage(prompt_tokens=count, total_tokens=count)
    return EmbeddingResponse(data=data, model=body.model, usage=usage)


@router.get("/models", summary="List the models.")
async def models(service: TheService) -> ModelList:
    return ModelList(data=[ModelItem(id=name) for name in service.models])


@router.get("/models/{model:path}", summary="Show a model.")
async def show_model(service: TheService, model: str) -> ModelItem:
    return ModelItem(id=service.find(model, object)[0])


EVENTS, DONE = "text/event-stream", "data: [DONE]\n\n"
STREAMS = {"content": {EVENTS: {"schema": {"type": "string"}}}}


@router.post(
    "/completions", summary="Complete a prompt.", response_model=Completion, responses={200: STREAMS}
)
async def completions(service: TheService, body: CompletionBody, call: TheCall) -> Any:
    check(body)
    name, task = service.find(body.model, *CLASSES.values())
    if isinstance(task, Translator):
        return await complete_by_translating(service, name, task, body, call)
    if not isinstance(task, Generator):
        raise APIError(400, f'model: "{name}" does not generate text; use {route_of(task)}', "model")
    prompts = await asyncio.to_thread(lambda: [read(task, each) for each in prompts_of(body)])
    for prompt in prompts:
        check_room(task, prompt, body)
    run = CompletionRun(service, name, task, prompts, body, call)
    return await stream_completion(run) if body.stream else JSONResponse(finite(await run.complete()))


@dataclass(frozen=True)
class CompletionRun:
    """A request for completions by a language model."""

    service: Service
    name: str
    generator: Generator
    prompts: list[Prompt]
    body: CompletionBody
    call: Call

    def choices(self, draws: int) -> list[Choice]:
        """One for each draw of each prompt, ordered by prompt."""
        return [Choice(self.generator, prompt, self.body) for prompt in self.prompts for _ in range(draws)]

    def requests(self) -> list[Request]:
        return decode_requests(self.generator, self.prompts, self.body)

    def streams(self) -> AbstractAsyncContextManager[list[ResultStream]]:
        requests = self.requests() if most_tokens(self.body) else []
        return self.service.schedulers[self.name].streams(requests, self.call.client, self.call.deadline)

    async def logprobs(self, choices: Sequence[Choice], count: int) -> list[list[TokenLogprob]]:
        """Of all tokens of prompt and text of each choice, in one batched pass."""
        rows = [[*each.prompt.ids, *each.ids] for each in choices]
        work = partial(token_logprobs, self.generator, rows, count)
        return await self.service.run(self.name, work, self.call, sum(map(len, rows)))

    def usage(self, choices: Sequence[Choice]) -> dict[str, int]:
        read = sum(len(prompt.shown) for prompt in self.prompts)
        written = sum(len(each.ids) for each in choices)
        self.service.metrics.add("tokens", read, kind="read", model=self.name)
        self.service.metrics.add("tokens", written, kind="written", model=self.name)
        return usage_of(read, written)

    async def complete(self) -> dict[str, Any]:
        """The response that is not streamed."""
        body = self.body
        choices = await self.best() if most_tokens(body) else self.choices(body.n or 1)
        if body.logprobs is not None:
            for choice, row in zip(choices, await self.logprobs(choices, body.logprobs)):
                choice.set_logprobs(row)
        parts = await asyncio.to_thread(
            lambda: [choice.part(index, last=True) for index, choice in enumerate(choices)]
        )
        return {**completion_frame(body), "choices": parts, "usage": self.usage(choices)}

    async def best(self) -> list[Choice]:
        """The n draws of each prompt with the highest log-probability per token."""
        n, draws = self.body.n or 1, max(self.body.n or 1, self.body.best_of or 1)
        choices = self.choices(draws)
        if self.body.stops:
            async with self.streams() as streams:
                await together(until_stop(*each) for each in zip(choices, streams))
        else:
            scheduler = self.service.schedulers[self.name]
            hypotheses = await scheduler.generate(self.requests(), self.call.client, self.call.deadline)

            def detokenize() -> None:
                for choice, nbest in zip(choices, hypotheses):
                    choice.add(nbest[0].tokens)
                    choice.end(nbest[0])

            await asyncio.to_thread(detokenize)
        if draws == n:
            return choices
        if self.body.stops:  # what ended at a stop sequence has no score yet
            for choice, row in zip(choices, await self.logprobs(choices, 0)):
                new = row[len(choice.prompt.ids) :][: len(choice.detokenizer.begins)]
                choice.score = fmean(place.log_p or 0.0 for place in new) if new else -math.inf
        groups = [choices[at : at + draws] for at in range(0, len(choices), draws)]
        return [each for group in groups for each in sorted(group, key=lambda each: -each.score)[:n]]

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """The streamed response: each event has a part of the text of one choice."""
        frame, choices = completion_frame(self.body), self.choices(self.body.n or 1)
        queue: asyncio.Queue[dict[str, Any] | Exception | None] = asyncio.Queue()  # None is the end
        running = asyncio.ensure_future(self.stream_all(choices, queue.put_nowait))
        try:
            while (part := await queue.get()) is not None:
                if isinstance(part, Exception):
                    raise part
                yield {**frame, "choices": [part]}
            total = self.usage(choices)
            if self.body.include_usage:
                yield {**frame, "usage": total}
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def stream_all(self, choices: list[Choice], put: Callable[[Any], None]) -> None:
        try:
            async with self.streams() as streams:
                pairs = enumerate(zip_longest(choices, streams))
                await together(self.stream_one(index, *pair, put) for index, pair in pairs)
            put(None)
        except Exception as error:
            put(error)

    async def stream_one(
        self, index: int, choice: Choice, stream: ResultStream | None, put: Callable[[Any], None]
    ) -> None:
        count = self.body.logprobs
        if self.body.echo and count is not None:
            choice.set_logprobs((await self.logprobs([choice], count))[0])
        if stream is not None:
            if self.body.echo:
                put(choice.part(index))
            incremental = IncrementalLogprobs(self.generator, choice.prompt.ids, count or 0)
            async for tokens in choice.read(stream):
                if count is not None:
                    work = partial(incremental.add, tokens)
                    choice.logprobs += await self.service.run(self.name, work, self.call, len(tokens))
                if choice.text:
                    put(choice.part(index))
        put(choice.part(index, last=True))


async def until_stop(choice: Choice, stream: ResultStream) -> None:
    async for _ in choice.read(stream):
        pass


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await all; the first error cancels the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except BaseExceptionGroup as several:
        error: BaseException = several
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


async def stream_completion(run: CompletionRun) -> StreamingResponse:
    """Server-sent events; invalid requests raise before the first one."""
    start, service, events = time.monotonic(), run.service, run.events()
    first = await anext(events)
    service.metrics.observe("first", time.monotonic() - start, model=run.name)

    async def lines() -> AsyncIterator[str]:
        try:
            yield line(first)
            async for event in events:
                yield line(event)
        except RegardError as error:
            timeout = APIError(503, service.without_paths(str(error)), code="timeout")
            yield f"data: {bytes(error_response('/v1/', timeout).body).decode()}\n\n"
        finally:
            await events.aclose()
        yield DONE

    return StreamingResponse(lines(), media_type=EVENTS, headers={"X-Accel-Buffering": "no"})


def line(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


async def complete_by_translating(
    service: Service, name: str, translator: Translator, body: CompletionBody, call: Call
) -> Any:
    """Completions of a translation model: the prompt is the source, the text its translation."""
    unsupported = {
        "echo": body.echo,
        "logprobs": body.logprobs is not None,
        "temperature": body.temperature,
        "seed": body.seed,
        "best_of": body.best_of,
        "top_p": body.top_p not in (None, 1.0),
    }
    for field, wanted in unsupported.items():
        if wanted:
            hint = "; use /api/v1/score" if field in ("echo", "logprobs") else ""
            raise APIError(400, f"{field} is not supported by a translation model{hint}", field)
    prompts = [each for each in prompts_of(body) if isinstance(each, str)]
    if not prompts:
        raise APIError(400, "prompt: a translation model needs a text", "prompt")
    translations = await translate(service, name, translator, prompts, call, body.n or 1)
    choices, total = await asyncio.to_thread(translated_choices, translator, prompts, translations, body)
    frame = completion_frame(body)
    if not body.stream:
        return JSONResponse({**frame, "choices": choices, "usage": total})
    events = [line({**frame, "choices": [each]}) for each in choices]
    if body.include_usage:
        events.append(line({**frame, "usage": total}))
    return StreamingResponse(iter([*events, DONE]), media_type=EVENTS)


def translated_choices(
    translator: Translator, prompts: list[str], translations: list[list[str]], body: CompletionBody
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The choices of a completion, and its usage."""
    n, folder = body.n or 1, translator.folder
    texts = [text for each in translations for text in [*each, *[each[-1]] * n][:n]]
    choices = [
        {"index": index, "text": text, "finish_reason": reason, "logprobs": None}
        for index, (text, reason) in enumerate(shortened(translator, text, body) for text in texts)
    ]
    read = sum(map(len, folder.source.encode_batch(prompts)))
    written = sum(map(len, folder.target.encode_batch([choice["text"] for choice in choices])))
    return choices, usage_of(read, written)


def shortened(translator: Translator, text: str, body: CompletionBody) -> tuple[str, str]:
    """A translation cut at a stop sequence or after max_tokens, with its finish_reason."""
    places = [text.find(stop) for stop in body.stops if stop in text]
    text = text[: min(places)] if places else text
    if body.max_tokens is None or "max_tokens" not in body.model_fields_set:
        return text, "stop"
    pieces = translator.folder.target.encode(text)
    if len(pieces) <= body.max_tokens:
        return text, "stop"
    return translator.folder.target.decode(pieces[: body.max_tokens]), "length"
