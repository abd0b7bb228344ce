"""The refusal of a connection for which there is no room."""

import json

import pytest

from tests.support.wire import parse_answer
from tidegate.app.http.wire import too_many_connections
from tidegate.clients.sse import Parser


@pytest.mark.parametrize(
    "path", [b"/v1/topics/px/messages", b"/v1/topics/events", b"/", b"/subscribers"]
)
def test_a_request_gets_a_problem_and_when_to_come_back(path: bytes) -> None:
    answer = parse_answer(too_many_connections("connections_max", path, [b"application/json"]))
    assert (answer.status, answer.code) == (429, "limit-reached")
    assert 1 <= int(answer.headers["retry-after"]) <= 5
    assert answer.headers["connection"] == "close"
    assert len(answer.body) == int(answer.headers["content-length"])


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        (b"/v1/topics/px/subscribe", b"*/*"),
        (b"/v1/sessions/abc/events", b"*/*"),
        (b"/v1/sessions/abc/subscriptions/s1/trace", b"*/*"),
        (b"/elsewhere", b"text/html, Text/Event-Stream;q=0.5"),
    ],
)
def test_a_stream_is_refused_by_an_event(path: bytes, accept: bytes) -> None:
    """A browser never comes back after 429 or 503."""
    answer = parse_answer(too_many_connections("connections_max", path, [b"x/y", accept]))
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["connection"] == "close"
    parser = Parser()
    [refused] = parser.feed(answer.body)
    assert (refused.name, json.loads(refused.text)["code"]) == ("refused", "limit-reached")
    assert parser.retry_ms is not None
