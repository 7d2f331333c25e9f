"""The routes put into an app, with their description and its page."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Route as Address

from regard.errors import RegardError
from regard.server.api import libretranslate, openai, own
from regard.server.api.describe import describe
from regard.server.api.routes import Route
from regard.server.app import WEB
from regard.server.refusals import APIError, error_response
from regard.server.requests import TokenizeBody, TraceBody
from regard.server.service import Call, Service

ROUTES = [*libretranslate.ROUTES, *openai.ROUTES, *own.ROUTES]
WORDS = {404: "there is nothing at this address", 405: "this address is asked in another way"}


async def elsewhere(service: Service, _: object, __: Call) -> None:
    raise NotImplementedError("the explorer answers this")


EXPLORER_ROUTES = [  # of the explorer, for the description alone
    Route("GET", "/api/v1/models", "Explorer", "The models with their settings.", elsewhere, gives=dict),
    Route("POST", "/api/v1/tokenize", "Explorer", "A text in pieces.", elsewhere, TokenizeBody, dict),
    Route("POST", "/api/v1/trace", "Explorer", "One run with everything inside.", elsewhere, TraceBody, dict),
]


def add_api(app: FastAPI, service: Service) -> None:
    for route in ROUTES:
        app.router.routes.append(Address(route.path, route.endpoint(service), methods=[route.method]))
    document = describe([*ROUTES, *EXPLORER_ROUTES], service.keys is not None)

    @app.get("/openapi.json", include_in_schema=False)
    @app.get("/spec", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(document)

    @app.get("/docs", include_in_schema=False)
    def docs() -> FileResponse:
        return FileResponse(WEB / "docs.html")

    add_error_handlers(app, service)


def add_error_handlers(app: FastAPI, service: Service) -> None:
    """What goes wrong outside of our routes, without a path and in the shape of the asked API."""

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        text = WORDS.get(error.status_code, str(error.detail))
        answer = error_response(request.url.path, APIError(error.status_code, text))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(RegardError)
    async def refused(request: Request, error: RegardError) -> JSONResponse:
        found = error if isinstance(error, APIError) else APIError(400, service.without_paths(str(error)))
        return error_response(request.url.path, found)

    @app.exception_handler(Exception)
    async def surprised(request: Request, error: Exception) -> JSONResponse:
        number = request.scope.get("regard", {}).get("number", "")
        service.log.error(error, request=number)
        text = f"this should not happen; the server's log tells where, at request {number}"
        return error_response(request.url.path, APIError(500, text))
