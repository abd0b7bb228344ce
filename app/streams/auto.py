"""The controller of one subscription's `conflation=auto`: interval, bounds, decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tidegate.conflation.auto import Decision, Observation, State, step
from tidegate.conflation.subscription import Auto, Subscription
from tidegate.keys.text.duration import MILLISECOND, Instant, duration_text

REQUESTED = "requested"
DECISIONS_MAX = 50
"""The newest decisions that are kept: all are shown, and transferred with the session."""


class AutoInterval:
    """One subscription's controller; the session keeps it while no reader is attached.

    All topics of a pattern share one interval, each within its own bounds.
    """

    def __init__(self, interval_ns: int) -> None:
        # A placeholder until `begin` brings the bounds.
        self.state = State(Auto(interval_ns, interval_ns), interval_ns)
        self.decisions: deque[dict[str, Any]] = deque(maxlen=DECISIONS_MAX)
        self._seen_at: Instant = 0

    def begin(self, bounds: Auto) -> None:
        """Start over for another socket or other bounds: earlier observations do not apply."""
        interval_ns = clamp(bounds, self.state.interval_ns)
        self.state = State(bounds, interval_ns)

    def keep_to(self, bounds: Auto) -> None:
        """Set the bounds; start over if they differ."""
        if bounds != self.state.bounds:
            self.begin(bounds)

    def record(self, seen: Observation, now_ms: int) -> Decision | None:
        """Give one observation of the socket to the controller, and record its decision."""
        self._seen_at = seen.now
        self.state, decision = step(self.state, seen)
        if decision is not None:
            self.decisions.append({"at_ms": now_ms, **decision_document(decision)})
        return decision

    def observation_due(self, round_trip_ns: int) -> Instant | None:
        """Return when to observe next without a write; None: not before a write."""
        return self.state.observation_due(self._seen_at, round_trip_ns)


def bounds_of(subscriptions: Iterable[Subscription]) -> Auto | None:
    """Return the widest bounds of the subscriptions with `auto`; None if none has it."""
    autos = [one.shown.auto for one in subscriptions if one.shown.auto is not None]
    if not autos:
        return None
    return Auto(min(auto.min_ns for auto in autos), max(auto.max_ns for auto in autos))


def clamp(bounds: Auto, interval_ns: int) -> int:
    """Clamp an interval to the bounds."""
    return max(bounds.min_ns, min(bounds.max_ns, interval_ns))


def at_interval(subscription: Subscription, interval_ns: int) -> Subscription:
    """Return a subscription with `auto` at another interval, within its bounds.

    A subscription without `auto` is returned unchanged.
    """
    auto = subscription.shown.auto
    if auto is None or clamp(auto, interval_ns) == subscription.lane_id.interval_ns:
        return subscription
    lane_id = replace(subscription.lane_id, interval_ns=clamp(auto, interval_ns))
    return replace(subscription, lane_id=lane_id)


def decision_document(decision: Decision) -> dict[str, Any]:
    """Return a decision as the `conflation` event and the list of decisions show it."""
    figures = decision.figures
    return {
        "from": duration_text(decision.from_ns),
        "to": duration_text(decision.to_ns),
        "reason": decision.reason,
        "inputs": {
            "flush_bytes": figures.flush_bytes,
            "unsent_bytes": figures.unsent_bytes,
            "overdue_bytes": figures.overdue_bytes,
            "drain_ms": figures.drain_ns // MILLISECOND,
            "late_rounds": figures.late_rounds,
            "calm_ms": figures.calm_ns // MILLISECOND,
        },
    }


def requested_document(from_ns: int, to_ns: int) -> dict[str, Any]:
    """Return a change that the client asked for, in the form of a decision."""
    texts = [duration_text(each) if each else "none" for each in (from_ns, to_ns)]
    return {"from": texts[0], "to": texts[1], "reason": REQUESTED, "inputs": {}}
