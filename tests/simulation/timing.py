"""When rows arrived: not too often (I2), not too late (I4), however slow others are (I16)."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from tests.simulation.deliveries import Delivery, Opened, require
from tests.simulation.ledger import Entry
from tests.simulation.plan import SubscriptionPlan


class TimingChecks:
    """One connection's times. All are of the virtual clock, so a bound is a bound."""

    def __init__(self, seen: Opened, subscription: SubscriptionPlan, now_ns: int) -> None:
        self._seen = seen
        self._subscription = subscription
        self._blocked = seen.blocked()
        ended_ns = seen.connection.ended_ns
        self._end_ns = now_ns if ended_ns is None else ended_ns
        if seen.goodbye is not None:
            self._end_ns = min(self._end_ns, seen.goodbye.asked_ns)
        self._by_own: dict[str, list[Delivery]] = {}
        for row in seen.rows:
            if row.live:
                self._by_own.setdefault(row.own, []).append(row)

    def check(self) -> None:
        """I2 and I4."""
        if self._seen.cut is None:
            return
        if self._subscription.interval_ns:
            self._check_rate()
            self._check_newest()
            self._check_turns(self._seen.cut)
        self._check_age(self._seen.cut)

    def _check_rate(self) -> None:
        """At most one update of a key in an interval; late takes belong to the flush before.

        What is left of a large answer goes out first, then what came meanwhile.
        """
        late = 3
        live = [row.asked_ns for row in self._seen.rows if row.live]
        first = min(live, default=0)
        for own, rows in self._by_own.items():
            times = [row.asked_ns for row in rows if row.asked_ns > first]
            for one, other in pairwise(times):
                apart = other - one >= self._subscription.interval_ns
                require(apart or self._touches(one, other), "I2", f"{own} at {one} and {other}")
            for one, other in zip(times, times[late:], strict=False):
                apart = other - one >= self._subscription.interval_ns
                require(apart, "I2", f"{own} {late + 1} times by {other}")

    def _check_newest(self) -> None:
        """No row is superseded by what was there before it was taken.

        Who is late by less than an interval may still get the flush that all others got.
        """
        for own, rows in self._by_own.items():
            puts = [entry for entry in self._seen.ledger.by_own.get(own, []) if self._is_put(entry)]
            for row in rows:
                at = bisect_left(puts, row.entry.offset + 1, key=lambda entry: entry.offset)
                if row.op == "oof" or at == len(puts) or puts[at].at_ns is None:
                    continue
                newer_ns = puts[at].at_ns or 0
                late = self._touches(newer_ns, row.asked_ns)
                if late and self._subscription.by_slots:
                    continue
                held_ns = self._subscription.held_ns if late or self._subscription.by_slots else 0
                require(
                    newer_ns >= row.asked_ns - held_ns,
                    "I4",
                    f"{own}: {row.entry.offset} was superseded",
                )

    def _check_turns(self, cut: int) -> None:
        """While a key waits, no other is told more than three times: rounds that end and begin."""
        for own, entries in self._seen.ledger.by_own.items():
            told = self._by_own.get(own, [])
            for number, entry in enumerate(entries):
                if entry.offset <= cut or entry.at_ns is None or not self._is_put(entry):
                    continue
                at = bisect_left(told, entry.offset, key=lambda row: row.entry.offset)
                until_ns = told[at].asked_ns if at < len(told) else self._end_ns
                if not any(not self._is_put(later) for later in entries[number:]):
                    self._check_turn(own, entry.at_ns + self._subscription.held_ns, until_ns)

    def _check_turn(self, own: str, since_ns: int, until_ns: int) -> None:
        for other, rows in self._by_own.items():
            first = bisect_left(rows, since_ns, key=lambda row: row.asked_ns)
            last = bisect_left(rows, until_ns, key=lambda row: row.asked_ns)
            turns = last - first
            require(turns <= 3, "I24", f"{other} is told {turns} times while {own} waits")

    def _check_age(self, cut: int) -> None:
        """Nothing is held longer than its interval while the socket takes data."""
        for entry in self._seen.ledger.after(cut):
            if entry.at_ns is None or not self._is_put(entry) or entry.at_ns >= self._end_ns:
                continue
            due_ns = entry.at_ns + self._subscription.held_ns
            row = self._row_for(entry)
            until_ns = self._end_ns if row is None else row.asked_ns
            if until_ns <= due_ns or self._left_by(entry, due_ns):
                continue
            patience_ns = self._subscription.held_ns if self._touches(entry.at_ns, due_ns) else 0
            idle_ns = self._idle(due_ns, until_ns)
            what = f"{entry.own}: {entry.offset} was held {idle_ns / 1e6} ms too long"
            require(idle_ns <= patience_ns, "I4", what)

    def _row_for(self, entry: Entry) -> Delivery | None:
        """The first row that tells of it, or of what replaced it."""
        own = entry.own if self._subscription.topic.keyed or self._subscription.interval_ns else ""
        rows = self._by_own.get(own, [])
        at = bisect_left(rows, entry.offset, key=lambda row: row.entry.offset)
        return rows[at] if at < len(rows) else None

    def _left_by(self, entry: Entry, due_ns: int) -> bool:
        """Whether the key had left again when it could be told, and there is nothing to tell."""
        free_ns = self._free_at(due_ns)
        by_key = self._subscription.interval_ns or self._subscription.topic.policy == "always"
        if not self._subscription.oof or (free_ns == due_ns and not by_key):
            return False
        later = self._seen.ledger.by_own[entry.own]
        return any(
            e.offset > entry.offset and not self._is_put(e) and (e.at_ns or 0) <= free_ns
            for e in later
        )

    def _free_at(self, at_ns: int) -> int:
        """When the socket takes data, from a moment on."""
        for start, stop in self._blocked:
            if start <= at_ns <= stop:
                at_ns = stop
        return at_ns

    def _is_put(self, entry: Entry) -> bool:
        return not entry.gone and self._subscription.matches(entry.value)

    def _touches(self, start_ns: int, end_ns: int) -> bool:
        """Whether the stream waited for its socket at any time between."""
        return any(start <= end_ns and stop >= start_ns for start, stop in self._blocked)

    def _idle(self, start_ns: int, end_ns: int) -> int:
        """For how long the socket would have taken data."""
        waits = (min(stop, end_ns) - max(start, start_ns) for start, stop in self._blocked)
        return end_ns - start_ns - sum(wait for wait in waits if wait > 0)
