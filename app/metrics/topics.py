"""Topics' figures: a bounded number of topics by name, the others as one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, Metric

from app.catalog import Catalog
from app.driver import Driver
from app.metrics.families import PREFIX, counters, gauges
from app.query import OWN_PREFIX
from conflation.errors import TopicUnknown
from conflation.stats import TopicStats

OTHERS = "(others)"
"""The label of all topics beyond those that have their own; no topic can be called so."""

SURELY_ALL = 1 << 62

BREATH_S = 0.002
"""For so long a look holds the loop before others have their turn."""

COUNTERS = {
    "messages_in": "Messages published to the topic, removals of records among them.",
    "removals_in": "Removals of records among these.",
    "bytes_in": "Payload bytes published to the topic.",
    "offered": "Values published while a subscription was there, for each: filtered + matched.",
    "filtered": "Values offered that a subscription did not ask for.",
    "matched": "Values that subscriptions asked for: delivered + conflated + dropped + waiting.",
    "delivered": "Live rows taken by subscribers.",
}
# What is conflated follows from the others, and may fall by a row that was counted as replaced
# and is then taken after all: a gauge.
GAUGES = {
    "conflated": "Values replaced by a newer one of their key, since the topic was made.",
    "waiting": "Rows still to come if nothing more is published.",
    "keys": "Keys in the topic's state of the world.",
    "boards": "Boards, each the newest of each key for one filter, order or grouping.",
    "lanes": "Lanes, each shared by equal subscriptions.",
    "subscriptions": "Subscriptions open.",
    "journal_messages": "Messages in the topic's journal.",
    "journal_bytes": "Their payload bytes.",
}


@dataclass(slots=True)
class TopicTable:
    """Figures by label, and what was dropped by label and reason."""

    topics: int = 0
    rows: dict[str, Counter[str]] = field(default_factory=dict)
    dropped: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, label: str, stats: TopicStats) -> None:
        """One topic's figures under a label that it may share."""
        self.topics += 1
        row = self.rows.setdefault(label, Counter())
        for name in (*COUNTERS, *GAUGES):
            row[name] += getattr(stats, name)
        self.dropped.setdefault(label, Counter()).update(dict(stats.dropped_by))


async def topic_table(catalog: Catalog, driver: Driver, labels_max: int) -> TopicTable:
    """Every topic's figures; each topic's are of one moment, and others have their turn between.

    The first `labels_max` by name have a label of their own.
    """
    table = TopicTable()
    began = time.monotonic()
    for name in _names(catalog):
        if time.monotonic() - began > BREATH_S:
            await asyncio.sleep(0)
            began = time.monotonic()
        try:
            stats = driver.engine.topic_stats(name)
        except TopicUnknown:
            continue  # deleted meanwhile
        table.add(name if len(table.rows) < labels_max else OTHERS, stats)
    return table


def topic_families(table: TopicTable) -> Iterator[Metric]:
    """One family for each figure."""
    for names, family in ((COUNTERS, counters), (GAUGES, gauges)):
        for name, meaning in names.items():
            values = {label: row[name] for label, row in table.rows.items()}
            yield family(f"topic_{name}", meaning, "topic", values)
    dropped = CounterMetricFamily(
        f"{PREFIX}topic_dropped",
        "Rows waiting when their subscription ended, by why it did.",
        labels=["topic", "reason"],
    )
    for label, reasons in table.dropped.items():
        for reason, rows in sorted(reasons.items()):
            dropped.add_metric([label, reason], rows)
    yield dropped


def _names(catalog: Catalog) -> Sequence[str]:
    """Those of publishers first, then the gateway's own."""
    entries = [
        *catalog.listed("", "", SURELY_ALL),
        *catalog.listed(OWN_PREFIX, "", SURELY_ALL),
    ]
    return [entry.record.name for entry in entries]
