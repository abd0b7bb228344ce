"""The last hour of a gateway, kept for pages that are opened later."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.gateways import running_gateway
from tidegate.app.metrics.history import POINTS_MAX, quantile


async def test_a_point_each_half_minute_for_an_hour() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=50ms", command="subscribe") as stream:
            await running.publish(*({"k": number % 2} for number in range(60)))
            await stream.values(2)
            await asyncio.sleep(65)
            found = (await running.http.get("/v1/history")).json()
            assert found["period_ms"] == 30_000
            first, second = found["points"]
            rates = [first[name] for name in ("messages_in", "matched", "delivered")]
            assert rates == pytest.approx([2, 2, 2 / 30], rel=0.1)
            assert first["flush_lateness_ms"] is not None
            assert second["at_ms"] - first["at_ms"] == pytest.approx(30_000, abs=1_000)
            assert [second["messages_in"], second["flush_lateness_ms"]] == [0, None]
            await asyncio.sleep(7_200)
            points = (await running.http.get("/v1/history")).json()["points"]
    assert len(points) == POINTS_MAX
    assert points[0]["at_ms"] > second["at_ms"]


def test_a_quantile_is_of_what_came_in_between() -> None:
    inf = float("inf")
    assert quantile([(0.1, 9), (inf, 9)], [(0.1, 9), (inf, 9)]) is None
    assert quantile([(0.1, 0), (0.5, 9), (inf, 9)], [(0.1, 99), (0.5, 109), (inf, 109)]) == 0.1
    assert quantile([(0.1, 0), (0.5, 0), (inf, 0)], [(0.1, 9), (0.5, 10), (inf, 10)]) == 0.5
    assert quantile([(0.1, 0), (inf, 0)], [(0.1, 0), (inf, 1)]) == 0.1
