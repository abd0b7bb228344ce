"""One scrape: all metric families as text, of one gateway or of all workers at an address.

Any worker may accept the connection of a scrape. That worker requests the others' metrics through
Redis and labels each page `worker`. Workers keep their numbers when they are replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import parse_qs, urlencode

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from tidegate.app.calls import Call, Reply
from tidegate.app.cluster.workers import WorkerGroup
from tidegate.app.refusals import Refused

CONTENT_TYPE = CONTENT_TYPE_LATEST
NUMBER = "tidegate-worker"
UP = "tidegate_worker_up"


class Families(Collector):
    """A collector of families that are already built."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield the families in order."""
        yield from self._families


def exposition(families: Sequence[Metric]) -> bytes:
    """Return the text of one scrape, including the process's own metrics."""
    # One registry a scrape: families are built from what is counted, and nothing is kept.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(families))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def call_of(group: WorkerGroup) -> Call:
    """Return the request for the page of another worker of a group."""
    return Call("GET", b"/metrics", urlencode({"group": group.id}).encode(), [])


async def merge_workers(
    group: WorkerGroup, own: bytes, replies: Mapping[str, Reply | None]
) -> bytes:
    """Merge this worker's page with the others'; one that does not answer counts as down."""
    pages = {group.number: own.decode()}
    pages |= dict(_page(reply) for reply in replies.values() if reply and reply.status == 200)
    # With many topics, parsing takes long enough to delay streams: do it outside the loop.
    return await asyncio.to_thread(merge_pages, pages, group.count)


def check_worker_group(group: WorkerGroup | None, query: bytes) -> dict[str, str]:
    """Return the headers that identify a worker to another worker of its group.

    Raises:
        Refused: not-found for any other caller.
    """
    # All gateways of a bus get the question, also those at another address.
    if group is None or parse_qs(query).get(b"group") != [group.id.encode()]:
        raise Refused("not-found", "This worker belongs to another group.")
    return {NUMBER: str(group.number)}


def merge_pages(pages: Mapping[int, str], count: int) -> bytes:
    """Merge pages: each family once, its samples labeled with the number of their worker."""
    families: dict[str, Metric] = {}
    for number in sorted(pages):
        for page_family in text_string_to_metric_families(pages[number]):
            name, text, kind = page_family.name, page_family.documentation, page_family.type
            family = families.setdefault(name, Metric(name, text, kind))
            for sample in page_family.samples:
                labels = {"worker": str(number), **sample.labels}
                family.samples.append(sample._replace(labels=labels))
    answered = GaugeMetricFamily(
        UP, "1 if the worker answered the worker that was scraped.", labels=["worker"]
    )
    for number in range(1, count + 1):
        answered.add_metric([str(number)], int(number in pages))
    return generate_latest(Families([*families.values(), answered]))


def _page(reply: Reply) -> tuple[int, str]:
    return int(dict(reply.headers)[NUMBER.encode()]), reply.body.decode()
