"""Bytes that are written without the application: events of a stream, and answers of refusals."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from http import HTTPStatus

import msgspec

from tidegate.app.http.problems import MEDIA_TYPE, STREAMS, Problem

HEARTBEAT = b": heartbeat\n\n"
FIELD, END = b"data: ", b"\n\n"
RETRY_MS = (1_000, 5_000)
EVENT_STREAM = "text/event-stream"
STREAM_ENDINGS = tuple(ending.encode() for ending in STREAMS)


def event(name: str, document: object, *, id_text: str = "", retry_ms: int | None = None) -> bytes:
    """Encode a named event; the document is JSON on one line."""
    lines = [b"event: " + name.encode()]
    if id_text:
        lines.append(b"id: " + id_text.encode())
    if retry_ms is not None:
        lines.append(b"retry: %d" % retry_ms)
    lines.append(FIELD + msgspec.json.encode(document))
    return b"\n".join(lines) + END


def jittered_retry_ms() -> int:
    """Return a random retry delay, so that clients do not come back all at once."""
    return random.randint(*RETRY_MS)


def too_many_connections(path: bytes, accepts: Iterable[bytes]) -> bytes:
    """Return a whole HTTP/1.1 answer: 429, or a stream with the problem as its only event.

    A browser that wants a stream never retries after 429 or 503.

    Args:
        path: of the request, undecoded.
        accepts: the values of its Accept headers.
    """
    retry_ms = jittered_retry_ms()
    detail = "The gateway has as many connections as it may."
    headers = {"Retry-After": str(-(-retry_ms // 1_000))}
    problem = Problem("limit-reached", detail, headers=headers)
    wants_stream = any(EVENT_STREAM.encode() in value.lower() for value in accepts)
    if not wants_stream and not path.endswith(STREAM_ENDINGS):
        return problem_bytes(problem)
    body = event("error", problem.document(), retry_ms=retry_ms)
    return answer_bytes(HTTPStatus.OK, f"{EVENT_STREAM}; charset=utf-8", body, {})


def problem_bytes(problem: Problem) -> bytes:
    """Return a whole HTTP/1.1 answer that closes the connection, for use below ASGI."""
    body = problem.body()
    headers = {"content-length": str(len(body)), **problem.headers}
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
