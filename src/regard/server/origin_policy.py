"""Host and origin checks, and the security headers of every response.

The server usually listens on localhost, but any web page can make a browser send requests to it. So `Host`
must name this server (against DNS rebinding), and `Origin`, if present, this server or an allowed page.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.server.errors import APIError, error_response

HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
LARGEST_BODY = 1 << 20  # bytes
FORM = "application/x-www-form-urlencoded"
SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",  # text never becomes script
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",  # user texts are never cached
}


@dataclass(frozen=True)
class OriginPolicy:
    """Allowed hosts, origins and content types."""

    hosts: frozenset[str] = HOSTS  # accepted Host headers
    origins: frozenset[str] = frozenset()  # other allowed pages, as "https://name:port"
    forms: frozenset[str] = frozenset()  # paths that also accept a form
    bodiless: frozenset[str] = frozenset()  # paths whose body is ignored
    counted: bool = False  # another middleware limits the body while it arrives

    def reason(self, path: str, method: str, headers: Headers) -> tuple[int, str] | None:
        """(status, message) of a rejected request; None if it may pass."""
        host = headers.get("host", "")
        if name_in(f"//{host}") not in self.hosts:
            names = " or ".join(sorted(self.hosts - HOSTS)) or "127.0.0.1 or localhost"
            return 403, f"this server answers only as {names}"
        origin = headers.get("origin")
        allowed = (f"http://{host}".lower(), f"https://{host}".lower(), *self.origins)
        if origin is not None and origin.lower() not in allowed:
            return 403, "this server answers only its own page"
        followed = method == "GET" and headers.get("sec-fetch-mode", "navigate") == "navigate"  # a link
        if origin is None and headers.get("sec-fetch-site") == "cross-site" and not followed:
            return 403, "this server answers only its own page"
        return self.body_reason(path, headers) if method == "POST" else None

    def body_reason(self, path: str, headers: Headers) -> tuple[int, str] | None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        fits = kind == "application/json" or (kind == FORM and path in self.forms)
        if not fits and path not in self.bodiless:
            return 415, "send JSON, with the header Content-Type: application/json"
        if self.counted:
            return None
        length = headers.get("content-length", "")
        if not length.isdecimal():
            return 411, "the header Content-Length is missing"
        if len(length) > 12 or int(length) > LARGEST_BODY:
            return 413, f"the request is too large: {LARGEST_BODY} bytes at most"
        return None


class OriginPolicyMiddleware:
    """Rejects requests of other hosts and pages; adds security headers to every response."""

    def __init__(self, app: ASGIApp, access: OriginPolicy = OriginPolicy()) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "").lower()
        allowed = origin in self.access.origins

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                response_headers = MutableHeaders(scope=message)
                response_headers.update(SAFE)
                if allowed:  # without credentials: pages send the key explicitly
                    response_headers.update(
                        {"Access-Control-Allow-Origin": headers["origin"], "Vary": "Origin"}
                    )
            await send(message)

        refused = self.access.reason(scope["path"], scope["method"], headers)
        if refused is not None:
            status, text = refused
            await error_response(scope["path"], APIError(status, text, close=status == 413))(
                scope, receive, safely
            )
        elif allowed and scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=PREFLIGHT)(scope, receive, safely)
        else:
            await self.app(scope, receive, safely)


PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type",
    "Access-Control-Max-Age": "600",
}


@lru_cache(64)  # a server has few names
def name_in(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:  # an unclosed bracket
        return None
