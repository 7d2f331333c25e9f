"""OpenAI-compatible routes: `/v1/completions`, `/v1/embeddings`, `/v1/models`."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from regard.generation import Hypothesis
from regard.server.api.completions import (
    Completion,
    CompletionBody,
    CompletionText,
    Detokenizer,
    Prompt,
    check,
    check_room,
    completion_frame,
    decode_requests,
    most_tokens,
    prompts_of,
    read,
    usage,
)
from regard.server.api.native import check_size, run_task, translate
from regard.server.api.streaming import (
    TokenLogprob,
    as_logprobs,
    line,
    prompt_begins,
    stream_completion,
    together,
    token_logprobs,
    without_first_logprob,
)
from regard.server.errors import APIError, OpenAIErrorBody, responses
from regard.server.requests import MOST_TEXTS, RequestBody, Text, finite
from regard.server.scheduler import ResultStream
from regard.server.service import Call, Service, TheCall, TheService, route_of
from regard.tasks import Embedder, Generator, Translator
from regard.tasks.loading import CLASSES
from regard.tasks.spec import TASKS


class EmbeddingBody(RequestBody):
    model: str = Field(max_length=1000)
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = Field(None, max_length=1000)


class EmbeddingItem(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(BaseModel):
    object: Literal["list"]
    data: list[EmbeddingItem]
    model: str
    usage: EmbeddingUsage


class ModelItem(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    object: Literal["list"]
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
    count = await asyncio.to_thread(lambda: sum(map(len, embedder.tokenizer.encode_batch(texts))))
    service.metrics.add("tokens", count, kind="read", model=name)
    vectors = [each.vector.astype("<f4") for each in embedded]
    coded = [
        base64.b64encode(vector.tobytes()).decode() if body.encoding_format == "base64" else vector.tolist()
        for vector in vectors
    ]
    return EmbeddingResponse(
        object="list",
        data=[EmbeddingItem(object="embedding", index=at, embedding=each) for at, each in enumerate(coded)],
        model=body.model,
        usage=EmbeddingUsage(prompt_tokens=count, total_tokens=count),
    )


@router.get("/models", summary="List the models.")
async def models(service: TheService) -> ModelList:
    data = [ModelItem(id=name, object="model", created=0, owned_by="local") for name in service.models]
    return ModelList(object="list", data=data)


STREAMS = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}


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
    if body.stream:
        return await stream_completion(service, name, task, prompts, body, call)
    generated = await write(service, name, task, prompts, body, call)
    frame = completion_frame(body)
    places = await probabilities(service, name, task, generated, body, call)
    frame["choices"] = await asyncio.to_thread(
        lambda: [choice(task, *each, body, logprobs) for each, logprobs in zip(enumerate(generated), places)]
    )
    frame["usage"] = usage(service, name, prompts, sum(len(each.ids) for each in generated))
    return JSONResponse(finite(frame))


async def write(
    service: Service, name: str, generator: Generator, prompts: list[Prompt], body: CompletionBody, call: Call
) -> list[CompletionText]:
    """The choices, ordered by prompt."""
    draws, n = max(body.n or 1, body.best_of or 1), body.n or 1
    every = [prompt for prompt in prompts for _ in range(draws)]
    if most_tokens(body) == 0:
        return [CompletionText(prompt, (), "", 0.0, False) for prompt in prompts for _ in range(n)]
    scheduler, requests = service.schedulers[name], decode_requests(generator, prompts, body)
    if body.stops:
        async with scheduler.streams(requests, call.client, call.deadline) as streams:
            speak = (
                generate_until_stop(each, generator, prompt, body.stops)
                for each, prompt in zip(streams, every)
            )
            generated = list(await together(speak))
        if draws > n:
            generated = await with_scores(service, name, generator, generated, call)
    else:
        hypotheses = await scheduler.generate(requests, call.client, call.deadline)
        generated = await asyncio.to_thread(
            lambda: [detokenized(generator, prompt, nbest[0]) for prompt, nbest in zip(every, hypotheses)]
        )
    rows = [generated[at : at + draws] for at in range(0, len(generated), draws)]
    return [each for row in rows for each in best(row, n)]


def best(draws: list[CompletionText], count: int) -> list[CompletionText]:
    """The `count` draws with the highest log-probability per token."""
    return sorted(draws, key=lambda each: -each.score)[:count] if len(draws) > count else draws


def detokenized(generator: Generator, prompt: Prompt, hypothesis: Hypothesis) -> CompletionText:
    speller = Detokenizer(generator.tokenizer, prompt.ids)
    text = speller.add(hypothesis.tokens) + speller.end()
    return CompletionText(
        prompt, hypothesis.tokens, text, hypothesis.score, hypothesis.finished, tuple(speller.begins)
    )


async def with_scores(
    service: Service, name: str, generator: Generator, generated: list[CompletionText], call: Call
) -> list[CompletionText]:
    """Set the log-probability per token of draws that ended at a stop sequence, which have no score yet."""
    rows = [[*each.prompt.ids, *each.ids] for each in generated]
    logprobs = await service.run(name, lambda: token_logprobs(generator, rows, 0), call, sum(map(len, rows)))
    new_logprobs = [
        places[len(each.prompt.ids) :][: len(each.begins)] for each, places in zip(generated, logprobs)
    ]
    means = [
        fmean(place.log_p or 0.0 for place in places) if places else -math.inf for places in new_logprobs
    ]
    return [replace(each, score=score) for each, score in zip(generated, means)]


async def generate_until_stop(
    pieces: ResultStream, generator: Generator, prompt: Prompt, stops: Sequence[str]
) -> CompletionText:
    """Generate until a stop sequence, then cancel the request."""
    speller, ids, text = Detokenizer(generator.tokenizer, prompt.ids, stops), list[int](), ""
    score, ended = 0.0, False
    try:
        async for each in pieces:
            if isinstance(each, Hypothesis):
                score, ended = each.score, each.finished
                break
            ids += each
            text += speller.add(each)
            if speller.stopped:
                break
    finally:
        await pieces.aclose()
    text += speller.end()
    begins = [begin for begin in speller.begins if not speller.stopped or begin < len(text)]
    return CompletionText(prompt, tuple(ids), text, score, ended or speller.stopped, tuple(begins))


async def probabilities(
    service: Service,
    name: str,
    generator: Generator,
    generated: list[CompletionText],
    body: CompletionBody,
    call: Call,
) -> list[list[TokenLogprob]]:
    """Log-probabilities of the tokens of prompt and text of each choice, in one batched pass."""
    count = body.logprobs
    if count is None:
        return [[] for _ in generated]
    rows = [[*each.prompt.ids, *each.ids] for each in generated]
    return await service.run(name, lambda: token_logprobs(generator, rows, count), call, sum(map(len, rows)))


def choice(
    generator: Generator,
    index: int,
    generated: CompletionText,
    body: CompletionBody,
    places: list[TokenLogprob],
) -> dict[str, Any]:
    text = generated.prompt.text + generated.text if body.echo else generated.text
    result: dict[str, Any] = {"index": index, "text": text, "logprobs": None}
    result["finish_reason"] = "stop" if generated.ended else "length"
    if body.logprobs is not None:
        tokenizer, size, shown = generator.tokenizer, len(generated.prompt.ids), len(generated.prompt.shown)
        begins = tuple(len(generated.prompt.text) + begin for begin in generated.begins)
        logprobs = places[size : size + len(begins)]  # without tokens behind a stop sequence
        if body.echo:
            begins = (*prompt_begins(tokenizer, generated.prompt), *begins)
            logprobs = [*without_first_logprob(places[size - shown : size]), *logprobs]
        result["logprobs"] = as_logprobs(
            tokenizer, logprobs, begins, bare=bool(body.echo) and text[:1] != " "
        )
    return result


async def complete_by_translating(
    service: Service, name: str, translator: Translator, body: CompletionBody, call: Call
) -> Any:
    """Completions of a translation model: the prompt is the source, the text its translation."""
    if body.echo:
        raise APIError(400, "echo: not supported by a translation model; use /api/v1/score", "echo")
    if body.logprobs is not None:
        raise APIError(400, "logprobs: not supported by a translation model; use /api/v1/score", "logprobs")
    prompts = [each for each in prompts_of(body) if isinstance(each, str)]
    if not prompts:
        raise APIError(400, "prompt: a translation model needs a text", "prompt")
    for field in ("temperature", "seed", "best_of"):
        if getattr(body, field):
            raise APIError(400, f"{field} is not supported by a translation model", field)
    if body.top_p not in (None, 1.0):
        raise APIError(400, "top_p is not supported by a translation model", "top_p")
    translations = await translate(service, name, translator, prompts, call, body.n or 1)
    choices, total = await asyncio.to_thread(translated_choices, translator, prompts, translations, body)
    if not body.stream:
        return JSONResponse({**completion_frame(body), "choices": choices, "usage": total})
    frame = completion_frame(body)
    events = [line({**frame, "choices": [each]}) for each in choices]
    if body.stream_options is not None and body.stream_options.include_usage:
        events.append(line({**frame, "usage": total}))
    return StreamingResponse(iter([*events, "data: [DONE]\n\n"]), media_type="text/event-stream")


def translated_choices(
    translator: Translator, prompts: list[str], translations: list[list[str]], body: CompletionBody
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The choices of a completion, and its usage."""
    choices: list[dict[str, Any]] = []
    n = body.n or 1
    for candidates in translations:
        for text in [*candidates, *[candidates[-1]] * n][:n]:
            cut, reason = shortened(translator, text, body)
            choices.append({"index": len(choices), "text": cut, "finish_reason": reason, "logprobs": None})
    read, written = (
        sum(len(each) for each in tokenizer.encode_batch(texts))
        for tokenizer, texts in (
            (translator.folder.source, prompts),
            (translator.folder.target, [each["text"] for each in choices]),
        )
    )
    return choices, {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


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
