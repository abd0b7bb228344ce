"""Refusals as answers: problems (RFC 9457), their header fields, and those of the framework."""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tidegate.app.refusals import Refused, TokenRefused, reference_token, refused
from tidegate.keys.errors import Refusal

STREAMS = ("/subscribe", "/events", "/trace")
POLLED: Final = "/stream"
"""Of a topic that is read position by position; with `live` a request waits."""
MEDIA_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="tidegate"'

# Refusals of the framework, which have a status only.
CODE_OF_STATUS: Final[Mapping[int, str]] = {
    400: "message-invalid",
    401: "unauthenticated",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    408: "request-timeout",
    412: "precondition-failed",
    413: "message-too-large",
    414: "uri-too-long",
    415: "unsupported-media-type",
    421: "host-not-allowed",
    422: "message-invalid",
    429: "limit-reached",
    431: "headers-too-large",
    503: "not-ready",
}

DETAILS: Final[Mapping[int, str]] = {
    404: "There is nothing under this path.",
    405: "The header Allow names the methods that this path takes.",
}

INTERNAL: Final = Refused("internal", "The gateway failed to answer; the reason is in its log.")
"""The refusal that stands for any error of the gateway's own."""

# FastAPI's location (`loc`) of an invalid value -> (code, name of the location).
CODE_OF_PLACE: Final[Mapping[str, tuple[str, str]]] = {
    "path": ("not-found", "path"),
    "query": ("options-invalid", "query parameter"),
    "header": ("message-invalid", "header"),
    "cookie": ("message-invalid", "cookie"),
    "body": ("message-invalid", "body"),
}


class HttpRefused(Refused):
    """A refusal with an HTTP status or header fields of its own.

    Args:
        code: see `Refused`.
        detail: see `Refused`.
        status: overrides that of the code.
        headers: fields of the answer, such as Allow.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.status = self.status if status is None else status
        self.headers = dict(headers or {})


def stopping() -> Refused:
    """Return the refusal of what a gateway that is about to stop begins no more."""
    return Refused("not-ready", "The gateway is about to stop.", retry_after_s=1)


def headers_of(refusal: Refused) -> dict[str, str]:
    """Return the header fields that a refusal adds to its response."""
    headers = dict(refusal.headers) if isinstance(refusal, HttpRefused) else {}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    if isinstance(refusal, TokenRefused):
        headers["WWW-Authenticate"] = f'{CHALLENGE}, error="{refusal.reason}"'
    elif refusal.code == "unauthenticated":
        headers["WWW-Authenticate"] = CHALLENGE
    return headers


def body_of(refusal: Refused) -> bytes:
    """Return the problem as JSON."""
    return msgspec.json.encode(refusal.document())


def response_of(refusal: Refused) -> Response:
    """Return the problem as a response of the framework."""
    return Response(body_of(refusal), refusal.status, headers_of(refusal), MEDIA_TYPE)


def refusal_of(error: Exception) -> Refused:
    """Return the refusal for an exception; `internal` for an unexpected one."""
    if isinstance(error, Refusal):
        return refused(error)
    if isinstance(error, RequestValidationError):
        return _of_validation(error)
    if isinstance(error, HTTPException):
        return _of_status(error)
    return INTERNAL


def _of_status(error: HTTPException) -> HttpRefused:
    # A status that the framework may add later still gets a code that clients know.
    default = "internal" if error.status_code >= 500 else "message-invalid"
    code = CODE_OF_STATUS.get(error.status_code, default)
    detail = DETAILS.get(error.status_code, f"{http.HTTPStatus(error.status_code).phrase}.")
    return HttpRefused(code, detail, status=error.status_code, headers=error.headers)


def _of_validation(error: RequestValidationError) -> Refused:
    """Return what did not fit and where; never the value, which may not even be encodable."""
    first: dict[str, Any] = next(iter(error.errors()), {"loc": ("body",), "type": "invalid"})
    place, *path = first["loc"]
    code, name = CODE_OF_PLACE.get(str(place), ("message-invalid", "request"))
    reason = str(first["type"]).replace("_", " ")
    if reason == "extra forbidden":
        path = path[:-1]  # the last part is the client's own text
    if place == "body" and reason != "json invalid":
        pointer = "".join("/" + reference_token(part) for part in path)
        return Refused(code, f"The body does not fit: {reason}.", pointer=pointer or None)
    named = f"{name} {path[0]}" if path and place != "body" else name
    return Refused(code, f"The {named} does not fit: {reason}.")
