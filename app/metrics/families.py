"""Metric families of the gateway, its sessions, its store and its server, and their constructors.

Names end with their unit, as Prometheus recommends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from tidegate.app.definitions.mergers import Mergers
from tidegate.app.figures import ADDRESS, CONNECTIONS, ConnectionFigures, Counters, Histogram
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.store import Store, StoreFigures
from tidegate.app.streams.driver import Driver
from tidegate.app.streams.polled import PolledStreams
from tidegate.app.streams.session import State
from tidegate.conflation.outputs import CloseReason, ResumeMode
from tidegate.conflation.sessions.registry import GONE

Labelled = TypeVar("Labelled", CounterMetricFamily, GaugeMetricFamily)

PREFIX = "tidegate_"
MS_PER_S = 1_000

RELIEFS = {
    "forced": "Full queues that were conflated.",
    "background": "Parts of long queues that were conflated in idle time.",
    "unsubscribed": "Subscriptions that a full queue ended.",
}

# Labels exposed from the start: Prometheus sees no increase in a counter that first appears as 1.
ENDS = ("REQUESTED", "REMOVED", "UNUSABLE", "BACK_PRESSURE", "BOOKMARK_EXPIRED")
DIRECTIONS = ("longer", "shorter")


def gauge(name: str, meaning: str, value: float) -> Metric:
    """Return a value that rises and falls."""
    return GaugeMetricFamily(PREFIX + name, meaning, value=value)


def counter(name: str, meaning: str, value: float) -> Metric:
    """Return a value that only rises; its samples are named `…_total`."""
    return CounterMetricFamily(PREFIX + name, meaning, value=value)


def gauges(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return gauges by a label with few values."""
    family = GaugeMetricFamily(PREFIX + name, meaning, labels=[label])
    return _filled(family, values)


