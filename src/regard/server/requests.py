"""Schemas of the explorer's requests, validation with readable messages, and the limits of the server.

`ServerLimits` can be set per server; the defaults protect a machine with two cores. `GET /api/v1/limits`
returns all limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from regard.errors import UsageError
from regard.inputs.text.tokenizer import replace_surrogates


@dataclass(frozen=True)
class RequestLimits:
    """Fixed limits of a request, part of the schemas and the OpenAPI document."""

    text_characters: int = 20_000  # of one text
    texts: int = 64
    characters: int = 50_000  # of all texts
    file_characters: int = 16 << 20  # of a data URL
    sound_seconds: int = 600  # of a recording
    max_tokens: int = 1024  # of one completion
    prompt_ids: int = 8192  # of one prompt
    choices: int = 8  # n, best_of, alternatives
    rows: int = 64  # prompts * choices
    stops: int = 4
    stop_characters: int = 200
    logprobs: int = 5
    ranked: int = 50  # guesses, labels or answers
    beam: int = 16


LIMITS = RequestLimits()
Text = Annotated[str, Field(max_length=LIMITS.text_characters)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=LIMITS.texts)]


class RequestBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def replace_lone_surrogates(cls, content: Any) -> Any:
        return whole(content)


class ResponseBody(BaseModel):
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)  # all fields are there


class TokenizeBody(RequestBody):
    model: str = ""
    text: Text


class TraceBody(RequestBody):
    model: str = ""
    source: Annotated[str, Field(max_length=LIMITS.file_characters)]  # a text, or a file as a data URL
    target: Text | None = None
    prefix: list[int] = Field([], max_length=1000)
    context: Text | None = None
    decode: dict[str, Any] = {}
    interventions: list[dict[str, Any]] = Field([], max_length=100)


class QueryString(BaseModel):
    """Numbers arrive as text, so no strict types."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorQuery(QueryString):
    name: list[str] = Field(min_length=1, max_length=200)
    head: int | None = Field(None, ge=0)
    row: int | None = Field(None, ge=0)
    column: int | None = Field(None, ge=0)
    pool: int | None = Field(None, ge=1, le=4096)
    dtype: Literal["F32", "U8"] = "F32"


class CompareQuery(QueryString):
    """Two trace ids; `step` defaults to the step that changed most."""

    before: str
    after: str
    step: int | None = Field(None, ge=0)


def sentence(error: Any) -> str:
    """A validation error of pydantic in a few words."""
    if error["type"] == "string_too_long":
        return f"the text is too long: {error['ctx']['max_length']} characters at most"
    if error["type"] == "extra_forbidden":
        return "there is no such field"
    if error["type"].startswith("json_invalid") or error["type"] in ("model_attributes_type", "dict_type"):
        return "the request is not a JSON object in UTF-8"
    message: str = error["msg"].replace(" after validation", "")
    return message[:1].lower() + message[1:]


def whole(content: Any) -> Any:
    """Replace lone surrogates, which JSON can hold and UTF-8 cannot."""
    if isinstance(content, str):
        return replace_surrogates(content)
    if isinstance(content, list):
        return [whole(each) for each in content]
    if isinstance(content, dict):
        return {whole(name): whole(each) for name, each in content.items()}
    return content


def check_decode(options: Mapping[str, Any], longest: int, where: str = "decode.") -> Mapping[str, Any]:
    """Reject beams and lengths that take too long."""
    most = {"beam": LIMITS.beam, "max_length": longest, "min_length": longest, "num_results": LIMITS.ranked}
    for name, wanted in options.items():
        if name in most and isinstance(wanted, int) and wanted > most[name]:
            raise UsageError(f"{where}{name} = {wanted}: this server allows {most[name]} at most")
    return options


@dataclass(frozen=True)
class ServerLimits:
    """Limits that can be set per server."""

    body: int = 1 << 20  # bytes of one request
    media: int = 16 << 20  # bytes of one request with pictures or sounds, where a model reads them
    bodies: int = 32 << 20  # bytes of all requests being read
    headers: int = 16 << 10  # bytes
    unread: int = 128 << 10  # send buffer per connection in bytes
    answers: int = 128 << 20  # bytes of all large responses that are being sent
    connections: int = 600
    header_seconds: float = 5.0  # for a connection without a request
    body_seconds: float = 8.0  # from the headers to the end of the body
    write_seconds: float = 5.0  # for a client to read what has been sent
    idle_seconds: float = 5.0  # keep-alive
    request_seconds: float = 30.0  # until a request times out
    drain_seconds: float = 30.0  # for running requests at shutdown
