"""One scrape: all families, in the text form of the Prometheus version that everybody reads."""

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

from app.connection import ConnectionFigures
from app.gateway import Gateway
from app.metrics.gateway import gateway_families
from app.metrics.server import server_families
from app.metrics.sessions import session_families
from app.metrics.store import store_families
from app.metrics.topics import topic_families, topic_table
from app.readiness import unready

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Seen(Collector):
    """Families that are made already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


async def families(gateway: Gateway, connections: ConnectionFigures | None = None) -> list[Metric]:
    """What there is to say of a gateway; of `connections` where the server is ours."""
    table = await topic_table(gateway.catalog, gateway.driver, gateway.settings.metrics_topics_max)
    return [
        *gateway_families(gateway, table.topics, is_ready=await unready(gateway) is None),
        *topic_families(table),
        *session_families(gateway),
        *store_families(gateway.store, gateway.driver.figures),
        *(() if connections is None else server_families(connections)),
    ]


async def exposition(gateway: Gateway, connections: ConnectionFigures | None = None) -> bytes:
    """The text of one scrape, with what the system knows of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Seen(await families(gateway, connections)))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
