"""Errors as responses: a status, a message, a stable code, and the JSON shape of the API that was called."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse

from regard.errors import RegardError, near_miss

OPENAI = "/v1/"  # its errors are objects
CODES = {  # the code of a status, where an error has none of its own
    400: "invalid_request",
    401: "invalid_api_key",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "request_too_large",
    415: "unsupported_media_type",
    429: "rate_limit_exceeded",
    431: "headers_too_large",
    503: "unavailable",
}
KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class APIError(RegardError):
    """An error response; `param` is the invalid field, `code` identifies the error."""

    def __init__(
        self,
        status: int,
        text: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(text, code=code or CODES.get(status, "internal_error"))
        self.status, self.param, self.retry_after, self.close = status, param, retry_after, close


def unknown_model(name: str, models: Collection[str]) -> APIError:
    hint = near_miss(name, models) or f"; there are {', '.join(models) or 'none'}"
    return APIError(404, f'model: there is no "{name}"{hint}', "model", "model_not_found")


class ErrorBody(BaseModel):
    """Errors of the native and LibreTranslate routes."""

    error: str
    code: str


class OpenAIErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorBody(BaseModel):
    error: OpenAIErrorDetail


def responses(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The errors of a router, for the OpenAPI document."""
    return {
        "4XX": {"model": model, "description": "The request is refused; the code says why."},
        "5XX": {"model": model, "description": "The server failed or is busy; see Retry-After."},
    }


def error_response(path: str, error: APIError) -> JSONResponse:
    """The JSON response to a request for `path`."""
    content: dict[str, Any] = {"error": str(error), "code": error.code}
    if path.startswith(OPENAI):
        kind = KINDS.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
        content = {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="regard: any name, the key as password", charset="UTF-8"'
    if error.close:
        headers["Connection"] = "close"
    return JSONResponse(content, error.status, headers)
