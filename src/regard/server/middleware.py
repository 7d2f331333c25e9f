"""ASGI middleware of the server: request log and metrics, bounded bodies, API keys."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.server.errors import APIError, error_response
from regard.server.keys import Keys, secret_in
from regard.server.origin_policy import FORM
from regard.server.service import Service

CLIENT_CLOSED = 499  # status in the log when the client disconnected before the response
NUMBER = re.compile(r"[A-Za-z0-9._-]{1,64}")
TRACES = "/api/v1/trace"
HEALTH = frozenset({"/health", "/health/live", "/health/ready", "/metrics"})
MOST_READING = 32 << 20  # bytes of all bodies being read
LINGER_SECONDS, LINGER_BYTES = 1.0, 64 << 20  # a rejected body is drained up to here


class RequestLogMiddleware:
    """Outermost: an id per request, one log line per response, 503 while the server drains."""

    def __init__(self, app: ASGIApp, service: Service, routes: frozenset[str]) -> None:
        self.app, self.service, self.routes = app, service, routes
        self.traces = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, context = time.monotonic(), self.request_context(scope)
        status = CLIENT_CLOSED

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = context["number"]
            await send(message)

        service, path = self.service, scope["path"]
        counts = path not in HEALTH
        tracing = path == TRACES and scope["method"] == "POST"
        service.in_flight += counts
        self.traces += tracing
        try:
            refused = self.refused(path, tracing)
            if refused is not None:
                await error_response(path, refused)(scope, receive, noted)
            else:
                await self.app(scope, receive, noted)
        except Exception as error:
            service.log.error(error, request=context["number"], route=path)
            if status != CLIENT_CLOSED:  # the response has started
                raise
            await error_response(path, APIError(500, "internal error; see the server log"))(
                scope, receive, noted
            )
        finally:
            service.in_flight -= counts
            self.traces -= tracing
            self.record(scope, status, time.monotonic() - start, context)

    def request_context(self, scope: Scope) -> dict[str, Any]:
        client = scope.get("client") or ("",)
        context: dict[str, Any] = {"number": request_id(Headers(scope=scope)), "client": str(client[0])}
        scope["regard"] = context
        return context

    def refused(self, path: str, tracing: bool) -> APIError | None:
        if self.service.draining and path not in HEALTH:
            return APIError(503, "the server is shutting down; try again", retry_after=5, close=True)
        if tracing and self.traces > self.service.bounds.traces:
            return APIError(429, "too many traces are waiting; try again", retry_after=2)
        return None

    def record(self, scope: Scope, status: int, seconds: float, context: dict[str, Any]) -> None:
        path = scope["path"]
        route = path if path in self.routes else "/web" if path.startswith("/web/") else "other"
        if path.startswith(f"{TRACES}/"):
            route = f"{TRACES}/ID"
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        self.service.note(route, method, status, seconds, context["number"], context.get("key"))


def request_id(headers: Headers) -> str:
    """The request id of the client, or a random one."""
    given = headers.get("x-request-id", "")
    return given if NUMBER.fullmatch(given) else secrets.token_hex(8)


@dataclass(frozen=True)
class KeyPolicy:
    """Which paths need an API key, and where it may be sent."""

    keyless: frozenset[str]  # paths that need no key
    fields: frozenset[str]  # paths whose body may hold the key

    def owner(self, keys: Keys | None, path: str, headers: Headers, raw: bytes) -> str | None:
        """The name of the key of a request, None if no key is needed; APIError if it is missing or wrong."""
        if keys is None or path in self.keyless:
            return None
        secret = secret_in(headers.get("authorization"))
        if secret is None and path in self.fields:
            secret = key_in(raw, headers)
        owner = keys.owner(secret)
        if owner is not None:
            return owner
        if path in self.fields:
            raise APIError(403, "Invalid API key")
        raise APIError(401, "this server needs a key: Authorization: Bearer KEY", code="invalid_api_key")


class BodyAndKeyMiddleware:
    """Innermost: reads the whole body within its time and size limits, then checks the key."""

    def __init__(self, app: ASGIApp, service: Service, locks: KeyPolicy) -> None:
        self.app, self.service, self.locks = app, service, locks
        self.reading = 0  # bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, headers = scope["path"], Headers(scope=scope)
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            held, self.reading = held + size, self.reading + size

        try:
            raw = await self.read(headers, receive, hold)
            if (owner := self.locks.owner(self.service.keys, path, headers, raw)) is not None:
                scope["regard"] |= {"client": f"key {owner}", "key": owner}
            await self.app(scope, replayed(raw, receive), send)
        except ClientDisconnected:
            self.service.metrics.add("gone")
        except APIError as error:
            await error_response(path, error)(scope, receive, holding(send) if error.close else send)
            if error.close:
                await linger(receive)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.reading -= held

    async def read(self, headers: Headers, receive: Receive, hold: Callable[[int], None]) -> bytes:
        if "content-length" not in headers and "transfer-encoding" not in headers:
            return b""
        most, parts, size = self.service.bounds.body, list[bytes](), 0
        length = headers.get("content-length", "0")
        if len(length) > 12 or int(length) > most:
            raise APIError(413, f"the request is too large: {most} bytes at most", close=True)
        try:
            async with asyncio.timeout(self.service.bounds.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    hold(len(parts[-1]))
                    if size > most:
                        raise APIError(413, f"the request is too large: {most} bytes at most", close=True)
                    if self.reading > max(MOST_READING, most):
                        raise APIError(503, "too many large requests; try again", retry_after=1, close=True)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise APIError(408, "request body timed out", close=True) from None


class ClientDisconnected(Exception):
    pass


def key_in(raw: bytes, headers: Headers) -> str | None:
    """The field `api_key` of a JSON or form body; None for a body that does not parse."""
    try:
        if headers.get("content-type", "").lower().startswith(FORM):
            return parse_qs(raw.decode("utf-8"), max_num_fields=1000).get("api_key", [None])[0]
        content = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    key = content.get("api_key") if isinstance(content, dict) else None
    return key if isinstance(key, str) else None


def replayed(raw: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body already read, then what follows."""
    first = True

    async def again() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": raw, "more_body": False}
        return await receive()

    return again


def holding(send: Send) -> Send:
    """A `send` that leaves the response open, so that a client can read it while it still sends."""

    async def hold(message: Message) -> None:
        await send({**message, "more_body": True} if message["type"] == "http.response.body" else message)

    return hold


async def linger(receive: Receive) -> None:
    """Drain the body for a moment: closing on a client that still sends would lose the response."""
    size = 0
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while size < LINGER_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return
