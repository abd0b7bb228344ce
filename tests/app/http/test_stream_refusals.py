"""A stream gets a temporary refusal as an event: EventSource never retries after 429 or 503."""

from __future__ import annotations

import json

import httpx2
import pytest

from tests.support.gateways import Running, running_gateway
from tests.support.tokens import token_of
from tidegate.app.refusals import Unavailable
from tidegate.app.streams.sse import RETRY_MS
from tidegate.clients.sse import Parser

AT = "/v1/topics/px/subscribe"


def refused(answer: httpx2.Response) -> str:
    """The code in the only event of a stream that asks its reader to come again."""
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert answer.headers["content-type"].startswith("text/event-stream")
    parser = Parser()
    [only] = parser.feed(answer.content)
    assert only.name == "refused"
    assert parser.retry_ms is not None
    assert RETRY_MS[0] <= parser.retry_ms <= RETRY_MS[1]
    return str(json.loads(only.text)["code"])


async def code(running: Running, method: str, path: str) -> tuple[int, str]:
    answer = await running.http.request(method, path, json={} if method == "POST" else None)
    return answer.status_code, answer.json()["code"]


async def test_while_the_store_is_out_a_stream_is_asked_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def out(name: str) -> None:
        raise Unavailable

    async with running_gateway() as running:
        await running.topic()
        with monkeypatch.context() as broken:
            # As for a topic that another gateway has made.
            broken.setattr(running.gateway.catalog, "served", lambda name: None)
            broken.setattr(running.gateway.catalog, "seek", out)
            for path in (
                AT,
                f"{AT}?last_event_id=e-1",
                "/v1/topics/px/subscribe?options=send_keys",
            ):
                assert refused(await running.http.get(path)) == "bus-unavailable"
            # Whoever chooses the method reads the status, too.
            assert await code(running, "POST", AT) == (503, "bus-unavailable")
        async with running.subscribe() as stream:
            assert await stream.until("group_end")


async def test_while_there_are_no_keys_a_stream_is_asked_to_come_again() -> None:
    async with running_gateway(auth_keys="http://127.0.0.1:1/jwks") as running:
        headers = token_of("ann", "read >")
        for path in (AT, "/v1/sessions/abc/events"):
            assert refused(await running.http.get(path, headers=headers)) == "not-ready"
        answer = await running.http.get("/v1/topics", headers=headers)
        assert (answer.status_code, int(answer.headers["retry-after"])) == (503, 10)


async def test_a_refusal_that_stays_is_none_to_come_again_for() -> None:
    async with running_gateway() as running:
        await running.topic()
        assert await code(running, "GET", "/v1/topics/nosuch/subscribe") == (404, "topic-unknown")
        assert await code(running, "GET", f"{AT}?options=x") == (400, "options-invalid")
        assert await code(running, "GET", "/v1/sessions/abc/events") == (404, "session-unknown")


async def test_a_request_of_another_method_gets_the_status_of_a_refusal_that_passes() -> None:
    async with running_gateway(sessions_max=1) as running:
        await running.topic()
        async with running.subscribe():
            assert refused(await running.http.get(AT)) == "limit-reached"
            answer = await running.http.post(AT, json={})
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
        running.gateway.say_goodbye()
        for path in (AT, "/v1/topics/*/subscribe"):
            assert refused(await running.http.get(path)) == "not-ready"
            answer = await running.http.post(path, json={})
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