def counters(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return counters by a label with few values."""
    family = CounterMetricFamily(PREFIX + name, meaning, labels=[label])
    return _filled(family, values)


def histogram(name: str, meaning: str, seen: Histogram) -> Metric:
    """Return the cumulative counts and the sum of a histogram."""
    buckets = [(_bound(bound), float(count)) for bound, count in seen.cumulative()]
    return HistogramMetricFamily(PREFIX + name, meaning, buckets=buckets, sum_value=seen.total)


def _filled(family: Labelled, values: Mapping[str, float]) -> Labelled:
    for value, figure in values.items():
        family.add_metric([value], figure)
    return family


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)


def gateway_families(
    settings: Settings,
    driver: Driver,
    mergers: Mergers,
    *,
    topics: int,
    at_fault: Mapping[str, int],
    is_ready: bool,
) -> Iterator[Metric]:
    """Yield readiness, limits, flushes and durations; `at_fault`: topics by state."""
    figures, stats = driver.figures, driver.engine.stats(())
    yield gauge("ready", "1 while the gateway is ready, as /readyz reports.", is_ready)
    yield gauge("topics", "Topics of the gateway.", topics)
    # Zeros are exposed, so that an alert can tell "none" from "not measured".
    states = {state: at_fault.get(state, 0) for state in ("unusable", "unfilled")}
    yield gauges("topics_at_fault", "Topics that are unusable or not filled.", "state", states)
    limits = {
        "topics": settings.topics_max,
        "topic_keys": settings.topic_keys_max,
        "sessions": settings.sessions_max,
    }
    # Beside the counts, so that an alert on "nearly full" needs no copy of the settings.
    yield gauges("limit", "Greatest number allowed by the settings.", "of", limits)
    yield counter("flushes", "Flushes of lanes.", stats.flushes)
    yield histogram(
        "flush_lateness_seconds",
        "Time from the earliest planned flush until all due rows were sent.",
        figures.flush_lateness,
    )
    yield histogram(
        "publish_seconds",
        "Time from the hand-over of a publish to the store until the engine has all of it.",
        figures.publish,
    )
    # By registered function only: the label has as many values as the setting has entries.
    failures = {name: mergers.failures[name] for name in mergers.names}
    yield counters("merger_failures", "Failures of registered functions.", "function", failures)
    yield gauge("tasks", "Tasks of the event loop.", len(asyncio.all_tasks()))


def session_families(
    driver: Driver, states: Mapping[str, int], unsent_bytes: int
) -> Iterator[Metric]:
    """Yield sessions by state, ends by reason, resumes by mode, and stream writes."""
    figures, stats = driver.figures, driver.engine.stats(())
    known = {state.value: states.get(state, 0) for state in State}
    yield gauges("sessions", "Sessions, including recently ended ones.", "state", known)
    # Peers that just close count apart: for an operator they are no ends that the gateway decided.
    ends = {**_none_of(CloseReason), **driver.closed_sessions, GONE: figures.left}
    yield counters("sessions_closed", "Ends of sessions' streams, by reason.", "reason", ends)
    yield counters(
        "unsubscribed",
        "`unsubscribed` events for sessions, by reason.",
        "reason",
        {**dict.fromkeys(ENDS, 0), **stats.unsubscribed},
    )
    yield counters(
        "resumed",
        "Subscriptions that continued from a bookmark, by resume mode.",
        "mode",
        {**_none_of(ResumeMode), **stats.resumed},
    )
    yield counters(
        "auto_changes",
        "Interval changes of conflation=auto, by direction.",
        "direction",
        {**dict.fromkeys(DIRECTIONS, 0), **figures.auto_changes},
    )
    for name, meaning in RELIEFS.items():
        yield counter(f"queues_{name}", meaning, getattr(stats.remedies, name))
    yield histogram(
        "stream_write_seconds",
        "Time from a stream's write until its socket had room for another.",
        figures.write,
    )
    yield histogram("stream_write_bytes", "Bytes of a stream's write.", figures.write_bytes)
    yield gauge(
        "unacknowledged_bytes",
        "Bytes in the sockets of streams that their peers have not acknowledged.",
        unsent_bytes,
    )


def polling_families(polled: PolledStreams) -> Iterator[Metric]:
    """Yield polled streams, positions at which readers wait, requests and answers."""
    counts = polled.counts
    yield gauge("polled_streams", "Polled streams: different rows that are read.", len(polled))
    yield gauge(
        "polled_positions",
        "Positions at which polling readers wait, any number of them at each.",
        polled.positions,
    )
    yield counter(
        "polled_requests",
        "Requests of polling readers, or of the caches before them.",
        counts.requests,
    )
    yield counter("polled_answers", "Answers with rows to these requests.", counts.answers)


def _none_of(words: type[StrEnum]) -> dict[str, float]:
    return {word.value: 0 for word in words}


def store_families(store: Store, figures: Counters) -> Iterator[Metric]:
    """Yield durations and failures of any store, and the figures of a store that reports them."""
    yield from measured_families(figures)
    if (reported := store.figures()) is not None:
        yield from reported_families(reported)


def measured_families(figures: Counters) -> Iterator[Metric]:
    """Yield what the gateway measures."""
    yield histogram("store_append_seconds", "Time of a publish in the store.", figures.append)
    yield counter(
        "store_failures", "Publishes that the store could not keep.", figures.store_failures
    )
    # Without a first checkpoint the age would be that of 1970, and an alert would fire at each
    # start.
    if figures.checkpointed_ms is not None:
        yield gauge(
            "checkpoint_timestamp_seconds",
            "Unix time at which every message was in a checkpoint that needs one.",
            figures.checkpointed_ms / MS_PER_S,
        )


def reported_families(figures: StoreFigures) -> Iterator[Metric]:
    """Yield what the store reports; its size only if it keeps anything."""
    yield counter("store_commits", "Commits of the store.", figures.commits)
    yield gauge("store_queued", "Writes that wait for their commit.", figures.queued)
    # A store in memory has no size of its own; 0 would look like a lost file.
    if figures.size_bytes is not None:
        yield gauge("store_size_bytes", "Size of the store.", figures.size_bytes)


def server_families(figures: ConnectionFigures) -> Iterator[Metric]:
    """Yield open, refused and cut connections, and the event loop's lag and turns."""
    yield gauge("connections", "Open connections.", figures.connections)
    yield gauge("connections_max", "Connections allowed at once.", figures.connections_max)
    # By reason, as they call for different things: more descriptors, or a look at one address.
    refused = {reason: figures.refused_by[reason] for reason in (CONNECTIONS, ADDRESS)}
    yield counters(
        "connections_refused",
        "Connections refused at the limit of all connections or of one address.",
        "reason",
        refused,
    )
    yield counter("connections_given_up", "Connections cut for taking nothing.", figures.given_up)
    yield histogram(
        "event_loop_lag_seconds",
        "Delay of the event loop's timers.",
        figures.loop_lag,
    )
    yield histogram(
        "event_loop_iteration_seconds",
        "Time of an iteration of the event loop, in which nobody else is served.",
        figures.loop.iterations,
    )
    yield counter(
        "event_loop_held",
        "Iterations of the event loop that took longer than `loop_held_max`.",
        figures.loop.held,
    )
