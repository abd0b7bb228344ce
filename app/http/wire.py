"""HTTP/1.1 as bytes, below the application: headers within their bounds, and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from http import HTTPStatus
from typing import Final

from tidegate.app.http.problems import MEDIA_TYPE, STREAMS, HttpRefused, body_of, headers_of
from tidegate.app.http.requests import has_ending
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings
from tidegate.app.streams.sse import EVENT_STREAM, event, jittered_retry_ms

Fields = Sequence[tuple[bytes, bytes]]
FieldTuple = tuple[tuple[bytes, bytes], ...]

REQUEST_LINE_REST_BYTES: Final = 64  # method, version and spaces around the target
UPGRADE_FIELDS: Final = frozenset({b"connection", b"upgrade", b"http2-settings"})
ANY_ORIGIN: Final = "*"
EXPOSED_HEADERS: Final = (
    "ETag",
    "Location",
    "Retry-After",
    "Stream-Cursor",
    "Stream-Next-Offset",
    "Stream-Up-To-Date",
    "Tidegate-Bookmark",
    "Tidegate-Gateway",
)
"""Header fields of answers that pages of allowed origins may read."""
GATEWAY: Final = b"tidegate-gateway"
"""The header field that names the gateway that answers, where there are several."""
HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})


def too_many_connections(
    setting: str, path: bytes, accepts: Iterable[bytes], cors: Mapping[str, str] | None = None
) -> bytes:
    """Return a whole HTTP/1.1 answer: 429, or a stream with the problem as its only event.

    A browser that wants a stream never retries after 429 or 503.

    Args:
        setting: the limit that is reached.
        path: the request's path, undecoded.
        accepts: the values of its Accept headers.
        cors: fields for a page of another origin, as of `cors_fields`.
    """
    retry_ms = jittered_retry_ms()
    detail = f"There are as many connections as may be ({setting})."
    # Whole seconds, rounded up: a client that comes early would be refused again.
    headers = {"Retry-After": str(-(-retry_ms // 1_000)), **(cors or {})}
    problem = HttpRefused("limit-reached", detail, headers=headers)
    wants_stream = any(EVENT_STREAM.encode() in value.lower() for value in accepts)
    if not wants_stream and not has_ending(path.decode("latin-1"), STREAMS):
        return problem_bytes(problem)
    body = event("refused", problem.document(), retry_ms=retry_ms)
    return answer_bytes(HTTPStatus.OK, f"{EVENT_STREAM}; charset=utf-8", body, cors or {})


def cors_fields(allowed: Sequence[str], request: Fields) -> dict[str, str]:
    """Return the CORS fields of an answer below ASGI, where no middleware adds them.

    Without them a browser hides the event that asks it to come again, and gives up.
    """
    if not allowed:
        return {}
    fields = {"vary": "Origin"}
    origin = next((value.decode("latin-1") for name, value in request if name == b"origin"), "")
    if ANY_ORIGIN in allowed:
        return {**fields, "access-control-allow-origin": ANY_ORIGIN}
    if origin in allowed:
        fields["access-control-allow-origin"] = origin
        fields["access-control-allow-credentials"] = "true"
    return fields


def problem_bytes(problem: Refused, cors: Mapping[str, str] | None = None) -> bytes:
    """Return a whole HTTP/1.1 answer that closes the connection, for use below ASGI."""
    body = body_of(problem)
    headers = {"content-length": str(len(body)), **headers_of(problem), **(cors or {})}
    return answer_bytes(problem.status, MEDIA_TYPE, body, headers)


def answer_bytes(status: int, media_type: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a whole HTTP/1.1 answer; the connection ends it unless `headers` say its length."""
    lines = {
        "content-type": media_type,
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        **headers,
        "connection": "close",
    }
    head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    head += [f"{name}: {value}" for name, value in lines.items()]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def without_body(answer: bytes) -> bytes:
    """Return the header of a whole answer, which is all that HEAD gets (RFC 9110, 9.3.2)."""
    head, end, _ = answer.partition(b"\r\n\r\n")
    return head + end


class Stage(Enum):
    """The part of a request that the next byte belongs to."""

    IDLE = "between requests"
    HEAD = "request's header"
    BODY = "request's body"
    REFUSED = "nothing that we read"


