"""Figures of the gateway as a whole."""

from __future__ import annotations

from tests.app.metrics.samples import samples
from tests.support.gateways import eventually, running_gateway


async def test_flushes_and_publishes_are_timed() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=20ms", command="subscribe") as stream:
            await running.publish({"k": 1})
            await stream.values(1)
        found = await samples(running)
        assert found["tidegate_flush_lateness_seconds_count"] >= 1
        assert found["tidegate_publish_seconds_count"] >= 1
        assert found["tidegate_publish_seconds_sum"] < 1
        assert found["tidegate_flushes_total"] >= 1


async def test_readiness_and_limits_are_told() -> None:
    async with running_gateway(sessions_max=7) as running:
        assert (await samples(running))["tidegate_limit{sessions}"] == 7
        running.gateway.say_goodbye()
        assert (await samples(running))["tidegate_ready"] == 0


async def test_failures_of_registered_functions_are_counted() -> None:
    async with running_gateway(mergers=["operator:floordiv"]) as running:
        merger = running.gateway.mergers.merger("operator:floordiv")
        assert merger is not None
        assert (await samples(running))["tidegate_merger_failures_total{operator:floordiv}"] == 0
        merger.merged(b"1", b"0")
        assert (await samples(running))["tidegate_merger_failures_total{operator:floordiv}"] == 1


async def test_tasks_come_and_go() -> None:
    async with running_gateway() as running:
        await running.topic()
        before = (await samples(running))["tidegate_tasks"]
        async with running.subscribe():
            assert (await samples(running))["tidegate_tasks"] > before
        await eventually(lambda: not running.gateway.driver.engine.stats().sessions, "it leaves")
