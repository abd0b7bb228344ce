"""Metrics: the engine's counters, and those of mergers, in Prometheus's text form."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from app.connection import ConnectionFigures
from app.driver import Driver
from app.mergers import Mergers
from conflation.stats import TopicStats

CONTENT_TYPE = CONTENT_TYPE_LATEST

_TOPIC_COUNTERS = {
    "messages_in": "Messages published to the topic.",
    "bytes_in": "Payload bytes published to the topic.",
    "matched": "Messages that subscriptions asked for, once for each.",
    "delivered": "Live rows taken by subscribers.",
    "dropped": "Rows waiting when their subscription ended.",
}
_RELIEFS = {
    "forced": "Full queues that were conflated.",
    "background": "Parts of long queues that were conflated in idle time.",
    "unsubscribed": "Subscriptions that a full queue ended.",
}
# What is conflated follows from the others, and may fall by a row that was counted as replaced
# and is then taken after all: a gauge.
_TOPIC_GAUGES = {
    "conflated": "Messages replaced by a newer one of their key.",
    "keys": "Keys in the topic's state of the world.",
    "lanes": "Lanes, each shared by equal subscriptions.",
    "subscriptions": "Subscriptions open.",
    "waiting": "Rows still to come if nothing more is published.",
}


class EngineCollector(Collector):
    """Reads the engine when it is scraped: nothing is counted twice, nothing beforehand."""

    def __init__(self, driver: Driver, mergers: Mergers) -> None:
        self._driver = driver
        self._mergers = mergers

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """All families, one after another."""
        stats = self._driver.engine.stats()
        yield GaugeMetricFamily("tidegate_sessions", "Sessions open.", value=stats.sessions)
        yield GaugeMetricFamily("tidegate_topics", "Topics.", value=len(stats.topics))
        yield CounterMetricFamily("tidegate_flushes", "Flushes of lanes.", value=stats.flushes)
        closed = CounterMetricFamily(
            "tidegate_sessions_closed", "Sessions closed by the gateway.", labels=["reason"]
        )
        for reason, count in self._driver.closed_sessions.items():
            closed.add_metric([reason], count)
        yield closed
        failures = CounterMetricFamily(
            "tidegate_merger_failures", "Failures of registered functions.", labels=["function"]
        )
        for function in self._mergers.names:
            failures.add_metric([function], self._mergers.failures[function])
        yield failures
        for name, meaning in _RELIEFS.items():
            figure = getattr(stats.reliefs, name)
            yield CounterMetricFamily(f"tidegate_queues_{name}", meaning, value=figure)
        yield from _topic_families(stats.topics)
        yield _dropped(stats.topics)


def _topic_families(
    topics: tuple[TopicStats, ...],
) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
    for name, meaning in _TOPIC_COUNTERS.items():
        counter = CounterMetricFamily(f"tidegate_topic_{name}", meaning, labels=["topic"])
        for topic in topics:
            counter.add_metric([topic.topic], getattr(topic, name))
        yield counter
    for name, meaning in _TOPIC_GAUGES.items():
        gauge = GaugeMetricFamily(f"tidegate_topic_{name}", meaning, labels=["topic"])
        for topic in topics:
            gauge.add_metric([topic.topic], getattr(topic, name))
        yield gauge


def _dropped(topics: tuple[TopicStats, ...]) -> CounterMetricFamily:
    """The same by reason."""
    family = CounterMetricFamily(
        "tidegate_topic_dropped_reasons",
        "Rows waiting when their subscription ended, by why it did.",
        labels=["topic", "reason"],
    )
    for topic in topics:
        for reason, rows in topic.dropped_by:
            family.add_metric([topic.topic, reason], rows)
    return family


class ConnectionCollector(Collector):
    """What the server knows of its connections."""

    def __init__(self, figures: ConnectionFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """All families, one after another."""
        figures = self._figures
        yield GaugeMetricFamily(
            "tidegate_connections", "Connections open.", value=figures.connections
        )
        yield GaugeMetricFamily(
            "tidegate_connections_max", "Connections served at once.", value=figures.connections_max
        )
        yield CounterMetricFamily(
            "tidegate_connections_refused", "Turned away for want of room.", value=figures.refused
        )
        yield CounterMetricFamily(
            "tidegate_connections_given_up",
            "Cut because their peers took nothing.",
            value=figures.given_up,
        )


def exposition(driver: Driver, mergers: Mergers, figures: ConnectionFigures | None = None) -> bytes:
    """The text of one scrape; `figures` of the connections where the server is ours."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(driver, mergers))
    if figures is not None:
        registry.register(ConnectionCollector(figures))
    return generate_latest(registry)
