"""`GET …/auto` over HTTP: the present interval, and the changes that led to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tests.support.sessions import attached, opened, subscribed
from tidegate.app.streams.reader import Reader
from tidegate.keys.text.duration import SECOND


async def shown(running: Running, session: str, sub: str = "s1") -> dict[str, Any]:
    answer = await running.http.get(f"/v1/sessions/{session}/subscriptions/{sub}/auto")
    assert answer.status_code == 200, answer.text
    view: dict[str, Any] = answer.json()
    return view


@pytest.mark.parametrize(
    ("options", "interval", "least", "most"),
    [
        ("conflation=auto", "50ms", "50ms", "30s"),
        ("conflation=auto,min=150ms,max=3s", "200ms", "200ms", "2s"),
        ("conflation=1500ms", "1500ms", None, None),
        ("conflation=none", None, None, None),
    ],
)
async def test_where_an_interval_stands(
    options: str, interval: str | None, least: str | None, most: str | None
) -> None:
    async with running_gateway() as running:
        await running.topic()
        session = await opened(running)
        await subscribed(running, session, topic="px", options=options)
        expected: dict[str, Any] = {
            "sub": "s1",
            "interval": interval,
            "min": least,
            "max": most,
            "decisions": [],
        }
        assert await shown(running, session) == expected
        async with attached(running, session):
            assert await shown(running, session) == expected


async def test_a_pattern_of_topics_with_their_own_intervals_has_none() -> None:
    async with running_gateway() as running:
        await running.topic("px.eu", options="conflation=1s")
        await running.topic("px.us", options="conflation=2s")
        session = await opened(running)
        await subscribed(running, session, topic="px.*")
        view = await shown(running, session)
    assert (view["interval"], view["min"], view["max"]) == (None, None, None)


@rule("auto-5")
async def test_decisions_are_shown_as_they_were_sent() -> None:
    # rule auto-5
    async with running_gateway(write_timeout="1h") as running:
        await running.topic()
        async with running.frozen("conflation=auto", query="&command=subscribe"):
            [session] = running.gateway.sessions.listed("", 9)
            asked, reader = session.subscription("s1"), session.reader
            assert isinstance(reader, Reader)

            def buffered_bytes() -> int:
                return 0 if reader.connection is None else reader.connection.write_buffer_bytes

            async def publish(version: int) -> None:
                await running.publish(*({"k": k, "v": version, "x": "x" * 9_000} for k in range(9)))

            for version in range(500):
                if buffered_bytes() > running.gateway.settings.write_buffer_bytes_max:
                    break
                await publish(version)
                await asyncio.sleep(0.05)  # the interval at first: what waits is sent
            await publish(-1)  # which waits for room
            async with asyncio.timeout(HANGS_S):
                while asked.auto is None or asked.auto.state.interval_ns < SECOND:
                    await asyncio.sleep(0.2)
            view = await shown(running, session.id)
    first, second, *_ = view["decisions"]
    assert (first["from"], first["to"], second["from"]) == ("50ms", "100ms", "100ms")
    assert first["reason"] in {"slow", "full"}
    assert first["at_ms"] <= second["at_ms"]
    assert first["inputs"]["overdue_bytes"] > 0


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("nobody/subscriptions/s1/auto", "session-unknown"),
        ("{session}/subscriptions/s9/auto", "subscription-unknown"),
    ],
)
async def test_what_there_is_not(path: str, code: str) -> None:
    async with running_gateway() as running:
        session = await opened(running)
        answer = await running.http.get("/v1/sessions/" + path.format(session=session))
    assert (answer.status_code, answer.json()["code"]) == (404, code)
