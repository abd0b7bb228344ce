"""A trace against a real server: it shows what a stream gets, and does not change that."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.gateways import Running, Stream, eventually, running_gateway
from tests.support.rules import rule
from tidegate.conflation.tracing.recorder import TraceRecorder

LANES = ("", "conflation=50ms,oof", "conflation=50ms,pace=key")
MESSAGES = 300


@contextlib.asynccontextmanager
async def traced(running: Running) -> AsyncIterator[Stream]:
    target = f"/v1/sessions/{running.hellos[-1]['session']}/subscriptions/s1/trace"
    async with running.http.stream("GET", target) as answer:
        stream = Stream(answer)
        copied = await stream.next()
        assert json.loads(copied.text)["call"] == "begun"
        yield stream


def offset(row: dict[str, Any]) -> int:
    """A row's newest message, as its receipt says."""
    return int(str(row["last"]).rsplit("-", 1)[1])


@rule("trace-1", "trace-4")
@pytest.mark.parametrize("options", LANES)
async def test_what_a_trace_calls_delivered_was_sent(options: str) -> None:
    """Rules trace-1 and trace-4, over lanes of all three kinds."""
    wanted = ",".join(filter(None, (options, "receipt")))
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": -1, "n": 0})
        async with (
            running.subscribe(wanted, command="subscribe", format="envelope") as stream,
            traced(running) as trace,
        ):
            for n in range(0, MESSAGES, 10):
                await running.publish(*({"k": i % 7, "n": i} for i in range(n, n + 10)))
            rows: list[dict[str, Any]] = []
            while not rows or offset(rows[-1]) < MESSAGES + 1:
                rows.append(json.loads((await stream.next()).text))
            deleted = await running.http.delete("/v1/topics/px")
            assert deleted.status_code == 204
            decisions = [json.loads(event.text) for event in await trace.rest()]
    delivered = [each for each in decisions if each.get("decision") == "delivered"]
    assert [each["offset"] for each in delivered] == [offset(row) for row in rows]
    assert [each["key"] for each in delivered] == [row["key"] for row in rows]
    assert decisions[-1]["reason"] == "REMOVED"
    accepted = [each for each in decisions if each.get("decision") == "accepted"]
    assert [each["offset"] for each in accepted] == list(range(2, MESSAGES + 2))
    assert sum(each["messages"] for each in delivered) == MESSAGES


@rule("trace-5")
async def test_a_trace_that_nobody_reads_stops_nobody() -> None:
    """Everybody else goes on, and what it kept is let go."""
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=50ms", command="subscribe") as stream:
            watchers = running.gateway.driver.engine.watchers
            async with traced(running):
                (recorder,) = watchers
                assert isinstance(recorder, TraceRecorder)
                filler = "x" * 1_000
                for n in range(100):
                    await running.publish(*({"k": i, "n": n, "p": filler} for i in range(500)))
                    if recorder.is_over:
                        break
                assert recorder.is_over
            await eventually(lambda: not watchers, "the recorder ends")
            await running.publish({"k": "last"})
            while json.loads((await stream.next()).text)["k"] != "last":
                pass
