"""Metrics of topics: a limited number of topics by name, the rest summed up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, Metric

from tidegate.app.metrics.families import PREFIX, counters, gauges
from tidegate.app.names import OWN_PREFIX
from tidegate.app.streams.driver import Driver
from tidegate.app.topics.registry import TopicRegistry
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.sessions.accounting import TopicStats

OTHERS = "(others)"
"""The label of all topics without a label of their own; no topic can have this name."""

NO_LIMIT = 1 << 62

BUSY_S_MAX = 0.002
"""Longest time that a scrape occupies the event loop without a break."""

COUNTERS = {
    "messages_in": "Messages published to the topic anywhere, including removals of records.",
    "removals_in": "Removals of records published to the topic anywhere.",
    "bytes_in": "Payload bytes published to the topic anywhere.",
    "offered": "Values published, once for each open subscription: filtered + matched.",
    "filtered": "Offered values that were not asked for.",
    "matched": "Offered values that were asked for: delivered + conflated + dropped + waiting.",
    "delivered": "Live rows taken by subscribers.",
}
# `conflated` is computed from the others and can fall, when a row counted as replaced is sent after
# all. So it is a gauge.
GAUGES = {
    "conflated": "Values replaced by a newer value of their key, since the topic was created.",
    "waiting": "Rows still to come if nothing more is published.",
    "keys": "Keys in the topic's state of the world.",
    "boards": "Boards; each has the newest value of each key for one filter, order or grouping.",
    "lanes": "Lanes of the topic; equal subscriptions share one.",
    "subscriptions": "Open subscriptions to the topic.",
    "journal_messages": "Messages in the topic's journal.",
    "journal_bytes": "Payload bytes in the topic's journal.",
}


@dataclass(slots=True)
class TopicTable:
    """Figures by label, and dropped rows by label and reason."""

    topics: int = 0
    rows: dict[str, Counter[str]] = field(default_factory=dict)
    dropped: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, label: str, stats: TopicStats) -> None:
        """Add one topic's figures to a label, which topics may share."""
        self.topics += 1
        row = self.rows.setdefault(label, Counter())
        for name in (*COUNTERS, *GAUGES):
            row[name] += getattr(stats, name)
        self.dropped.setdefault(label, Counter()).update(dict(stats.dropped_by))


async def topic_table(topics: TopicRegistry, driver: Driver, labels_max: int) -> TopicTable:
    """Return the figures of every topic, each topic's from one moment.

    The first `labels_max` topics by name get a label of their own. Other tasks run between topics.
    """
    table = TopicTable()
    async for name, stats in _stats_of(driver, _names(topics)):
        table.add(name if len(table.rows) < labels_max else OTHERS, stats)
    return table


async def sums_of(topics: TopicRegistry, driver: Driver) -> Counter[str]:
    """Return the sums over all topics but the gateway's own; other tasks run between topics."""
    table = TopicTable()
    names = [entry.record.name for entry in topics.listed("", "", NO_LIMIT)]
    async for _, stats in _stats_of(driver, names):
        table.add(OTHERS, stats)
    return table.rows.get(OTHERS, Counter())


async def _stats_of(driver: Driver, names: Sequence[str]) -> AsyncIterator[tuple[str, TopicStats]]:
    began = time.monotonic()
    for name in names:
        if time.monotonic() - began > BUSY_S_MAX:
            await asyncio.sleep(0)
            began = time.monotonic()
        try:
            yield name, driver.engine.topic_stats(name)
        except TopicUnknown:
            continue  # deleted since the list was read


def topic_families(table: TopicTable) -> Iterator[Metric]:
    """Yield one family per figure."""
    for names, family in ((COUNTERS, counters), (GAUGES, gauges)):
        for name, meaning in names.items():
            values = {label: row[name] for label, row in table.rows.items()}
            yield family(f"topic_{name}", meaning, "topic", values)
    dropped = CounterMetricFamily(
        f"{PREFIX}topic_dropped",
        "Rows that still waited when their subscription ended, by the reason of its end.",
        labels=["topic", "reason"],
    )
    for label, reasons in table.dropped.items():
        for reason, rows in sorted(reasons.items()):
            dropped.add_metric([label, reason], rows)
    yield dropped


def _names(topics: TopicRegistry) -> Sequence[str]:
    """Return the topics of publishers first, then the gateway's own."""
    entries = [
        *topics.listed("", "", NO_LIMIT),
        *topics.listed(OWN_PREFIX, "", NO_LIMIT),
    ]
    return [entry.record.name for entry in entries]
