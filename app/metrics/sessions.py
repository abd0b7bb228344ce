"""Figures of sessions: where they stand, why they end, how they come back, what waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from prometheus_client.core import Metric

from app.gateway import Gateway
from app.metrics.families import counter, counters, gauge, gauges, histogram
from app.sessions.session import State
from conflation.outputs import CloseReason, ResumeMode
from conflation.sessions.roster import GONE

RELIEFS = {
    "forced": "Full queues that were conflated.",
    "background": "Parts of long queues that were conflated in idle time.",
    "unsubscribed": "Subscriptions that a full queue ended.",
}


# Known from the beginning: what first appears as 1 has not risen, as far as Prometheus knows.
ENDS = ("REQUESTED", "REMOVED", "BACK_PRESSURE")
DIRECTIONS = ("longer", "shorter")


def session_families(gateway: Gateway) -> Iterator[Metric]:
    """By state, by reason, by mode; and what is written to them."""
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
