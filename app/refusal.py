"""Turned away at the door: what those get who come when there are connections enough."""

from collections.abc import Iterable
from http import HTTPStatus

from app.problems import Problem, answer_bytes, problem_bytes
from app.sse import event
from app.stream import jittered_retry_ms

EVENT_STREAM = "text/event-stream"
STREAM_ENDINGS = (b"/subscribe", b"/events", b"/trace")


def too_many_connections(path: bytes, accepts: Iterable[bytes]) -> bytes:
    """A whole HTTP/1.1 answer: 429, or for who wants a stream the problem as its only event.

    A browser never retries after 429 or 503, so it is told in a stream.

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
