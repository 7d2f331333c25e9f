"""The FastAPI app: routes, middleware, errors, the page and the OpenAPI document with its page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPBearer
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from regard import __version__
from regard.errors import RegardError
from regard.server import explorer
from regard.server.api import chat, libretranslate, native, openai, speech
from regard.server.errors import error_response
from regard.server.lessons import LESSONS, Lesson
from regard.server.lessons.media import MEDIA
from regard.server.middleware import BodyAndKeyMiddleware, RequestLogMiddleware
from regard.server.origin_policy import OriginPolicy, OriginPolicyMiddleware
from regard.server.requests import ServerLimits
from regard.server.service import Service
from regard.server.telemetry import Log

WEB = Path(__file__).parent / "web"
LOCAL = ServerLimits(request_seconds=3600)  # of the explorer on one's own machine


def make_app(
    models: Mapping[str, Any],
    access: OriginPolicy = OriginPolicy(),
    lessons: Mapping[str, Lesson] = LESSONS,
) -> FastAPI:
    """The explorer alone, over loaded models by name; the first is the default."""
    return app_of(Service(models, LOCAL, log=Log(requests=False), lessons=lessons), access, api=False)


def app_of(
    service: Service, access: OriginPolicy = OriginPolicy(), proxies: tuple[str, ...] = (), api: bool = True
) -> FastAPI:
    """The explorer and, with `api`, all other routes. Proxies may name the client in X-Forwarded-For."""
    app = FastAPI(
        title="Regard",
        version=__version__,
        description="Transformer models over HTTP.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if api else None,
    )
    app.state.service = service
    bearer = [Depends(HTTPBearer(auto_error=False))] if service.keys is not None else []
    app.include_router(explorer.router, dependencies=bearer)
    if api:
        for part in (libretranslate, openai, chat, speech, native):
            app.include_router(part.router, dependencies=bearer)
        add_docs(app)
    add_page(app)
    for kind in (RegardError, RequestValidationError, HTTPException, RecursionError, MemoryError):
        app.add_exception_handler(kind, refuse)
    routes = frozenset({"/", "/docs", "/spec", *app.openapi()["paths"]})
    app.user_middleware = [
        Middleware(RequestLogMiddleware, service=service, routes=routes),
        *([Middleware(ProxyHeadersMiddleware, trusted_hosts=list(proxies))] if proxies else []),
        Middleware(OriginPolicyMiddleware, access=access),
        Middleware(BodyAndKeyMiddleware, service=service),
    ]
    return app


async def refuse(request: Request, error: Exception) -> JSONResponse:
    """The one error handler; unexpected errors are answered and logged by the outermost middleware."""
    api_error = request.app.state.service.api_error(error, request.url.path)
    response = error_response(request.url.path, api_error)
    response.headers.update(getattr(error, "headers", None) or {})
    return response


def add_page(app: FastAPI) -> None:
    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(WEB / "index.html")

    app.mount("/web/media", StaticFiles(directory=MEDIA), name="media")  # what the page opens with
    app.mount("/web", StaticFiles(directory=WEB), name="web")


def add_docs(app: FastAPI) -> None:
    @app.get("/spec", include_in_schema=False)  # LibreTranslate's address of the document
    async def spec() -> dict[str, Any]:
        return app.openapi()

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(WEB / "docs.html")
