"""One scrape: all metric families as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tidegate.app.gateway import Gateway
from tidegate.app.http.connection import ConnectionFigures
from tidegate.app.metrics.gateway import gateway_families
from tidegate.app.metrics.readiness import unready
from tidegate.app.metrics.server import server_families
from tidegate.app.metrics.sessions import session_families
from tidegate.app.metrics.store import store_families
from tidegate.app.metrics.topics import topic_families, topic_table

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Families(Collector):
    """A collector of families that are already built."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield the families in order."""
        yield from self._families


async def families(gateway: Gateway, connections: ConnectionFigures | None = None) -> list[Metric]:
    """Return all families of a gateway, with the server's where `connections` is given."""
    table = await topic_table(gateway.catalog, gateway.driver, gateway.settings.metrics_topics_max)
    return [
        *gateway_families(gateway, table.topics, is_ready=await unready(gateway) is None),
        *topic_families(table),
        *session_families(gateway),
        *store_families(gateway.store, gateway.driver.figures),
        *(() if connections is None else server_families(connections)),
    ]


async def exposition(gateway: Gateway, connections: ConnectionFigures | None = None) -> bytes:
    """Return the text of one scrape, including the process's own metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(await families(gateway, connections)))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
