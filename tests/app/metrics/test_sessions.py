"""Figures of sessions."""

from __future__ import annotations

from tests.app.metrics.samples import samples
from tests.support.gateways import eventually, running_gateway


async def test_closed_sessions_are_counted_by_reason() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe() as stream:
            async with running.subscribe():
                pass
            await eventually(lambda: running.gateway.driver.figures.left == 1, "one leaves")
            running.gateway.say_goodbye()
            await stream.rest()
        found = await samples(running)
        assert found["tidegate_sessions_closed_total{SHUTDOWN}"] == 1
        assert found["tidegate_sessions_closed_total{GONE}"] == 1


async def test_sessions_are_told_by_state() -> None:
    async with running_gateway() as running:
        await running.topic()
        wanted = {"subscriptions": [{"topic": "px"}]}
        assert (await running.http.post("/v1/sessions", json=wanted)).is_success
        async with running.subscribe():
            found = await samples(running)
        assert found["tidegate_sessions{away}"] == 1
        assert found["tidegate_sessions{attached}"] == 1
        assert found["tidegate_sessions{ended}"] == 0


async def test_ends_of_subscriptions_and_resumes_are_counted() -> None:
    async with running_gateway() as running:
        await running.topic()
        first = (await running.publish({"k": 1}))["first"]
        async with running.subscribe("conflation=20ms", last_id=first) as stream:
            assert (await running.http.delete("/v1/topics/px")).is_success
            await stream.rest()
        found = await samples(running)
        assert found["tidegate_resumed_total{changes}"] == 1
        assert found["tidegate_unsubscribed_total{REMOVED}"] == 1


async def test_writes_are_timed_and_measured() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=20ms", command="subscribe") as stream:
            await running.publish({"k": 1})
            await stream.values(1)
            found = await samples(running)
        assert found["tidegate_stream_write_seconds_count"] >= 1
        assert found["tidegate_stream_write_bytes_sum"] >= len('data: {"k":1}')
        assert found["tidegate_unacknowledged_bytes"] >= 0


async def test_full_queues_are_counted_by_what_became_of_them() -> None:
    async with running_gateway(queue_messages_max=10) as running:
        await running.topic()
        async with running.frozen("conflation=none"):
            text = "x" * 60_000
            for n in range(40):
                await running.publish({"k": n % 3, "text": text})
            found = await samples(running)
        assert found["tidegate_queues_forced_total"] + found["tidegate_queues_background_total"] > 0
        assert found["tidegate_unacknowledged_bytes"] > 0
