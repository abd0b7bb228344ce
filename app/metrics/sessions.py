"""Metrics of sessions: states, ends, resumes, queues and stream writes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from prometheus_client.core import Metric

from tidegate.app.gateway import Gateway
from tidegate.app.metrics.families import counter, counters, gauge, gauges, histogram
from tidegate.app.sessions.session import State
from tidegate.conflation.outputs import CloseReason, ResumeMode
from tidegate.conflation.sessions.registry import GONE

RELIEFS = {
    "forced": "Full queues that were conflated.",
    "background": "Parts of long queues that were conflated in idle time.",
    "unsubscribed": "Subscriptions that a full queue ended.",
}


# Labels exposed from the start: Prometheus sees no increase in a counter that first appears as 1.
ENDS = ("REQUESTED", "REMOVED", "UNUSABLE", "BACK_PRESSURE")
DIRECTIONS = ("longer", "shorter")


def session_families(gateway: Gateway) -> Iterator[Metric]:
    """Yield sessions by state, ends by reason, resumes by mode, and stream writes."""
    driver, figures = gateway.driver, gateway.driver.figures
    stats, states = driver.engine.stats(()), gateway.sessions.states()
    known = {state.value: states[state] for state in State}
    yield gauges("sessions", "Sessions, with those that ended a short while ago.", "state", known)
    ends = {**_none_of(CloseReason), **driver.closed_sessions, GONE: figures.left}
    yield counters("sessions_closed", "Ends of sessions' streams, by why.", "reason", ends)
    yield counters(
        "unsubscribed",
        "Ends of subscriptions that their sessions were told, by why.",
        "reason",
        {**dict.fromkeys(ENDS, 0), **stats.unsubscribed},
    )
    yield counters(
        "resumed",
        "Subscriptions that went on from a bookmark, by how.",
        "mode",
        {**_none_of(ResumeMode), **stats.resumed},
    )
    yield counters(
        "auto_changes",
        "Steps of conflation=auto, by whether the interval became longer or shorter.",
        "direction",
        {**dict.fromkeys(DIRECTIONS, 0), **figures.auto_changes},
    )
    for name, meaning in RELIEFS.items():
        yield counter(f"queues_{name}", meaning, getattr(stats.reliefs, name))
    yield histogram(
        "stream_write_seconds",
        "From a stream's write until its socket had room for another.",
        figures.write,
    )
    yield histogram("stream_write_bytes", "Bytes of a stream's write.", figures.write_bytes)
    yield gauge(
        "unacknowledged_bytes",
        "What streams' sockets hold that their peers have not acknowledged.",
        gateway.sessions.unsent_bytes(),
    )


def _none_of(words: type[StrEnum]) -> dict[str, float]:
    return {word.value: 0 for word in words}
