"""Streams a completion as server-sent events, and log p of each token of a text under a language model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from starlette.responses import StreamingResponse

from regard.batch import collate
from regard.errors import RegardError
from regard.generation import Hypothesis, Request
from regard.generation.generate import batches_by_length
from regard.generation.requests import first_tokens
from regard.inputs.text import Tokenizer
from regard.models.cache import BLOCK, Cache
from regard.sample import Sample
from regard.server.api.completions import (
    CompletionBody,
    Detokenizer,
    Prompt,
    completion_frame,
    decode_requests,
    most_tokens,
    usage,
)
from regard.server.errors import APIError, error_response
from regard.server.scheduler import ResultStream
from regard.server.service import Call, Service
from regard.tasks import Generator

T = TypeVar("T")
MOST_NUMBERS = 1 << 26  # of one batch: rows * tokens * vocabulary


async def stream_completion(
    service: Service, name: str, generator: Generator, prompts: list[Prompt], body: CompletionBody, call: Call
) -> StreamingResponse:
    """Server-sent events; invalid requests raise before the first one."""
    start = time.monotonic()
    events = stream_events(service, name, generator, prompts, body, call)
    first = await anext(events)
    service.metrics.observe("first", time.monotonic() - start, model=name)

    async def lines() -> AsyncIterator[str]:
        try:
            yield line(first)
            async for event in events:
                yield line(event)
        except RegardError as error:
            response = error_response(
                "/v1/", APIError(503, service.without_paths(str(error)), code="timeout")
            )
            yield f"data: {bytes(response.body).decode()}\n\n"
        finally:
            await events.aclose()
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def line(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


@dataclass(frozen=True)
class StreamPart:
    """The part of one choice in an event."""

    index: int
    text: str
    logprobs: dict[str, Any] | None = None
    reason: str | None = None  # finish_reason, in the last part
    written: int = 0  # tokens, in the last part


async def stream_events(
    service: Service, name: str, generator: Generator, prompts: list[Prompt], body: CompletionBody, call: Call
) -> AsyncGenerator[dict[str, Any]]:
    """The events of all choices, each with a part of the text of one choice."""
    frame, n = completion_frame(body), body.n or 1
    every = [prompt for prompt in prompts for _ in range(n)]
    queue: asyncio.Queue[StreamPart] = asyncio.Queue()
    speak = ChoiceStreamer(service, name, generator, body, call, queue.put_nowait)
    running = asyncio.ensure_future(speak.all(every, decode_requests(generator, prompts, body)))
    written, left = 0, len(every)
    try:
        while left:
            getting = asyncio.ensure_future(queue.get())
            await asyncio.wait([getting, running], return_when=asyncio.FIRST_COMPLETED)
            if not getting.done() and queue.empty():
                getting.cancel()
                raise running.exception() or RegardError("generation ended unexpectedly")
            part = await getting
            written, left = written + part.written, left - (part.reason is not None)
            choice = {"index": part.index, "text": part.text, "finish_reason": part.reason}
            yield {**frame, "choices": [{**choice, "logprobs": part.logprobs}]}
        total = usage(service, name, prompts, written)
        if body.stream_options is not None and body.stream_options.include_usage:
            yield {**frame, "usage": total}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@dataclass(frozen=True)
class ChoiceStreamer:
    """Runs the choices of a request and emits their parts."""

    service: Service
    name: str
    generator: Generator
    body: CompletionBody
    call: Call
    tell: Callable[[StreamPart], None]

    async def all(self, prompts: list[Prompt], requests: list[Request]) -> None:
        scheduler = self.service.schedulers[self.name]
        wanted = requests if most_tokens(self.body) else []
        async with scheduler.streams(wanted, self.call.client, self.call.deadline) as streams:
            pairs = zip(prompts, [*streams, *[None] * (len(prompts) - len(streams))])
            await together(self.one(index, *pair) for index, pair in enumerate(pairs))

    async def one(self, index: int, prompt: Prompt, pieces: ResultStream | None) -> None:
        body, count, ended = self.body, 0, False
        speller, places = (
            Detokenizer(self.generator.tokenizer, prompt.ids, body.stops),
            ChoiceLogprobs(self, prompt),
        )
        if body.echo or pieces is None:
            text = prompt.text if body.echo else ""
            logprobs = await places.of_prompt() if body.echo else places.empty()
            self.tell(StreamPart(index, text, logprobs, "length" if pieces is None else None))
        if pieces is None:
            return
        try:
            async for each in pieces:
                if isinstance(each, Hypothesis):
                    ended = each.finished
                    break
                count += len(each)
                await places.read(each)
                if text := speller.add(each):
                    self.tell(StreamPart(index, text, places.news(speller)))
                if speller.stopped:
                    break
        finally:
            await pieces.aclose()
        reason = "stop" if ended or speller.stopped else "length"
        text = speller.end()
        self.tell(StreamPart(index, text, places.news(speller), reason, count))


class ChoiceLogprobs:
    """Log-probabilities of the tokens of one choice, emitted with their text; None if not requested."""

    def __init__(self, speaking: ChoiceStreamer, prompt: Prompt) -> None:
        self.streamer, self.prompt = speaking, prompt
        self.count = speaking.body.logprobs
        self.following = IncrementalLogprobs(speaking.generator, prompt.ids, self.count or 0)
        self.places: list[TokenLogprob] = []
        self.emitted = 0

    async def run(self, work: Callable[[], T], tokens: int) -> T:
        return await self.streamer.service.run(self.streamer.name, work, self.streamer.call, tokens)

    def empty(self) -> dict[str, Any] | None:
        return None if self.count is None else self.listed([], [])

    def listed(self, places: list[TokenLogprob], begins: list[int], bare: bool = False) -> dict[str, Any]:
        return as_logprobs(self.streamer.generator.tokenizer, places, begins, bare)

    async def of_prompt(self) -> dict[str, Any] | None:
        """Those of the prompt; its first token has none."""
        if self.count is None:
            return None
        generator, ids, count = self.streamer.generator, self.prompt.ids, self.count
        (places,) = await self.run(lambda: token_logprobs(generator, [ids], count), len(ids))
        logprobs = without_first_logprob(places[len(ids) - len(self.prompt.shown) :])
        begins = prompt_begins(generator.tokenizer, self.prompt)
        return self.listed(logprobs, begins, bare=self.prompt.text[:1] != " ")

    async def read(self, pieces: list[int]) -> None:
        if self.count is not None:
            self.places += await self.run(lambda: self.following.add(pieces), len(pieces))

    def news(self, speller: Detokenizer) -> dict[str, Any] | None:
        """Those of the tokens being emitted, without tokens behind a stop sequence."""
        if self.count is None:
            return None
        first, until = self.emitted, len(speller.begins)
        while speller.stopped and until > first and speller.begins[until - 1] >= len(speller.text):
            until -= 1
        self.emitted = max(first, until)
        begins = [len(self.prompt.text) + begin for begin in speller.begins[first:until]]
        return self.listed(self.places[first:until], begins)


async def together(work: Any) -> list[Any]:
    """Await all; the first error cancels the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as several:
        raise first_of(several) from None
    return [task.result() for task in tasks]


