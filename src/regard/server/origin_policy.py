"""Host and origin checks, and the security headers of every response."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.server.errors import APIError, error_response
from regard.server.media import FILE_ROUTES, MULTIPART

FORM = "application/x-www-form-urlencoded"
FORMS = frozenset({"/translate", "/detect", "/suggest", "/translate_file"})  # LibreTranslate also takes forms
BODILESS = frozenset({"/suggest", "/translate_file"})  # always refused, whatever is sent
HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
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
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type",
    "Access-Control-Max-Age": "600",
}


@dataclass(frozen=True)
class OriginPolicy:
    """Allowed hosts and origins.

    The server usually listens on localhost, but any web page can make a browser send requests to it. So
    `Host` must name this server (against DNS rebinding), and `Origin`, if present, this server or an allowed
    page.
    """

    hosts: frozenset[str] = HOSTS  # accepted Host headers
    origins: frozenset[str] = frozenset()  # other allowed pages, as "https://name:port"

    def check(self, path: str, method: str, headers: Headers) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if name_in(f"//{host}") not in self.hosts:
            names = " or ".join(sorted(self.hosts - HOSTS)) or "127.0.0.1 or localhost"
            raise APIError(403, f"this server answers only as {names}", code="host_not_allowed")
        allowed = (f"http://{host}".lower(), f"https://{host}".lower(), *self.origins)
        followed = method == "GET" and headers.get("sec-fetch-mode", "navigate") == "navigate"  # a link
        cross_site = headers.get("sec-fetch-site") == "cross-site" and not followed
        if cross_site if origin is None else origin.lower() not in allowed:
            raise APIError(403, "this server answers only its own page", code="origin_not_allowed")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_form = (kind in (FORM, MULTIPART) and path in FORMS) or (kind == MULTIPART and path in FILE_ROUTES)
        if method == "POST" and not (kind == "application/json" or is_form or path in BODILESS):
            raise APIError(415, "send JSON, with the header Content-Type: application/json")


class OriginPolicyMiddleware:
    """Rejects requests of other hosts and pages; adds security headers to every response."""

    def __init__(self, app: ASGIApp, access: OriginPolicy = OriginPolicy()) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        allowed = headers.get("origin", "").lower() in self.access.origins

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                response_headers = MutableHeaders(scope=message)
                response_headers.update(SAFE)
                if allowed:  # without credentials: pages send the key explicitly
                    response_headers.update(
                        {"Access-Control-Allow-Origin": headers["origin"], "Vary": "Origin"}
                    )
            await send(message)

        try:
            self.access.check(scope["path"], scope["method"], headers)
        except APIError as error:
            await error_response(scope["path"], error)(scope, receive, safely)
            return
        if allowed and scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=PREFLIGHT)(scope, receive, safely)
        else:
            await self.app(scope, receive, safely)


@lru_cache(64)  # a server has few names
def name_in(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:  # an unclosed bracket
        return None
