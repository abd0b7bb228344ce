"""Metrics of the server: its connections and its event loop."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from tidegate.app.http.connection import ConnectionFigures
from tidegate.app.http.listener import ADDRESS, CONNECTIONS
from tidegate.app.metrics.families import counter, counters, gauge, histogram


def server_families(figures: ConnectionFigures) -> Iterator[Metric]:
    """Yield open, refused and cut connections, and the event loop's lag."""
    yield gauge("connections", "Connections open.", figures.connections)
    yield gauge("connections_max", "Connections served at once.", figures.connections_max)
    refused = {reason: figures.refused_by[reason] for reason in (CONNECTIONS, ADDRESS)}
    yield counters(
        "connections_refused",
        "Turned away: there was no more room in all connections, or in those of one address.",
        "reason",
        refused,
    )
    yield counter("connections_given_up", "Cut because their peers took nothing.", figures.given_up)
    yield histogram(
        "event_loop_lag_seconds",
        "How much later than asked for the event loop called.",
        figures.loop_lag,
    )
