"""Routes as table rows: path, request and response types. App and OpenAPI document are built from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from regard.errors import RegardError, UsageError
from regard.server.errors import APIError, error_response, rate_limit_error
from regard.server.requests import finite, read_json, sentence
from regard.server.service import Call, Service
from regard.server.service_scheduler import Full, TooLate

Kind = TypeVar("Kind", bound=BaseModel)
Handler = Callable[[Service, Any, Call], Awaitable[Any]]
FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 1000


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    group: str
    summary: str
    answer: Handler
    reads: type[BaseModel] | None = None
    gives: Any = None  # type of the response; None: see `media`
    form: bool = False  # also accepts a form
    media: str = "application/json"
    refuses: tuple[int, ...] = ()  # further error statuses
    open: bool = False  # needs no key
    models: bool = True  # needs a model: rejected unread while all queues are full

    def endpoint(self, service: Service) -> Endpoint:
        return Endpoint(self, service)


class Endpoint:
    """ASGI endpoint of a route. Cancels the work when the client disconnects."""

    def __init__(self, route: Route, service: Service) -> None:
        self.route, self.service = route, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = scope.get("regard", {})
        deadline = time.monotonic() + self.service.bounds.request_seconds
        call = Call(context.get("client", ""), deadline, context.get("number", ""))
        try:
            body = await self.read(Request(scope, receive))
            answer = await self.while_there(self.route.answer(self.service, body, call), receive)
        except ClientGone:
            self.service.metrics.add("gone")
            return
        except Exception as error:
            refused = self.refused(error, call)
            await error_response(self.route.path, refused)(scope, receive, send)
            return
        response = answer if isinstance(answer, Response) else as_json(answer)
        await response(scope, receive, send)

    async def read(self, request: Request) -> Any:
        if self.route.reads is None:
            return None
        if self.route.models:  # EarlyRejection checks plain requests only
            self.service.check_capacity()
        raw = await request.body()
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        content = read_form(raw) if kind == FORM and self.route.form else read_json(raw)
        if self.service.log.texts:
            self.service.log("text", request=without_key(content))
        return validate(self.route.reads, content)

    async def while_there(self, work: Awaitable[Any], receive: Receive) -> Any:
        """The result of `work`; ClientGone if the client disconnects first."""
        working = asyncio.ensure_future(work)
        watching = asyncio.ensure_future(gone(receive))
        try:
            await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise ClientGone
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    def refused(self, error: Exception, call: Call) -> APIError:
        match error:
            case APIError():
                return error
            case Full(retry_after=seconds):
                self.service.metrics.add("refused")
                return rate_limit_error(str(error), seconds)
            case TooLate():
                return APIError(503, str(error), code="timeout", retry_after=5)
            case UsageError() | RegardError():
                return APIError(400, self.service.without_paths(str(error)))
            case MemoryError():
                return APIError(503, "not enough memory for this; try a shorter text", retry_after=5)
        self.service.log.error(error, request=call.number, route=self.route.path)
        return APIError(500, f"internal error; see the server log, request {call.number}")


def without_key(content: Any) -> Any:
    """A request as it may be logged."""
    return {n: v for n, v in content.items() if n != "api_key"} if isinstance(content, dict) else content


class ClientGone(Exception):
    pass


async def gone(receive: Receive) -> None:
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return


def as_json(content: Any) -> JSONResponse:
    try:
        return JSONResponse(content)
    except ValueError:  # infinity or NaN
        return JSONResponse(finite(content))


def read_form(raw: bytes) -> dict[str, Any]:
    """Form fields: a value, or a list for a repeated name. `alternatives` becomes a number."""
    try:
        fields = parse_qs(
            raw.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise APIError(400, "the request is not a form in UTF-8") from None
    content: dict[str, Any] = {
        name: values[0] if len(values) == 1 else values for name, values in fields.items()
    }
    number = content.get("alternatives")
    if isinstance(number, str) and number.isdecimal() and len(number) < 10:
        content["alternatives"] = int(number)
    return content


def validate(kind: type[Kind], content: object) -> Kind:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else None
        if first["type"] == "missing" and getattr(kind, "missing", None):
            raise APIError(400, str(kind.missing).format(field), field) from None  # type: ignore[attr-defined]
        raise APIError(400, f"{field or 'the request'}: {sentence(first)}", field) from None
    except RecursionError:
        raise APIError(400, "the request is nested too deeply") from None
