"""`/v1/sessions/{session}/subscriptions/{sub}/trace`: who may have one, and which."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.support.gateways import Running, Stream, eventually, names, running_gateway
from tests.support.rules import rule
from tidegate.conflation.tracing.recorder import RECORDERS_MAX


def path(running: Running, sub: str = "s1") -> str:
    """The trace of the subscription that was opened last."""
    return f"/v1/sessions/{running.hellos[-1]['session']}/subscriptions/{sub}/trace"


@contextlib.asynccontextmanager
async def traced(running: Running, target: str = "") -> AsyncIterator[Stream]:
    async with running.http.stream("GET", target or path(running)) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer)


@pytest.mark.parametrize(
    ("session", "sub", "query", "status", "code"),
    [
        ("nobody", "s1", "", 404, "session-unknown"),
        ("no.body", "s1", "", 404, "session-unknown"),
        ("", "s2", "", 404, "subscription-unknown"),
        ("", "s.1", "", 404, "subscription-unknown"),
        ("", "s1", "?zzq=1", 400, "options-invalid"),
        ("", "s1", "?topic=other", 404, "topic-unknown"),
    ],
)
async def test_what_is_not_there_has_no_trace(
    session: str, sub: str, query: str, status: int, code: str
) -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=1s"):
            known = running.hellos[0]["session"]
            target = f"/v1/sessions/{session or known}/subscriptions/{sub}/trace{query}"
            answer = await running.http.get(target)
            assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert running.gateway.driver.engine.watchers == []


async def test_it_is_a_stream_and_nothing_else() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=1s"):
            answer = await running.http.get(path(running), headers={"Accept": "text/html"})
            assert answer.json()["code"] == "not-acceptable"
            answer = await running.http.post(path(running))
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


@rule("trace-5")
async def test_ten_at_once() -> None:
    async with running_gateway() as running, contextlib.AsyncExitStack() as stack:
        await running.topic()
        await stack.enter_async_context(running.subscribe("conflation=1s"))
        for _ in range(RECORDERS_MAX):
            await stack.enter_async_context(traced(running))
        refused = await running.http.get(path(running))
        assert (refused.status_code, refused.json()["code"]) == (429, "limit-reached")
        assert int(refused.headers["retry-after"]) > 0


@rule("trace-5")
async def test_who_stops_reading_makes_room() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=1s"):
            watchers = running.gateway.driver.engine.watchers
            async with traced(running) as trace:
                await trace.next()
                assert len(watchers) == 1
            await eventually(lambda: watchers == [], "the recorder ends")


@rule("trace-5")
async def test_of_a_patterns_topics_one_is_traced() -> None:
    async with running_gateway() as running:
        await running.topic("a.x")
        await running.topic("a.y")
        async with running.subscribe(topic="a.*"):
            answer = await running.http.get(path(running))
            assert (answer.status_code, answer.json()["code"]) == (404, "topic-unknown")
            async with traced(running, path(running) + "?topic=a.y") as trace:
                assert '"topic":"a.y"' in (await trace.next()).text


@rule("trace-5")
async def test_nothing_is_decided_for_a_session_without_reader() -> None:
    async with running_gateway() as running:
        await running.topic()
        opened = await running.http.post(
            "/v1/sessions", json={"subscriptions": [{"topic": "px", "options": "conflation=1s"}]}
        )
        target = f"/v1/sessions/{opened.json()['session']}/subscriptions/s1/trace"
        async with traced(running, target) as trace:
            (end,) = await trace.rest()
            assert (end.name, end.text) == ("end", '{"at_ms":0,"reason":"AWAY"}')


@rule("trace-5")
async def test_it_ends_when_the_reader_leaves() -> None:
    async with running_gateway() as running, contextlib.AsyncExitStack() as stack:
        await running.topic()
        async with running.subscribe("conflation=1s"):
            trace = await stack.enter_async_context(traced(running))
            await trace.next()
        events = await trace.rest()
        assert names(events) == ["decision", "end"]
        assert '"reason":"GONE"' in events[-1].text
