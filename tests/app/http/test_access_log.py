"""A line for each request, without personal data or secrets."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.support.gateways import eventually, running_gateway
from tidegate.app.logs import EVENT, FIGURES

SECRET = "do-not-log-me"


def requests(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        getattr(record, FIGURES)
        for record in caplog.records
        if getattr(record, EVENT, "") == "request"
    ]


async def test_it_is_off_unless_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_gateway() as running:
        await running.topic()
    assert requests(caplog) == []


async def test_each_request_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running_gateway(log_requests=True) as running:
        await running.topic()
        await running.publish({"k": 1})
        await running.http.get("/v1/topics/none/sow")
        await running.http.get("/nowhere")
    shown = [(each["method"], each["route"], each["status"]) for each in requests(caplog)]
    assert shown == [
        ("PUT", "/v1/topics/{topic}", 201),
        ("POST", "/v1/topics/{topic}/messages", 200),
        ("GET", "/v1/topics/{topic}/sow", 404),
        ("GET", None, 404),
    ]
    first, published = requests(caplog)[:2]
    assert first["topic"] == published["topic"] == "px"
    assert first["duration_ms"] > 0
    assert first["bytes"] > 0
    assert first["client"] == "127.0.0.1"


async def test_a_stream_is_logged_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running_gateway(log_requests=True) as running:
        await running.topic()
        async with running.subscribe():
            assert len(requests(caplog)) == 1
        await eventually(lambda: len(requests(caplog)) == 2, "the stream ends")
        assert requests(caplog)[1]["route"] == "/v1/topics/{topic}/subscribe"


async def test_no_query_header_body_key_or_session_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_gateway(log_requests=True) as running:
        await running.topic()
        await running.publish({"k": SECRET})
        await running.http.get(f'/v1/topics/px/sow/["{SECRET}"]', params={"token": SECRET})
        await running.http.get("/v1/topics", headers={"authorization": f"Bearer {SECRET}"})
        async with running.subscribe(filter=f"/k = '{SECRET}'"):
            session = running.hellos[0]["session"]
            await running.http.get(f"/v1/sessions/{session}")
    shown = [record.getMessage() + str(record.__dict__) for record in caplog.records
            if record.name.startswith("tidegate")]  # fmt: skip
    assert shown
    assert not [line for line in shown if SECRET in line or session in line]
