"""Errors as responses: a status, a message, and the JSON shape of the API that was called."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

from regard.errors import RegardError

OPENAI = "/v1/"  # its errors are objects
KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


class APIError(RegardError):
    """An error response; `param` is the invalid field, `code` the error code of OpenAI's API."""

    def __init__(
        self,
        status: int,
        text: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(text)
        self.status, self.param, self.code, self.close = status, param, code, close
        self.retry_after = retry_after


def rate_limit_error(text: str, seconds: float | None) -> APIError:
    """429 for a full queue."""
    return APIError(429, f"Slowdown: {text}", code="rate_limit_exceeded", retry_after=seconds)


def error_response(path: str, error: APIError) -> JSONResponse:
    """The JSON response to a request for `path`."""
    content: Mapping[str, object] = {"error": str(error)} | ({"code": error.code} if error.code else {})
    if path.startswith(OPENAI):
        kind = KINDS.get(error.status) or (
            "rate_limit_error" if error.status == 429
            else "server_error" if error.status >= 500
            else "invalid_request_error"
        )  # fmt: skip
        content = {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="regard: any name, the key as password", charset="UTF-8"'
    if error.close:
        headers["Connection"] = "close"
    return JSONResponse(content, error.status, headers)
