"""Request and response of `/v1/completions`: fields, validation, prompts and options."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from regard.config import Decode
from regard.generation import Request
from regard.server.errors import APIError
from regard.server.requests import LIMITS, RequestBody, Text, Texts
from regard.tasks import Generator

COLD = 1e-3  # temperatures below this mean greedy decoding
Id = Annotated[int, Field(ge=0, lt=2**31)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=LIMITS.prompt_ids)]
Stop = Annotated[str, Field(min_length=1, max_length=LIMITS.stop_characters)]


class StreamOptions(RequestBody):
    include_usage: bool = False
    include_obfuscation: bool = False


class CompletionBody(RequestBody):
    model: str = Field(max_length=1000)
    prompt: Text | Texts | Ids | Annotated[list[Ids], Field(min_length=1, max_length=LIMITS.texts)]
    max_tokens: int | None = Field(16, ge=0, le=LIMITS.max_tokens)
    temperature: float | None = Field(None, ge=0, le=2, description="default 1")
    top_p: float | None = Field(1.0, ge=0, le=1)
    n: int | None = Field(1, ge=1, le=LIMITS.choices)
    best_of: int | None = Field(None, ge=1, le=LIMITS.choices)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprobs: int | None = Field(None, ge=0, le=LIMITS.logprobs)
    echo: bool | None = False
    stop: Stop | Annotated[list[Stop], Field(max_length=LIMITS.stops)] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    user: str | None = Field(None, max_length=1000)
    presence_penalty: float | None = Field(0.0, description="only 0")
    frequency_penalty: float | None = Field(0.0, description="only 0")
    logit_bias: dict[str, float] | None = Field(None, description="not supported", max_length=300)
    suffix: str | None = Field(None, description="not supported", max_length=1000)

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    index: int
    text: str
    finish_reason: Literal["stop", "length"] | None
    logprobs: CompletionLogprobs | None


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


@dataclass(frozen=True)
class Prompt:
    """`ids` begin with a start token, which the client did not send unless `given`."""

    text: str
    ids: list[int]
    given: bool = False

    @property
    def shown(self) -> list[int]:
        return self.ids if self.given else self.ids[1:]


def check(body: CompletionBody) -> None:
    """Reject unsupported fields rather than ignore them."""
    for name in ("suffix", "presence_penalty", "frequency_penalty", "logit_bias"):
        if getattr(body, name):
            raise APIError(400, f"{name} is not supported", name, "unsupported_parameter")
    n, best_of = body.n or 1, body.best_of
    if best_of is not None and best_of < n:
        raise APIError(400, f"best_of = {best_of} is less than n = {n}", "best_of")
    if body.stream and best_of is not None and best_of > n:
        raise APIError(400, "best_of needs complete texts: it cannot be combined with stream", "best_of")
    if body.stream_options is not None and not body.stream:
        raise APIError(400, "stream_options needs stream", "stream_options")
    if len(prompts_of(body)) * max(n, best_of or 1) > LIMITS.rows:
        raise APIError(400, f"prompts * choices must be at most {LIMITS.rows}", "n")


def prompts_of(body: CompletionBody) -> list[str | list[int]]:
    prompt: Any = body.prompt
    return [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt


def read(generator: Generator, prompt: str | list[int]) -> Prompt:
    """A prompt as token ids, with the start token of the model in front."""
    tokenizer = generator.tokenizer
    if isinstance(prompt, str):
        text, ids = prompt, tokenizer.encode(prompt)
        whole = generator.with_start(ids)
    else:
        if wrong := [each for each in prompt if each >= len(tokenizer)]:
            message = f"prompt: {wrong[0]} is not a token id; the vocabulary has {len(tokenizer)}"
            raise APIError(400, message, "prompt")
        text, ids = tokenizer.decode(prompt), prompt
        whole = prompt if prompt[0] == tokenizer.start else generator.with_start(prompt)
    return Prompt(text, whole, given=len(whole) == len(ids))


def most_tokens(body: CompletionBody) -> int:
    return 16 if body.max_tokens is None else body.max_tokens


def check_room(generator: Generator, prompt: Prompt, body: CompletionBody) -> None:
    limit, size, wanted = generator.model.longest_target, len(prompt.ids), most_tokens(body)
    if limit is not None and size + wanted - 1 > limit:
        lengths = f"the prompt has {size} with its start, and max_tokens is {wanted}"
        text = f"the model reads {limit} tokens; {lengths}"
        raise APIError(400, text, "prompt" if size > limit else "max_tokens", "context_length_exceeded")


def options_of(base: Decode, body: CompletionBody, seed: int) -> Decode:
    """The options of the folder with those of the request; the default temperature is 1."""
    temperature = 1.0 if body.temperature is None else body.temperature
    overrides: dict[str, Any] = {"beam": 1, "max_length": max(1, most_tokens(body)), "seed": seed % 2**31}
    if temperature < COLD:
        return base.model_copy(update={**overrides, "sample": False})
    top_p = max(1e-6, 1.0 if body.top_p is None else body.top_p)
    return base.model_copy(update={**overrides, "sample": True, "temperature": temperature, "top_p": top_p})


def decode_requests(generator: Generator, prompts: Sequence[Prompt], body: CompletionBody) -> list[Request]:
    """One decode request per prompt and choice."""
    seed = secrets.randbelow(2**31) if body.seed is None else body.seed
    draws = max(body.n or 1, body.best_of or 1)
    return [
        Request(prompt.ids, options_of(generator.decode, body, seed), draw=draw)
        for prompt in prompts
        for draw in range(draws)
    ]


def completion_frame(body: CompletionBody) -> dict[str, Any]:
    return {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": body.model,
        "choices": [],
    }


def usage_of(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