class Stopped(Exception):
    """Stops the parser from inside one of its callbacks.

    Args:
        answer: what the connection gets in place of the application's answer.
    """

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


# Pipelined requests; more are not read (RFC 9112 allows closing the connection).
PIPELINE_MAX: Final = 16


def check_progress(target: bytes, silent_bytes: int, settings: Settings) -> None:
    """Refuse a request that grows without an end; httptools itself has no limit.

    httptools calls back for a field once it is whole, so an endless field, and endless trailers,
    would grow unseen.

    Args:
        target: what has come of the request's target.
        silent_bytes: received since the header began, or a piece of the body came.
        settings: have the bounds.

    Raises:
        Refused: uri-too-long or headers-too-large.
    """
    if len(target) > settings.uri_bytes_max:
        raise _too_long(settings)
    bytes_max = settings.header_bytes_max + settings.uri_bytes_max + REQUEST_LINE_REST_BYTES
    if silent_bytes > bytes_max:
        raise headers_too_large(settings)


def headers_too_large(settings: Settings) -> Refused:
    """Return the refusal of a header with too many fields or bytes."""
    return Refused(
        "headers-too-large",
        f"The header has at most {settings.header_count_max} fields "
        f"and {settings.header_bytes_max} bytes.",
    )


def _too_long(settings: Settings) -> Refused:
    return Refused("uri-too-long", f"The target has at most {settings.uri_bytes_max} bytes.")


def check_head(version: str, target: bytes, fields: Fields, settings: Settings) -> None:
    """Check the whole header of a request; names of `fields` are lower-case.

    Raises:
        Refused: uri-too-long, headers-too-large, message-invalid or host-not-allowed.
    """
    size_bytes = hosts = 0
    codings: list[bytes] = []
    has_length = False
    for name, value in fields:
        size_bytes += len(name) + len(value) + len(b": \r\n")
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings.append(value.lower())
        elif name == b"content-length":
            has_length = True
    if len(target) > settings.uri_bytes_max:
        raise _too_long(settings)
    if size_bytes > settings.header_bytes_max:
        raise headers_too_large(settings)
    if version not in {"1.0", "1.1"}:
        raise Refused("message-invalid", "The gateway speaks HTTP/1.1.")
    # HTTP/1.0 has no Host, and probes of load balancers speak it.
    is_probe = version == "1.0" and target.decode("latin-1") in HEALTH_PATHS
    if hosts != 1 and not (is_probe and not hosts):
        raise HttpRefused("host-not-allowed", "A request has one Host header.", status=400)
    if codings:
        _check_codings(codings, version, has_length=has_length)
    # A browser keeps it to itself. A proxy may read a path with one otherwise than we do.
    if b"#" in target:
        raise Refused("message-invalid", "The request's target has no fragment.")
    if not target.startswith(b"/"):
        _check_absolute_target(target, fields)


def without_upgrade(method: bytes, target: bytes, version: str, fields: Fields) -> bytes:
    """Return the header without the fields that ask for another protocol."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    # RFC 9110, 7.8: a server may ignore Upgrade and answer in the protocol of the request.
    lines += [b"%b: %b" % field for field in fields if field[0] not in UPGRADE_FIELDS]
    if any(name == b"connection" and b"close" in value.lower() for name, value in fields):
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"", b""])


def _check_codings(codings: list[bytes], version: str, *, has_length: bool) -> None:
    # A length and a coding at once may be read in two ways (RFC 9112, 6.1): request smuggling.
    if codings != [b"chunked"] or has_length:
        raise Refused("message-invalid", "A body has a length or is chunked, nothing else.")
    # A proxy of HTTP/1.0 knows no codings, and would take the chunks for the next request.
    if version == "1.0":
        raise Refused("message-invalid", "A body of HTTP/1.0 has a length.")


def _check_absolute_target(target: bytes, fields: Fields) -> None:
    """Refuse a whole URL (proxies send one) that names another host than the Host header."""
    scheme, _, rest = target.partition(b"://")
    host = next(value for name, value in fields if name == b"host")
    if scheme.lower() not in {b"http", b"https"}:
        raise Refused("message-invalid", "The request's target is not a path.")
    if rest.partition(b"/")[0].lower() != host.lower():
        raise HttpRefused("host-not-allowed", "The target names another host.", status=400)
