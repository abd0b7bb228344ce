"""Metrics of the gateway as a whole: readiness, limits, flushes and durations."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from tidegate.app.gateway import Gateway
from tidegate.app.metrics.families import counter, counters, gauge, gauges, histogram
from tidegate.app.metrics.readiness import faults


def gateway_families(gateway: Gateway, topics: int, *, is_ready: bool) -> Iterator[Metric]:
    """Yield readiness, limits, flushes and durations."""
    settings, figures = gateway.settings, gateway.driver.figures
    stats = gateway.driver.engine.stats(())
    yield gauge("ready", "1 while the gateway is ready, as /readyz has it.", is_ready)
    yield gauge("topics", "Topics.", topics)
    states = Counter(fault.state for fault in faults(gateway))
    at_fault = {state: states[state] for state in ("unusable", "unfilled")}
    yield gauges("topics_at_fault", "Topics not as they should be.", "state", at_fault)
    limits = {
        "topics": settings.topics_max,
        "topic_keys": settings.topic_keys_max,
        "sessions": settings.sessions_max,
    }
    yield gauges("limit", "How many there may be, by settings.", "of", limits)
    yield counter("flushes", "Flushes of lanes.", stats.flushes)
    yield histogram(
        "flush_lateness_seconds",
        "From the earliest planned flush until all that was due had gone.",
        figures.flush_lateness,
    )
    yield histogram(
        "publish_seconds",
        "From a publish's way to the store until the engine had all of it.",
        figures.publish,
    )
    failures = {name: gateway.mergers.failures[name] for name in gateway.mergers.names}
    yield counters("merger_failures", "Failures of registered functions.", "function", failures)
    yield gauge("tasks", "Tasks of the event loop.", len(asyncio.all_tasks()))
