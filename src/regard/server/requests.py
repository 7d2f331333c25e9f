"""What may be asked, checked field by field, and the sentence for what is wrong."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from regard.errors import UsageError
from regard.inputs.text.tokenizer import replace_surrogates

LONGEST_TEXT = 20_000  # characters
LARGEST_BEAM = 16
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Kind = TypeVar("Kind", bound=BaseModel)


class RequestBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class TokenizeBody(RequestBody):
    model: str = ""
    text: Text


class TraceBody(RequestBody):
    model: str = ""
    source: Text
    target: Text | None = None
    prefix: list[int] = Field([], max_length=1000)
    context: Text | None = None
    decode: dict[str, Any] = {}
    interventions: list[dict[str, Any]] = Field([], max_length=100)


class TensorQuery(BaseModel):
    """Words of a query string, so that numbers come as text."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: list[str] = Field(min_length=1, max_length=200)
    head: int | None = Field(None, ge=0)
    row: int | None = Field(None, ge=0)
    column: int | None = Field(None, ge=0)
    pool: int | None = Field(None, ge=1, le=4096)
    dtype: Literal["F32", "U8"] = "F32"


class CompareQuery(BaseModel):
    """Two traces by their ids; the step that is told of is the one that changed most, unless given."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    before: str
    after: str
    step: int | None = Field(None, ge=0)


def parse(kind: type[Kind], raw: bytes) -> Kind:
    """A request's JSON; what is wrong with it is told in a sentence."""
    try:
        content = whole(json.loads(raw.decode("utf-8"), parse_constant=no_number))
    except (ValueError, RecursionError):
        raise UsageError("the request is not JSON in UTF-8") from None
    return checked(kind, content)


def no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def checked(kind: type[Kind], content: object) -> Kind:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the request"
        raise UsageError(f"{field}: {sentence(first)}") from None


def sentence(error: Any) -> str:
    if error["type"] == "string_too_long":
        return f"the text is too long: {error['ctx']['max_length']} characters at most"
    if error["type"] == "extra_forbidden":
        return "there is no such field"
    message: str = error["msg"]
    return message[:1].lower() + message[1:]


def whole(content: Any) -> Any:
    """Half characters (lone surrogates), which JSON can hold and UTF-8 cannot, become the sign for none."""
    if isinstance(content, str):
        return replace_surrogates(content)
    if isinstance(content, list):
        return [whole(each) for each in content]
    if isinstance(content, dict):
        return {whole(name): whole(each) for name, each in content.items()}
    return content


def check_decode(options: dict[str, Any], longest: int) -> dict[str, Any]:
    """A page is quick or it is no page: wide beams and endless texts belong in a command."""
    for name, most in {"beam": LARGEST_BEAM, "max_length": longest, "min_length": longest}.items():
        wanted = options.get(name)
        if isinstance(wanted, int) and wanted > most:
            raise UsageError(f"decode.{name} = {wanted}: the page searches with {most} at most")
    return options


def key_of(body: BaseModel) -> str:
    """The same request has the same text, in which order its fields ever came."""
    return json.dumps(body.model_dump(mode="json"), sort_keys=True)


MOST_TEXTS = 64  # of one request
MOST_CHARACTERS = 50_000  # of all texts of one request
MOST_TOKENS = 1024  # that one completion may have
LONGEST_PROMPT = 8192  # ids of one prompt
MOST_CHOICES = 8  # n, best_of, alternatives
MOST_ROWS = 64  # prompts times choices
MOST_STOPS, LONGEST_STOP = 4, 200
MOST_LOGPROBS = 5
MOST_RANKED = 50  # guesses, labels or answers


@dataclass(frozen=True)
class ServerLimits:
    """What a server may set for itself."""

    body: int = 1 << 20  # bytes
    headers: int = 16 << 10  # bytes of all of them
    chunks: int = 4096  # parts that a body may come in
    unread: int = 128 << 10  # bytes of answers that the system holds for a client until it reads them
    connections: int = 600
    traces: int = 4  # runs for the explorer that wait or work at once
    header_seconds: float = 5.0  # from a connection to the end of its headers
    body_seconds: float = 8.0  # from there to the end of the body
    write_seconds: float = 5.0  # that a client may leave an answer unread
    idle_seconds: float = 5.0  # between two requests of a connection
    request_seconds: float = 30.0  # for one answer
    drain_seconds: float = 30.0  # for all of them, once the server shall end

    def as_dict(self) -> dict[str, float]:
        fixed = {
            "text_characters": LONGEST_TEXT,
            "texts": MOST_TEXTS,
            "characters": MOST_CHARACTERS,
            "max_tokens": MOST_TOKENS,
            "prompt_ids": LONGEST_PROMPT,
            "choices": MOST_CHOICES,
            "rows": MOST_ROWS,
            "stops": MOST_STOPS,
            "stop_characters": LONGEST_STOP,
            "logprobs": MOST_LOGPROBS,
            "ranked": MOST_RANKED,
            "beam": LARGEST_BEAM,
        }
        return fixed | asdict(self)
