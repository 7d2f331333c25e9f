"""ASGI middleware of the server: request log, bounded responses, hosts and origins, keys, bounded bodies."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import RegardError
from regard.server import media
from regard.server.errors import APIError, error_response
from regard.server.keys import secret_in
from regard.server.media import FILE_ROUTES, MULTIPART, without_files
from regard.server.origin_policy import FORM, FORMS
from regard.server.service import Service

CLIENT_CLOSED = 499  # status in the log when the client disconnected before the response
NUMBER = re.compile(r"[A-Za-z0-9._-]{1,64}")
TRACES = "/api/v1/trace"
HEALTH = frozenset({"/health", "/health/live", "/health/ready", "/metrics"})
KEYLESS = frozenset({"/health", "/health/live"})  # need no API key
# LibreTranslate: the key may be a field of the body
KEY_FIELDS = FORMS | {"/languages", "/frontend/settings"}
# refused unread if the queues are full
MODEL_PATHS = re.compile(r"/translate|/v1/[\w/]+|/api/v1/(?!tokenize|trace)\w+")
CHUNK = 64 << 10  # bytes of a response that are sent at once
MOST_FIELDS = 1000  # of a form


class RequestLogMiddleware:
    """Outermost: an id per request, one log line per response, 503 while the server drains."""

    def __init__(self, app: ASGIApp, service: Service, routes: frozenset[str]) -> None:
        self.app, self.service, self.routes = app, service, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        service, path, start = self.service, scope["path"], time.monotonic()
        client, number = scope.get("client"), request_id(Headers(scope=scope))
        connection = service.connections.begin(tuple(client) if client else None)
        response = BoundedSend(service, path, send, number)
        context: dict[str, Any] = {"number": number, "connection": connection, "response": response}
        scope["regard"] = context
        counts = path not in HEALTH
        service.in_flight += counts
        try:
            if counts and service.draining:
                raise APIError(503, "the server is shutting down; try again", retry_after=5, close=True)
            if counts and connection is not None and connection.extra:
                raise APIError(503, "too many connections; try again", retry_after=1, close=True)
            check_head(scope, service.bounds.headers)
            await self.app(scope, receive, response)
        except APIError as error:
            await error_response(path, error)(scope, receive, response)
        except Exception as error:
            service.log.error(error, request=number, route=path)
            if response.status != CLIENT_CLOSED:  # the response has started
                raise
            text = f"internal error; see the server log, request {number}"
            await error_response(path, APIError(500, text))(scope, receive, response)
        finally:
            service.unread_answers -= response.held
            service.in_flight -= counts
            if connection is not None:
                service.connections.end(connection)
            self.record(scope, response.status, time.monotonic() - start, context)

    def record(self, scope: Scope, status: int, seconds: float, context: dict[str, Any]) -> None:
        """Count a finished request and log it."""
        path, method, service = scope["path"], scope["method"], self.service
        route = path if path in self.routes else "/web" if path.startswith("/web/") else "other"
        if path.startswith(f"{TRACES}/"):
            route = f"{TRACES}/ID"
        method = method if method in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        service.metrics.add("requests", route=route, method=method, status=str(status))
        service.metrics.observe("seconds", seconds, route=route)
        if service.log.requests:
            fields = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
            service.log("request", id=context["number"], **fields, key=context.get("key"))


def check_head(scope: Scope, most: int) -> None:
    """Reject what proxies and servers may read differently, and headers that are too large."""
    headers, version = Headers(scope=scope), scope.get("http_version", "1.1")
    size = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    if size + sum(len(name) + len(value) for name, value in scope["headers"]) > most:
        raise APIError(431, f"the headers are too large: {most} bytes at most", close=True)
    if version not in ("1.0", "1.1"):
        raise APIError(400, "unsupported HTTP version", close=True)
    if "transfer-encoding" in headers and ("content-length" in headers or version == "1.0"):
        raise APIError(400, "ambiguous body length", close=True)


def request_id(headers: Headers) -> str:
    """The request id of the client, or a random one."""
    given = headers.get("x-request-id", "")
    return given if NUMBER.fullmatch(given) else secrets.token_hex(8)


class BoundedSend:
    """Sends a response in small parts, so that a client that does not read holds up its sender.

    Large bodies of all responses together are bounded: one too many becomes a 503.
    """

    def __init__(self, service: Service, path: str, send: Send, number: str) -> None:
        self.service, self.path, self.send, self.number = service, path, send, number
        self.status, self.held = CLIENT_CLOSED, 0
        self.start: Message | None = None
        self.complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
            return
        if self.complete:  # replaced by an error
            return
        body = message.get("body", b"")
        if self.start is not None:
            body = await self.begin(self.start, body)
        for at in range(0, len(body) - CHUNK, CHUNK):
            await self.send({**message, "body": body[at : at + CHUNK], "more_body": True})
        self.complete = self.complete or not message.get("more_body", False)
        rest = body[max(0, (len(body) - 1) // CHUNK * CHUNK) :]
        await self.send({**message, "body": rest, "more_body": not self.complete})

    async def begin(self, start: Message, body: bytes) -> bytes:
        """Send the status and headers; returns the body to send."""
        if len(body) > CHUNK:
            if self.service.unread_answers + len(body) > self.service.bounds.answers:
                error = APIError(503, "too many responses are unread; try again", retry_after=1)
                response = error_response(self.path, error)
                start = {**start, "status": error.status, "headers": response.raw_headers}
                body, self.complete = bytes(response.body), True
            else:
                self.held = len(body)
                self.service.unread_answers += self.held
        self.start, self.status = None, start["status"]
        MutableHeaders(scope=start)["X-Request-ID"] = self.number
        await self.send(start)
        return body


class ClientDisconnected(Exception):
    pass


@dataclass(eq=False)
class BodyReader:
    """A body that is being read."""

    keyed: bool
    limit: asyncio.Timeout
    size: int = 0
    evicted: bool = False

    def evict(self) -> None:
        self.evicted = True
        self.limit.reschedule(asyncio.get_running_loop().time())


class BodyAndKeyMiddleware:
    """Innermost: checks the key, then reads the body within its limits; cancels work for absent clients."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service
        self.readers: dict[BodyReader, None] = {}  # oldest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, headers, context = scope["path"], Headers(scope=scope), scope["regard"]
        connection = context["connection"]
        try:
            secret = secret_in(headers.get("authorization"))
            owner = self.owner(path, secret, final=secret is not None or path not in KEY_FIELDS)
            context["client"] = str((scope.get("client") or ("",))[0]) if owner is None else f"key {owner}"
            if scope["method"] == "POST" and MODEL_PATHS.fullmatch(path):
                self.service.check_capacity(context["client"])
            if connection is not None:
                connection.admitted = owner is not None
            raw = await self.read(headers, receive, owner is not None, self.service.body_limit(path))
            if owner is None and self.service.keys is not None and path in KEY_FIELDS:
                owner = self.owner(path, key_in(raw, headers))
                context["client"] = f"key {owner}"
            context["key"] = owner
            if connection is not None:
                connection.admitted = True
            if path in FORMS and headers.get("content-type", "").lower().startswith((FORM, MULTIPART)):
                raw = form_as_json(raw, headers["content-type"])
                MutableHeaders(scope=scope)["content-type"] = "application/json"
            elif path in FILE_ROUTES and headers.get("content-type", "").lower().startswith(MULTIPART):
                form = (raw, headers["content-type"], FILE_ROUTES[path])
                raw = await asyncio.to_thread(media.form_as_json, *form)
                MutableHeaders(scope=scope)["content-type"] = "application/json"
            self.log_text(raw)
            if scope["method"] == "HEAD":  # as GET; what sends the response leaves out its body
                scope = {**scope, "method": "GET"}
            async with cancel_when_gone(receive, raw, context["response"]) as again:
                await self.app(scope, again, send)
        except ClientDisconnected:
            self.service.metrics.add("gone")
        except RegardError as error:
            await error_response(path, self.service.api_error(error))(scope, receive, send)

    def owner(self, path: str, secret: str | None, final: bool = True) -> str | None:
        """The name of the key, None if no key is needed; an error if it is missing or wrong and `final`."""
        if self.service.keys is None or path in KEYLESS:
            return None
        owner = self.service.keys.owner(secret)
        if owner is None and final:
            if path in KEY_FIELDS:
                raise APIError(403, "Invalid API key", code="invalid_api_key")
            raise APIError(401, "this server needs a key: Authorization: Bearer KEY")
        return owner

    def log_text(self, raw: bytes) -> None:
        if self.service.log.texts and raw:
            content = json_in(raw)
            if isinstance(content, dict):
                content = {name: without_files(each) for name, each in content.items() if name != "api_key"}
            self.service.log("text", request=content)

    async def read(self, headers: Headers, receive: Receive, keyed: bool, most: int) -> bytes:
        if "content-length" not in headers and "transfer-encoding" not in headers:
            return b""
        parts = list[bytes]()
        too_large = APIError(413, f"the request is too large: {most} bytes at most")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 12 or int(length) > most:
            raise too_large
        reader = BodyReader(keyed, asyncio.timeout(self.service.bounds.body_seconds))
        self.readers[reader] = None
        try:
            async with reader.limit:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    parts.append(message.get("body", b""))
                    reader.size += len(parts[-1])
                    if reader.size > most:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
                    self.make_room()
        except TimeoutError:
            if reader.evicted:
                text = "too many large requests are being read; try again"
                raise APIError(503, text, retry_after=1, close=True) from None
            raise APIError(408, "request body timed out", close=True) from None
        finally:
            del self.readers[reader]

    def make_room(self) -> None:
        """Stop reading the oldest body while all together are too large; those without a key first."""
        while sum(reader.size for reader in self.readers if not reader.evicted) > self.service.bounds.bodies:
            readers = [reader for reader in self.readers if not reader.evicted]
            next((reader for reader in readers if not reader.keyed), readers[0]).evict()


