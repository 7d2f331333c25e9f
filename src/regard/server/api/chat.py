"""`/v1/chat/completions`: a completion whose prompt is made of messages by the model's chat template."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from regard.config.reading import finite
from regard.errors import UsageError
from regard.generation import Request
from regard.generation.grammar import Grammar
from regard.server.api.completions import (
    CompletionBody,
    Prompt,
    Stop,
    StreamOptions,
    Usage,
    check,
    completion_frame,
)
from regard.server.api.native import check_size
from regard.server.api.openai import STREAMS, CompletionRun, stream_completion
from regard.server.errors import APIError, OpenAIErrorBody, responses
from regard.server.requests import LIMITS, RequestBody, Text
from regard.server.service import TheCall, TheService, route_of
from regard.tasks import Generator
from regard.tasks.loading import CLASSES

MAX_MESSAGES = 256
# of the chat API, refused unless they are null or empty
TOOLS = ("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls")


class TextPart(RequestBody):
    type: Literal["text"]
    text: Text


class ChatMessage(RequestBody):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | Annotated[list[TextPart], Field(max_length=LIMITS.texts)] | None = None
    name: str | None = Field(None, max_length=1000, description="ignored")
    refusal: str | None = Field(None, max_length=1000, description="ignored")
    tool_calls: Any = Field(None, description="not supported")
    tool_call_id: Any = Field(None, description="not supported")

    @property
    def text(self) -> str:
        parts = self.content if isinstance(self.content, list) else []
        return self.content if isinstance(self.content, str) else "".join(part.text for part in parts)


class TextFormat(RequestBody):
    type: Literal["text"]


class JSONFormat(RequestBody):
    type: Literal["json_object"]


class NamedSchema(RequestBody):
    name: str = Field(max_length=1000)
    description: str | None = Field(None, max_length=10_000)
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = Field(None, description="ignored: the schema always holds")


class SchemaFormat(RequestBody):
    type: Literal["json_schema"]
    json_schema: NamedSchema


class ChatBody(RequestBody):
    model: str = Field(max_length=1000)
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: int | None = Field(None, ge=1, le=LIMITS.max_tokens)
    max_completion_tokens: int | None = Field(None, ge=1, le=LIMITS.max_tokens)
    temperature: float | None = Field(None, ge=0, le=2, description="default 1")
    top_p: float | None = Field(1.0, ge=0, le=1)
    n: int | None = Field(1, ge=1, le=LIMITS.choices)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=LIMITS.logprobs)
    stop: Stop | Annotated[list[Stop], Field(max_length=LIMITS.stops)] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    user: str | None = Field(None, max_length=1000)
    presence_penalty: float | None = Field(0.0, description="only 0")
    frequency_penalty: float | None = Field(0.0, description="only 0")
    logit_bias: dict[str, float] | None = Field(None, description="not supported", max_length=300)
    response_format: TextFormat | JSONFormat | SchemaFormat | None = Field(None, discriminator="type")
    tools: Any = Field(None, description="not supported")
    tool_choice: Any = Field(None, description="not supported")
    functions: Any = Field(None, description="not supported")
    function_call: Any = Field(None, description="not supported")
    parallel_tool_calls: Any = Field(None, description="not supported")


class ChatTokenLogprob(BaseModel):
    token: str
    logprob: float | None
    bytes: list[int]
    top_logprobs: list[dict[str, Any]]


class ChatLogprobs(BaseModel):
    content: list[ChatTokenLogprob]


class AssistantMessage(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    finish_reason: Literal["stop", "length"] | None
    logprobs: ChatLogprobs | None


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None


router = APIRouter(prefix="/v1", tags=["OpenAI"], responses=responses(OpenAIErrorBody))


@router.post(
    "/chat/completions", summary="Answer a chat.", response_model=ChatCompletion, responses={200: STREAMS}
)
async def chat_completions(service: TheService, body: ChatBody, call: TheCall) -> Any:
    messages = messages_of(body)
    name, task = service.find(body.model, *CLASSES.values())
    if not isinstance(task, Generator):
        raise APIError(400, f'model: "{name}" does not chat; use {route_of(task)}', "model")
    if not task.tokenizer.settings.get("chat_template"):
        raise APIError(400, f'model: "{name}" has no chat template; use /v1/completions', "model")
    try:
        ids = await asyncio.to_thread(task.chat_ids, messages)
    except UsageError as error:  # the template refuses these messages
        raise APIError(400, service.without_paths(str(error)), "messages", "invalid_messages") from None
    as_completion = completion_of(body, ids, min(task.window, LIMITS.prompt_ids))
    check(as_completion)
    grammar = await asyncio.to_thread(grammar_of, task, body)
    run = ChatRun(service, name, task, [Prompt("", ids, given=True)], as_completion, call, grammar)
    return await stream_completion(run) if body.stream else JSONResponse(finite(await run.complete()))


def messages_of(body: ChatBody) -> list[dict[str, str]]:
    """The messages for a template; unsupported fields are refused rather than ignored."""
    fields = [name for name in TOOLS if getattr(body, name)]
    fields += ["messages" for each in body.messages if each.tool_calls or each.role in ("tool", "function")]
    if fields:
        raise APIError(400, f"{fields[0]}: tools are not supported", fields[0], "unsupported_parameter")
    check_size([each.text for each in body.messages])
    return [
        {"role": "system" if each.role == "developer" else each.role, "content": each.text}
        for each in body.messages
    ]


def grammar_of(task: Generator, body: ChatBody) -> Grammar | None:
    """The grammar of the response_format."""
    match body.response_format:
        case JSONFormat():
            schema: dict[str, Any] = {"type": "object"}
        case SchemaFormat(json_schema=named):
            schema = named.schema_
        case _:
            return None
    try:
        return task.structure(task.decode, (), schema)[1]
    except UsageError as error:
        raise APIError(400, f"response_format: {error}", "response_format", error.code) from None


def completion_of(body: ChatBody, ids: list[int], window: int) -> CompletionBody:
    """The same request as a completion; an answer may fill the window unless its length is given."""
    room = window - len(ids)
    wanted = body.max_completion_tokens or body.max_tokens
    if room < (wanted or 1):
        lengths = f"the messages have {len(ids)}, and max_tokens is {wanted or 1}"
        where = "messages" if room < 1 else "max_tokens"
        raise APIError(400, f"the model reads {window} tokens; {lengths}", where, "context_length_exceeded")
    names = ("temperature", "top_p", "n", "stream", "stream_options", "stop", "seed")
    more = ("presence_penalty", "frequency_penalty", "logit_bias")
    fields = {name: getattr(body, name) for name in (*names, *more)}
    return CompletionBody(
        model=body.model,
        prompt=ids,
        max_tokens=wanted or min(room, LIMITS.max_tokens),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        **fields,
    )


@dataclass(frozen=True)
class ChatRun(CompletionRun):
    """A completion in the shapes of a chat."""

    grammar: Grammar | None = None

    def requests(self) -> list[Request]:
        return [replace(each, grammar=self.grammar) for each in super().requests()]

    def check_grammar(self) -> None:
        if self.grammar is not None and self.grammar.error:
            raise APIError(400, f"response_format: {self.grammar.error}", "response_format", "E_JSON_SCHEMA")

    def frame(self, kind: str) -> dict[str, Any]:
        fields = {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind}
        return {**completion_frame(self.body), **fields}

    async def complete(self) -> dict[str, Any]:
        whole = await super().complete()
        self.check_grammar()
        choices = [
            {
                "index": each["index"],
                "message": {"role": "assistant", "content": each["text"], "refusal": None},
                "finish_reason": each["finish_reason"],
                "logprobs": chat_logprobs(each["logprobs"], self.body.logprobs or 0),
            }
            for each in whole["choices"]
        ]
        return {**self.frame("chat.completion"), "choices": choices, "usage": whole["usage"]}

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        frame, indexes = self.frame("chat.completion.chunk"), set[int]()
        async with aclosing(super().events()) as events:
            async for event in events:
                chunk = {**frame, **({"usage": event["usage"]} if "usage" in event else {})}
                for each in event["choices"]:
                    role = {} if each["index"] in indexes else {"role": "assistant"}
                    indexes.add(each["index"])
                    delta = {**role, **({"content": each["text"]} if each["text"] or role else {})}
                    chunk["choices"] = [
                        {
                            "index": each["index"],
                            "delta": delta,
                            "finish_reason": each["finish_reason"],
                            "logprobs": chat_logprobs(each["logprobs"], self.body.logprobs or 0),
                        }
                    ]
                yield chunk
        self.check_grammar()


def chat_logprobs(logprobs: dict[str, Any] | None, count: int) -> dict[str, Any] | None:
    """Log-probabilities as the chat API lists them."""
    if logprobs is None:
        return None

    def entry(token: str, value: float | None) -> dict[str, Any]:
        return {"token": token, "logprob": value, "bytes": list(token.encode())}

    rows = zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
    return {
        "content": [
            {**entry(token, value), "top_logprobs": [entry(*each) for each in best(top or {}, count)]}
            for token, value, top in rows
        ]
    }


def best(top: dict[str, float], count: int) -> list[tuple[str, float]]:
    return sorted(top.items(), key=lambda each: -each[1])[:count]
