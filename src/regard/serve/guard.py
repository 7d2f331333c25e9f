"""What stands before every route: who may ask, how much, and what the browser is told about the answer.

The server listens on this machine alone, but any page of the web can make a browser send requests to it.
So the name in `Host` must be one of this machine (else a stranger's name could be pointed here: DNS
rebinding), and a request that says which page it came from must come from ours.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
LARGEST_BODY = 1 << 20  # bytes
SAFE = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",  # texts of a person stay in no cache
}


class Guard:
    """Refuses what did not come from this machine's own page; an answer in one sentence."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SAFE)
            await send(message)

        refused = reason(scope["method"], Headers(scope=scope))
        if refused is None:
            await self.app(scope, receive, safely)
            return
        status, text = refused
        await JSONResponse({"error": text}, status)(scope, receive, safely)


def reason(method: str, headers: Headers) -> tuple[int, str] | None:
    """Why a request is refused, with the status to answer; None for one that may pass."""
    host = headers.get("host", "")
    if name_in(f"//{host}") not in HOSTS:
        return 403, "this server answers only as 127.0.0.1 or localhost"
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
        return 403, "this server answers only its own page"
    if headers.get("sec-fetch-site") == "cross-site" and method != "GET":
        return 403, "this server answers only its own page"
    if method == "POST":
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "send JSON, with the header Content-Type: application/json"
        length = headers.get("content-length", "")
        if not length.isdecimal():
            return 411, "say how long the request is, in the header Content-Length"
        if len(length) > 12 or int(length) > LARGEST_BODY:
            return 413, f"the request is too large: {LARGEST_BODY} bytes at most"
    return None


def name_in(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:  # a bracket that does not close
        return None
