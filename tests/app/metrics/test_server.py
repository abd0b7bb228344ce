"""Figures of connections and of the event loop."""

from __future__ import annotations

from tests.app.metrics.samples import samples
from tests.support.gateways import running_gateway


async def test_connections_are_counted() -> None:
    async with running_gateway(connections_max=50) as running:
        await running.topic()
        async with running.subscribe():
            running.server.figures.refused_by["address"] += 2
            running.server.figures.given_up += 1
            found = await samples(running)
    assert found["tidegate_connections"] >= 1
    assert found["tidegate_connections_max"] == 50
    assert found["tidegate_connections_refused_total{address}"] == 2
    assert found["tidegate_connections_refused_total{connections}"] == 0
    assert found["tidegate_connections_given_up_total"] == 1
    assert "tidegate_event_loop_lag_seconds_count" in found