def first_of(error: BaseException) -> BaseException:
    """The first error of an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(frozen=True)
class TokenLogprob:
    """A token with its log p and the best alternatives; the first token of a text has no log p."""

    piece: int
    log_p: float | None
    best: tuple[tuple[int, float], ...] = ()


@torch.no_grad()
def token_logprobs(
    generator: Generator, rows: Sequence[Sequence[int]], count: int
) -> list[list[TokenLogprob]]:
    """The log-probabilities of each row of ids; the first token of a row has none."""
    result: list[list[TokenLogprob]] = [[TokenLogprob(row[0], None)] for row in rows]
    lengths = [len(row) - 1 for row in rows]
    for numbers in batches_by_length(lengths, max(1, MOST_NUMBERS // len(generator.tokenizer))):
        numbers = [number for number in numbers if lengths[number]]
        if not numbers:
            continue
        samples = [Sample(target=rows[n][:-1], labels=rows[n][1:]) for n in numbers]
        batch = collate(samples, BLOCK).to(generator.device)
        logits = generator.model(batch)
        for at, number in enumerate(numbers):
            log_p = logits[at, : lengths[number]].float().log_softmax(dim=-1)  # [T,V]
            targets = torch.tensor(rows[number][1:], device=log_p.device)
            target_log_p = log_p.gather(1, targets[:, None])[:, 0].tolist()
            values, ids = log_p.topk(min(max(count, 1), log_p.shape[1]), dim=1)
            for piece, value, best, which in zip(
                targets.tolist(), target_log_p, values.tolist(), ids.tolist()
            ):
                result[number].append(TokenLogprob(piece, value, tuple(zip(which, best))[:count]))
    return result


class IncrementalLogprobs:
    """Log-probabilities of tokens as they arrive, from a second pass of the model beside the search."""

    def __init__(self, generator: Generator, prompt: Sequence[int], count: int) -> None:
        self.generator, self.prompt, self.count = generator, prompt, count
        self.state: Cache | None = None
        self.last = torch.empty(0)  # next input: [1,1]

    @torch.no_grad()
    def add(self, pieces: Sequence[int]) -> list[TokenLogprob]:
        model, result = self.generator.model, list[TokenLogprob]()
        if self.state is None:
            samples = [Sample(source=list(self.prompt))]
            self.state = model.start(collate(samples, BLOCK).to(self.generator.device))
            self.last = first_tokens(self.state, self.generator.special, self.generator.device)
        for piece in pieces:
            logits, self.state = model.step(self.state, self.last)
            log_p = logits[0, -1].float().log_softmax(dim=-1)  # [V]
            best, which = log_p.topk(min(self.count, len(log_p)))
            result.append(TokenLogprob(piece, float(log_p[piece]), tuple(zip(which.tolist(), best.tolist()))))
            self.last = torch.full_like(self.last, piece)
        return result


def prompt_begins(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    """The character offset of each token of a prompt."""
    speller = Detokenizer(tokenizer, prompt.ids[: len(prompt.ids) - len(prompt.shown)])
    speller.add(prompt.shown)
    return speller.begins


def without_first_logprob(places: Sequence[TokenLogprob]) -> list[TokenLogprob]:
    """The first token of a text has no context, so no log p."""
    return [replace(place, log_p=None, best=()) for place in places[:1]] + list(places[1:])


def as_logprobs(
    tokenizer: Tokenizer, places: Sequence[TokenLogprob], begins: Sequence[int], bare: bool
) -> dict[str, Sequence[object]]:
    """OpenAI's logprobs object. `bare`: the text starts without a space that its first token may have."""
    pieces = tokenizer.tokens([place.piece for place in places])
    if bare and pieces:
        pieces[0] = pieces[0].removeprefix(" ")
    best: list[dict[str, float] | None] = []
    for name, place in zip(pieces, places):
        if place.log_p is None:
            best.append(None)
            continue
        names = tokenizer.tokens([piece for piece, _ in place.best])
        top = {name: place.log_p}
        for other, (_, value) in zip(names, place.best):
            top[other] = max(value, top.get(other, value))
        best.append(top)
    return {
        "tokens": pieces,
        "token_logprobs": [place.log_p for place in places],
        "top_logprobs": best,
        "text_offset": list(begins),
    }
