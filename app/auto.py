"""`conflation=auto` as a subscription has it: interval, bounds, and what was decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from conflation.auto import Decision, State, step
from conflation.duration import MILLISECOND, Instant, duration_text
from conflation.in_flight import Observation
from conflation.subscription import Auto, Subscription

DECISIONS_MAX = 50


class AutoInterval:
    """One subscription's controller; its session keeps it, also while nobody reads.

    All topics of a pattern have the one interval, each within its own bounds.
    """

    def __init__(self, interval_ns: int) -> None:
        self.state = State(Auto(interval_ns, interval_ns), interval_ns)
        self.decisions: deque[dict[str, Any]] = deque(maxlen=DECISIONS_MAX)
        self._seen_at: Instant = 0

    def begin(self, bounds: Auto) -> None:
        """Look at another socket, or go between other bounds: what was seen says nothing of it."""
        interval_ns = within(bounds, self.state.interval_ns)
        self.state = State(bounds, interval_ns)

    def keep_to(self, bounds: Auto) -> None:
        """Go between these bounds from now on."""
        if bounds != self.state.bounds:
            self.begin(bounds)

    def take(self, seen: Observation, now_ms: int) -> Decision | None:
        """See something of the socket; a decision that follows is kept."""
        self._seen_at = seen.now
        self.state, decision = step(self.state, seen)
        if decision is not None:
            self.decisions.append({"at_ms": now_ms, **told(decision)})
        return decision

    def look_due(self, round_trip_ns: int) -> Instant | None:
        """When to look next if nothing is written; None: not before something is."""
        return self.state.look_due(self._seen_at, round_trip_ns)


def bounds_of(subscriptions: Iterable[Subscription]) -> Auto | None:
    """The widest bounds of those that have any; None if there are none to move between."""
    autos = [one.shown.auto for one in subscriptions if one.shown.auto is not None]
    if not autos:
        return None
    return Auto(min(auto.min_ns for auto in autos), max(auto.max_ns for auto in autos))


def within(bounds: Auto, interval_ns: int) -> int:
    """The interval, or the bound that is next to it; on the ladder if they are."""
    return max(bounds.min_ns, min(bounds.max_ns, interval_ns))


def at_interval(subscription: Subscription, interval_ns: int) -> Subscription:
    """A subscription with `auto` at another interval, as far as its bounds allow; others stay."""
    auto = subscription.shown.auto
    if auto is None or within(auto, interval_ns) == subscription.lane_id.interval_ns:
        return subscription
    lane_id = replace(subscription.lane_id, interval_ns=within(auto, interval_ns))
    return replace(subscription, lane_id=lane_id)


def told(decision: Decision) -> dict[str, Any]:
    """A decision as the `conflation` event and the list of decisions tell it."""
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
