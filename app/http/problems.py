"""Problems (RFC 9457): one table of codes, and what an exception becomes.

Codes are the contract's; this table alone has their status. An answer never repeats what a client
sent, except the name of an unknown field, shortened, in its pointer.
"""

from __future__ import annotations

import http
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tidegate.conflation.errors import EngineError, LimitReached
from tidegate.keys.errors import KeysError

STREAMS = ("/subscribe", "/events", "/trace")
MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:tidegate:problem:"
TRANSPORT_EXTENSION = "tidegate.transport"
RETRY_LATER = {"Retry-After": "60"}
"""For a limit that sessions or topics hold: they are let go by the minute, not by the second."""

PROBLEMS: Final[Mapping[str, tuple[int, str]]] = {
    "topic-unknown": (404, "There is no such topic"),
    "topic-conflict": (409, "The topic stands against this change"),
    "topic-invalid": (400, "Not a valid topic"),
    "topic-read-only": (403, "The topic is read-only"),
    "topic-in-use": (409, "The topic is another's source"),
    "source-cycle": (409, "The topic would be its own source"),
    "policy-invalid": (422, "Not a valid conflation policy"),
    "key-invalid": (422, "Not a valid key"),
    "key-missing": (422, "A key field is missing"),
    "options-invalid": (400, "Not valid options"),
    "filter-invalid": (400, "Not a valid filter"),
    "message-invalid": (400, "Not a valid message"),
    "message-too-large": (413, "Too large"),
    "schema-violation": (422, "The message does not fit the topic's schema"),
    "bookmark-invalid": (400, "Not a valid bookmark"),
    "bookmark-expired": (410, "The journal does not go on from there"),
    "record-unknown": (404, "There is no such record"),
    "session-unknown": (404, "There is no such session"),
    "subscription-unknown": (404, "There is no such subscription"),
    "limit-reached": (429, "A limit is reached"),
    "idempotency-conflict": (409, "The idempotency key was used for another request"),
    "producer-fenced": (409, "A newer run of the producer has committed"),
    "unauthenticated": (401, "Who are you?"),
    "forbidden": (403, "Not permitted"),
    "csrf": (403, "The request may not come from this page"),
    "precondition-failed": (412, "The precondition does not hold"),
    "unsupported-media-type": (415, "The content type is not taken"),
    "unsupported-encoding": (415, "The content encoding is not taken"),
    "not-acceptable": (406, "No acceptable content type"),
    "uri-too-long": (414, "The request target is too long"),
    "headers-too-large": (431, "The request header is too large"),
    "request-timeout": (408, "The request took too long"),
    "host-not-allowed": (421, "The host is not served here"),
    "origin-not-allowed": (403, "The origin is not allowed"),
    "bus-unavailable": (503, "The store or the bus is out"),
    "not-ready": (503, "Not ready"),
    "method-not-allowed": (405, "The method is not allowed"),
    "not-found": (404, "Nothing here"),
    "internal": (500, "An error of the gateway"),
}

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

# FastAPI's place of an invalid value -> (code, name of the place).
CODE_OF_PLACE: Final[Mapping[str, tuple[str, str]]] = {
    "path": ("not-found", "path"),
    "query": ("options-invalid", "query parameter"),
    "header": ("message-invalid", "header"),
    "cookie": ("message-invalid", "cookie"),
    "body": ("message-invalid", "body"),
}


class Problem(Exception):
    """A refusal. Raise one anywhere below a route; the client gets problem+json.

    Args:
        code: one of `PROBLEMS`; decides title and, unless given, status.
        detail: one sentence for a person. Never what the client sent.
        status: only where the contract gives the code a second status.
        position: 0-based character in an options string or a filter.
        line: 1-based line of an NDJSON body.
        pointer: JSON pointer to the field at fault.
        headers: extra response headers, such as Retry-After.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        position: int | None = None,
        line: int | None = None,
        pointer: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail
        # A KeyError here is a bug: codes are a closed list, which the contract names.
        self.status = PROBLEMS[code][0] if status is None else status
        self.position = position
        self.line = line
        self.pointer = pointer
        self.headers = dict(headers or {})

    @property
    def title(self) -> str:
        """The code's short text."""
        return PROBLEMS[self.code][1]

    def document(self) -> dict[str, object]:
        """Return the JSON object that the client gets."""
        document: dict[str, object] = {
            "type": TYPE_PREFIX + self.code,
            "title": self.title,
            "status": self.status,
            "detail": _encodable(self.detail),
            "code": self.code,
        }
        for name in ("position", "line", "pointer"):
            value = getattr(self, name)
            if value is not None:
                document[name] = _encodable(value) if isinstance(value, str) else value
        return document

    def body(self) -> bytes:
        """Return the document as JSON."""
        return msgspec.json.encode(self.document())

    def response(self) -> Response:
        """Return the problem as a response of the framework."""
        return Response(self.body(), self.status, self.headers, MEDIA_TYPE)


def unknown_field(
    code: str, document: Iterable[str], known: Iterable[str], at: str = ""
) -> Problem:
    """Return the problem of the first unknown field; its pointer has the name, shortened.

    Args:
        code: the problem's code.
        document: the names of the fields that were sent.
        known: those there are.
        at: the pointer to what has them.
    """
    names = tuple(known)
    name = next(name for name in document if name not in names)
    detail = f"Unknown field; known: {', '.join(names)}."
    return Problem(code, detail, pointer=f"{at}/{reference_token(name)}")


def problem_of(error: Exception) -> Problem:
    """Return the problem for an exception; `internal` for an unexpected one."""
    if isinstance(error, Problem):
        return error
    # The engine and keys know no HTTP: their errors carry a code, which becomes a problem here.
    if isinstance(error, EngineError | KeysError):
        headers = RETRY_LATER if isinstance(error, LimitReached) else None
        return Problem(error.code, f"{error.detail}.", position=error.position, headers=headers)
    if isinstance(error, RequestValidationError):
        return _of_validation(error)
    if isinstance(error, HTTPException):
        return _of_status(error)
    return Problem("internal", "The gateway failed to answer; the reason is in its log.")


def _of_status(error: HTTPException) -> Problem:
    # A status that the framework may add later still gets a code that clients know.
    default = "internal" if error.status_code >= 500 else "message-invalid"
    code = CODE_OF_STATUS.get(error.status_code, default)
    detail = DETAILS.get(error.status_code, f"{http.HTTPStatus(error.status_code).phrase}.")
    return Problem(code, detail, status=error.status_code, headers=error.headers)


def _of_validation(error: RequestValidationError) -> Problem:
    """Return what did not fit and where; never the value, which may not even be encodable."""
    first: dict[str, Any] = next(iter(error.errors()), {"loc": ("body",), "type": "invalid"})
    place, *path = first["loc"]
    code, name = CODE_OF_PLACE.get(str(place), ("message-invalid", "request"))
    reason = str(first["type"]).replace("_", " ")
    if reason == "extra forbidden":
        path = path[:-1]  # the last part is the client's own text
    if place == "body" and reason != "json invalid":
        pointer = "".join("/" + reference_token(part) for part in path)
        return Problem(code, f"The body does not fit: {reason}.", pointer=pointer or None)
    named = f"{name} {path[0]}" if path and place != "body" else name
    return Problem(code, f"The {named} does not fit: {reason}.")


def reference_token(part: object) -> str:
    """Return one step of a JSON pointer, shortened."""
    # It may be the client's own text, which could be a megabyte.
    return str(part)[:64].replace("~", "~0").replace("/", "~1")


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which no encoder takes."""
    # A name of the client's may hold one, and an answer that cannot be encoded would be a 500.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
