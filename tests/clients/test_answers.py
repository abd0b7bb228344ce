"""Responses are parsed, or rejected if they do not come from a gateway."""

from __future__ import annotations

import copy

import httpx2
import pytest

from tidegate.clients.answers import Lines, fields_of, problem_of, require_media_type
from tidegate.clients.errors import AnswerInvalid

PROBLEM = {"Content-Type": "application/problem+json"}


def answer(status: int, body: bytes, **headers: str) -> httpx2.Response:
    request = httpx2.Request("GET", "http://127.0.0.1/v1/topics")
    return httpx2.Response(status, content=body, headers=headers, request=request)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"\xff", b"null"])
def test_an_answer_without_a_json_object_is_rejected(body: bytes) -> None:
    with pytest.raises(AnswerInvalid, match="did not answer as a Tidegate gateway"):
        fields_of(answer(200, body))
    assert problem_of(answer(502, body)).code == "http-502"


@pytest.mark.parametrize("sent", ["application/x-ndjson", "Application/JSON; charset=utf-8"])
def test_the_requested_media_types_are_accepted(sent: str) -> None:
    require_media_type(
        answer(200, b"", **{"Content-Type": sent}), "application/x-ndjson", "application/json"
    )


@pytest.mark.parametrize("sent", ["text/html", "application/jsonx", ""])
def test_another_media_type_is_rejected(sent: str) -> None:
    with pytest.raises(
        AnswerInvalid, match=f"sent {sent or 'no Content-Type'}, not application/json"
    ):
        require_media_type(answer(200, b"<p>", **{"Content-Type": sent}), "application/json")


def test_a_problem_says_where() -> None:
    said = b'{"title":"T","code":"c","detail":"D\\nE","line":3}'
    problem = problem_of(answer(400, said, **PROBLEM))
    assert (problem.line, problem.position) == (3, None)
    assert str(problem) == "T [c, line 3]: D E"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b'{"code":"NotFound","message":"no Route matched"}'),
        ("application/json", b'{"code":5,"message":"not found"}'),
        ("application/problem+json", b'{"type":"about:blank","title":"Not Found","status":404}'),
        ("application/problem+json", b'{"code":404}'),
        ("text/html", b'{"code":"topic-unknown"}'),
    ],
)
def test_a_refusal_in_json_by_another_server_has_a_code_of_its_status(
    kind: str, body: bytes
) -> None:
    problem = problem_of(answer(404, body, **{"Content-Type": kind}))
    assert (problem.code, problem.is_proxy_outage) == ("http-404", True)


def test_an_answer_without_a_required_member_is_rejected() -> None:
    assert fields_of(answer(200, b'{"topic":"t","messages":0}'), "topic", "messages")
    with pytest.raises(AnswerInvalid):
        fields_of(answer(200, b'{"status":"maintenance"}'), "topic", "messages")


def test_retry_after_counts_in_seconds_only() -> None:
    assert problem_of(answer(429, b"{}", **{"Retry-After": "7"})).retry_after_s == 7
    assert problem_of(answer(429, b"{}", **{"Retry-After": "Mon, 01 Jan"})).retry_after_s is None


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_whole_however_they_arrive(size: int) -> None:
    text = b"one\n\ntwo two\n  \nthree"
    chunks = (text[start : start + size] for start in range(0, len(text), size))
    lines = Lines()
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    assert [*found, *lines.rest()] == [b"one", b"two two", b"three"]


@pytest.mark.parametrize(
    ("method", "path", "body", "about"),
    [
        ("PUT", "/v1/topics/px.a", None, "topic px.a"),
        ("GET", "/v1/topics/px/sow/%5B%22a%22%5D", None, 'record ["a"] of topic px'),
        ("GET", "/v1/sessions/s1/events", None, "session s1"),
        ("POST", "/v1/sessions/s1/subscriptions", {"topic": "px.*"}, "topic px.*"),
        ("DELETE", "/v1/sessions/s1/subscriptions/s2", None, "subscription s2 of session s1"),
        ("GET", "/v1/topics", None, ""),
        ("POST", "/v1/explain", {}, ""),
    ],
)
def test_a_refusal_names_what_was_refused(
    method: str, path: str, body: dict[str, str] | None, about: str
) -> None:
    request = httpx2.Request(method, f"http://gateway:1{path}", json=body)
    said = {"title": "No", "code": "forbidden", "detail": "Why."}
    problem = problem_of(httpx2.Response(403, json=said, headers=PROBLEM, request=request))
    assert problem.about == about
    named = f", {about}" if about else ""
    assert str(problem) == f"No [forbidden{named}]: Why."
    assert str(copy.copy(problem)) == str(problem)


def test_a_name_is_not_said_twice() -> None:
    request = httpx2.Request("GET", "http://gateway:1/v1/topics/px")
    said = {"title": "No", "code": "topic-unknown", "detail": "There is no topic px."}
    problem = problem_of(httpx2.Response(404, json=said, headers=PROBLEM, request=request))
    assert str(problem) == "No [topic-unknown]: There is no topic px."