def json_in(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def key_in(raw: bytes, headers: Headers) -> str | None:
    """The field `api_key` of a JSON or form body; None for a body that does not parse."""
    kind = headers.get("content-type", "")
    try:
        content = json_in(form_as_json(raw, kind) if kind.lower().startswith((FORM, MULTIPART)) else raw)
    except APIError:
        return None
    key = content.get("api_key") if isinstance(content, dict) else None
    return key if isinstance(key, str) else None


def form_as_json(raw: bytes, content_type: str) -> bytes:
    """A form as the JSON object that it stands for: a repeated name is a list, `alternatives` a number."""
    fields = dict[str, list[str]]()
    try:
        if content_type.lower().startswith(MULTIPART):
            for part in media.form_parts(raw, content_type):
                fields.setdefault(part.name, []).append(part.content.decode("utf-8"))
        else:
            text = raw.decode("utf-8")
            fields = parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise APIError(400, "the request is not a form in UTF-8") from None
    content: dict[str, Any] = {
        name: values[0] if len(values) == 1 else values for name, values in fields.items()
    }
    number = content.get("alternatives")
    if isinstance(number, str) and number.isdecimal() and len(number) < 10:
        content["alternatives"] = int(number)
    return json.dumps(content).encode()


@asynccontextmanager
async def cancel_when_gone(receive: Receive, raw: bytes, response: BoundedSend) -> AsyncIterator[Receive]:
    """A `receive` that returns a body already read; ClientDisconnected if the client leaves meanwhile."""
    gone, first, task = asyncio.Event(), True, asyncio.current_task()

    async def again() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": raw, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()
        if task is not None and not response.complete:
            task.cancel()

    watching = asyncio.ensure_future(watch())
    try:
        yield again
    except asyncio.CancelledError:
        if gone.is_set() and task is not None and not task.uncancel():
            raise ClientDisconnected from None
        raise
    finally:
        watching.cancel()
