"""A completion as it comes: server-sent events, of several choices in turn."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

from regard.decode import Hypothesis, Wish
from regard.errors import RegardError
from regard.serve.api.asked import CompletionBody, Prompt, framed, most_tokens, usage, wishes_of
from regard.serve.api.spelling import Speller
from regard.serve.refusals import Refused, refusal
from regard.serve.service import Call, Service
from regard.tasks import Generator


async def streamed(
    service: Service, name: str, generator: Generator, prompts: list[Prompt], body: CompletionBody, call: Call
) -> StreamingResponse:
    """Server-sent events. What is refused is so before the first of them."""
    begun = time.monotonic()
    events = spell(service, name, generator, prompts, body, call)
    first = await anext(events)
    service.metrics.observe("first", time.monotonic() - begun, model=name)

    async def lines() -> AsyncIterator[str]:
        try:
            yield line(first)
            async for event in events:
                yield line(event)
        except RegardError as error:
            told = refusal("/v1/", Refused(503, service.told(str(error)), code="timeout"))
            yield f"data: {bytes(told.body).decode()}\n\n"
        finally:
            await events.aclose()
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def line(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


async def spell(
    service: Service, name: str, generator: Generator, prompts: list[Prompt], body: CompletionBody, call: Call
) -> AsyncGenerator[dict[str, Any]]:
    """The events of all choices as they come, each a completion with a part of one choice's text."""
    frame, n = framed(body), body.n or 1
    every = [prompt for prompt in prompts for _ in range(n)]
    found: asyncio.Queue[tuple[int, str, str | None, int]] = asyncio.Queue()
    desk, most = service.desks[name], most_tokens(body)

    async def one(index: int, prompt: Prompt, wish: Wish) -> None:
        if not most:
            found.put_nowait((index, prompt.text if body.echo else "", "length", 0))
            return
        speller, count, ended = Speller(generator.tokenizer, prompt.ids, body.stops), 0, False
        if body.echo:
            found.put_nowait((index, prompt.text, None, 0))
        pieces = desk.stream(wish, call.client, call.deadline)
        try:
            async for each in pieces:
                if isinstance(each, Hypothesis):
                    ended = each.finished
                    break
                count += len(each)
                if text := speller.add(each):
                    found.put_nowait((index, text, None, 0))
                if speller.stopped:
                    break
        finally:
            await pieces.aclose()
        reason = "stop" if ended or speller.stopped else "length"
        found.put_nowait((index, speller.end(), reason, count))

    wishes = wishes_of(generator, prompts, body)
    running = asyncio.ensure_future(together(one(i, p, w) for i, (p, w) in enumerate(zip(every, wishes))))
    written, left = 0, len(every)
    try:
        while left:
            getting = asyncio.ensure_future(found.get())
            await asyncio.wait([getting, running], return_when=asyncio.FIRST_COMPLETED)
            if not getting.done() and found.empty():
                getting.cancel()
                raise running.exception() or RegardError("the work ended too soon")
            index, text, reason, count = await getting
            written, left = written + count, left - (reason is not None)
            part = {"index": index, "text": text, "finish_reason": reason, "logprobs": None}
            yield {**frame, "choices": [part]}
        total = usage(service, name, prompts, written)
        if body.stream_options is not None and body.stream_options.include_usage:
            yield {**frame, "usage": total}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def together(work: Any) -> list[Any]:
    """All of it; what fails ends the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as several:
        raise first_of(several) from None
    return [task.result() for task in tasks]


def first_of(error: BaseException) -> BaseException:
    """What went wrong first in a group of tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
