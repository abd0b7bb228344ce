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
    """Stops the parser from inside one of its callbacks; the problem waits in the protocol."""


# Pipelined requests; more are not read (RFC 9112 allows closing the connection).
PIPELINE_MAX: Final = 16


class RequestBounds:
    """Bounds what the parser of one connection takes in; httptools itself has no limit.

    Each check returns the problem that stops the parser, or None.
    """

    __slots__ = ("_header_bytes", "_settings", "_silent_bytes")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._header_bytes = 0
        self._silent_bytes = 0  # received since the header began, or a piece of the body came

    def begin_header(self) -> None:
        """Count the fields of a new header."""
        self._header_bytes = 0

    def received(self, size_bytes: int) -> None:
        """Count bytes that the parser is about to get."""
        self._silent_bytes += size_bytes

    def restart_silence(self) -> None:
        """Count silent bytes from here: a header begins, or a piece of a body came."""
        self._silent_bytes = 0

    def target_problem(self, target: bytes) -> Refused | None:
        """Return the problem of a target that is too long; checked as its pieces come."""
        if len(target) <= self._settings.uri_bytes_max:
            return None
        detail = f"The target has at most {self._settings.uri_bytes_max} bytes."
        return Refused("uri-too-long", detail)

    def field_problem(self, name: bytes, value: bytes, fields_before: int) -> Refused | None:
        """Count a field; return the problem of a header with too many fields or bytes."""
        self._header_bytes += len(name) + len(value) + len(b": \r\n")
        # Both are bounded: ten thousand empty fields cost more memory than their bytes say.
        if (
            self._header_bytes > self._settings.header_bytes_max
            or fields_before >= self._settings.header_count_max
        ):
            return self._too_large()
        return None

    def pipeline_problem(self, waiting: int) -> Refused | None:
        """Return the problem of one more request, while so many wait for their turn."""
        if waiting < PIPELINE_MAX:
            return None
        return Refused("limit-reached", "Too many requests at once on one connection.")

    def silence_problem(self) -> Refused | None:
        """Return the problem of bytes that the parser swallows: endless fields, endless trailers.

        httptools calls back for a field once it is whole, so one without an end would grow unseen.
        """
        bytes_max = self._settings.header_bytes_max + self._settings.uri_bytes_max
        is_within = self._silent_bytes <= bytes_max + REQUEST_LINE_REST_BYTES
        return None if is_within else self._too_large()

    def _too_large(self) -> Refused:
        return Refused(
            "headers-too-large",
            f"The header has at most {self._settings.header_count_max} fields "
            f"and {self._settings.header_bytes_max} bytes.",
        )


def head_problem(version: str, target: bytes, fields: Fields) -> Refused | None:
    """Return the problem of a request's header, if any; names of `fields` are lower-case."""
    names = [name for name, _ in fields]
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if version not in {"1.0", "1.1"}:
        return Refused("message-invalid", "The gateway speaks HTTP/1.1.")
    # HTTP/1.0 has no Host, and probes of load balancers speak it.
    is_probe = version == "1.0" and target.decode("latin-1") in HEALTH_PATHS
    if names.count(b"host") != 1 and not (is_probe and not names.count(b"host")):
        return HttpRefused("host-not-allowed", "A request has one Host header.", status=400)
    # A length and a coding at once may be read in two ways (RFC 9112, 6.1): request smuggling.
    if codings not in ([], [b"chunked"]) or (codings and b"content-length" in names):
        return Refused("message-invalid", "A body has a length or is chunked, nothing else.")
    # A proxy of HTTP/1.0 knows no codings, and would take the chunks for the next request.
    if codings and version == "1.0":
        return Refused("message-invalid", "A body of HTTP/1.0 has a length.")
    # A browser keeps it to itself. A proxy may read a path with one otherwise than we do.
    if b"#" in target:
        return Refused("message-invalid", "The request's target has no fragment.")
    if not target.startswith(b"/"):
        return _absolute_target_problem(target, fields)
    return None


def without_upgrade(method: bytes, target: bytes, version: str, fields: Fields) -> bytes:
    """Return the header without the fields that ask for another protocol."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    # RFC 9110, 7.8: a server may ignore Upgrade and answer in the protocol of the request.
    lines += [b"%b: %b" % field for field in fields if field[0] not in UPGRADE_FIELDS]
    if any(name == b"connection" and b"close" in value.lower() for name, value in fields):
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"", b""])


def _absolute_target_problem(target: bytes, fields: Fields) -> Refused | None:
    """Refuse a whole URL (proxies send one) that names another host than the Host header."""
    scheme, _, rest = target.partition(b"://")
    host = next(value for name, value in fields if name == b"host")
    if scheme.lower() not in {b"http", b"https"}:
        return Refused("message-invalid", "The request's target is not a path.")
    if rest.partition(b"/")[0].lower() != host.lower():
        return HttpRefused("host-not-allowed", "The target names another host.", status=400)
    return None
