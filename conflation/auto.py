"""The controller of `conflation=auto`: which interval a connection keeps up with. Pure.

AMPS tries "to determine an appropriate conflation interval based on client consumption" and says
no more. Here it is a function of observations of a subscription's socket, at each flush that is
written to it and once between flushes. Bytes that are written and not acknowledged count, so a
socket that accepts small flushes but never delivers them counts as full.

A **round** is one interval, begun by a flush. At its end bytes may be **overdue**: written longer
ago than the interval and the round trip, and not acknowledged.

    in time     nothing is overdue
    recovering  less is overdue than when the round began, by a quarter of what it wrote
    late        anything else, and a write that still waits for room

The second late round in a row makes the interval a step longer, and each further one another step.
The interval becomes a step shorter after a calm time in which every flush was acknowledged within
half of the shorter interval.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from tidegate.conflation.subscription import Auto
from tidegate.keys.text.duration import MILLISECOND, SECOND, Instant

STEPS_NS = (
    *(50 * MILLISECOND, 100 * MILLISECOND, 200 * MILLISECOND, 500 * MILLISECOND),
    *(1 * SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND),
)
"""The intervals that `auto` may choose from (CONTRACT 5.2).

Few and fixed, so that subscribers of equal speed share lanes.
"""


def step_not_below(bound_ns: int) -> int | None:
    """Return the shortest step of at least this; None above the last one."""
    return next((step_ns for step_ns in STEPS_NS if step_ns >= bound_ns), None)


def step_not_above(bound_ns: int) -> int | None:
    """Return the longest step of at most this; None below the first one."""
    return next((step_ns for step_ns in reversed(STEPS_NS) if step_ns <= bound_ns), None)


def auto_within(min_ns: int | None, max_ns: int | None, max_age_ns: int | None) -> Auto | None:
    """Return the first and the last step between two bounds; None if there is no step.

    Without a maximum a promised age is the upper bound: a longer interval would break it.
    """
    high_ns = next((ns for ns in (max_ns, max_age_ns) if ns is not None), STEPS_NS[-1])
    first = step_not_below(STEPS_NS[0] if min_ns is None else min_ns)
    last = step_not_above(high_ns)
    return Auto(first, last) if first is not None and last is not None and first <= last else None


FRAMING_BYTES = 12
"""At most this many bytes of chunked encoding are around a write."""


class Observation(NamedTuple):
    """The state of a socket at one moment, before anything is written.

    `flush_bytes` are about to be written for the subscription, 0 between flushes. Of the bytes
    written before, `unsent_bytes` are not acknowledged, the oldest since `unsent_since`;
    `overdue_bytes` are older than the interval and two round trips. `is_full`: a write still waits
    for room.
    """

    now: Instant
    unsent_bytes: int = 0
    overdue_bytes: int = 0
    unsent_since: Instant | None = None
    round_trip_ns: int = 0
    flush_bytes: int = 0
    is_full: bool = False


class InFlight:
    """The newest writes to a socket: those that its unacknowledged bytes may belong to.

    The kernel only says how many bytes are not acknowledged. The times at which they were written
    decide whether they are in flight, as always on a long path, or overdue.
    """

    def __init__(self) -> None:
        self.unsent_bytes = 0
        self._writes: deque[tuple[Instant, int]] = deque()
        self._total_bytes = 0

    def wrote(self, now: Instant, size_bytes: int) -> None:
        """Record bytes that were handed to the socket."""
        size_bytes += FRAMING_BYTES
        self._writes.append((now, size_bytes))
        self._total_bytes += size_bytes

    def left(self, unsent_bytes: int) -> None:
        """Record how many bytes are not acknowledged now, and drop older writes."""
        self.unsent_bytes = unsent_bytes
        while self._writes and self._total_bytes - self._writes[0][1] >= unsent_bytes:
            self._total_bytes -= self._writes.popleft()[1]

    def observed(
        self,
        now: Instant,
        interval_ns: int,
        *,
        round_trip_ns: int = 0,
        flush_bytes: int = 0,
        is_full: bool = False,
    ) -> Observation:
        """Return the observation of a subscription with this interval."""
        # Flushes are not written exactly on time, so a tenth of the interval is allowed; round
        # trips vary, so a byte may take two of the shortest ones.
        in_time = now - interval_ns * 9 // 10 - 2 * round_trip_ns
        young_bytes = 0
        for written, size_bytes in reversed(self._writes):
            if written <= in_time:
                break
            young_bytes += size_bytes
        return Observation(
            now, self.unsent_bytes, max(0, self.unsent_bytes - young_bytes),
            unsent_since=self._writes[0][0] if self._writes else None,
            round_trip_ns=round_trip_ns, flush_bytes=flush_bytes, is_full=is_full,
        )  # fmt: skip


LATE_ROUNDS = 2  # one late round is a hiccup; the second is a connection that is too slow
CALM_ROUNDS = 2
CALM_NS = 10 * SECOND

# A step back that does not last is tried again after a minute, then after two, then four, so that a
# minute has at most three changes. Buffers between a socket and its reader may hide for minutes
# that an interval is too short.
LASTING_NS = 300 * SECOND
CALM_AFTER_FAILURE_NS = 60 * SECOND
CALM_MAX_NS = 300 * SECOND


_LONGER = dict(pairwise(STEPS_NS))
_SHORTER = {longer_ns: shorter_ns for shorter_ns, longer_ns in _LONGER.items()}


class Reason(StrEnum):
    """Why an interval changes."""

    SLOW = "slow"
    """Flushes were not acknowledged within their interval."""
    FULL = "full"
    """The socket had no room for what was to be written, for an interval."""
    QUICK = "quick"
    """All flushes were acknowledged within half of the shorter interval, for long enough."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The observations behind a decision, at the end of a round.

    `flush_bytes` were written in it. `drain_ns` is the longest time from a flush to the observation
    that found it acknowledged, or to the last one that did not, less the round trip. `calm_ns` is
    for how long all flushes had been quick.
    """

    flush_bytes: int
    unsent_bytes: int
    overdue_bytes: int
    drain_ns: int
    late_rounds: int
    calm_ns: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A step to another interval."""

    at: Instant
    from_ns: int
    to_ns: int
    reason: Reason
    figures: Figures


class Round(NamedTuple):
    """One interval since `began`: what it wrote, and how many bytes were overdue before.

    After a step these are all that were unacknowledged, as they are overdue for another interval.
    `waiting_since` is the oldest flush that may not be acknowledged yet, `drain_ns` is as in
    Figures. `follows_step`: its flush was collected over the interval before, so that being in
    time says nothing about this one.
    """

    began: Instant
    overdue_bytes: int
    flush_bytes: int = 0
    waiting_since: Instant | None = None
    drain_ns: int = 0
    follows_step: bool = False


class State(NamedTuple):
    """The present interval between its bounds, and the observations since it was chosen.

    It has been calm since `calm_since`, for `calm_rounds`; that must last `calm_needed_ns` for a
    step back. `stepped_back` is the time of the last one, until it has proved to last.
    """

    bounds: Auto
    interval_ns: int
    round: Round | None = None
    late_rounds: int = 0
    calm_since: Instant | None = None
    calm_rounds: int = 0
    calm_needed_ns: int = CALM_NS
    stepped_back: Instant | None = None

    @property
    def shorter_ns(self) -> int | None:
        """The next step back, if there is one within the bounds."""
        shorter_ns = _SHORTER.get(self.interval_ns, 0)
        return shorter_ns if shorter_ns >= self.bounds.min_ns else None

    @property
    def longer_ns(self) -> int | None:
        """The next step up, if there is one within the bounds."""
        longer_ns = _LONGER.get(self.interval_ns)
        return longer_ns if longer_ns is not None and longer_ns <= self.bounds.max_ns else None

    def observation_due(self, now: Instant, round_trip_ns: int) -> Instant | None:
        """Return when to observe the socket if nothing is written before; None if not at all.

        A little before half of the shorter interval, to see calm. Then a little after the end of
        the round, when the next flush should have been written, to see that it is late.
        """
        going, shorter_ns = self.round, self.shorter_ns
        if going is None or going.waiting_since is None:
            return None
        if shorter_ns is not None:
            early = going.waiting_since + round_trip_ns + 2 * shorter_ns // 5
            if now < early:
                return early
        return None if self.longer_ns is None else going.began + self.interval_ns * 11 // 10


def step(state: State, seen: Observation) -> tuple[State, Decision | None]:
    """Return the state after an observation, and the decision that it has led to, if any."""
    going = None if state.round is None else _with_age(state.round, seen)
    decision: Decision | None = None
    # Flushes are not exactly on time, so a round ends a tenth early.
    if going is not None and seen.now >= going.began + state.interval_ns * 9 // 10:
        state, decision = _judged(state, going, seen)
        going = _next_round(going, seen, follows_step=decision is not None)
    if seen.flush_bytes:
        going = _written(going or Round(seen.now, seen.overdue_bytes), seen)
    return state._replace(round=going), decision


def _next_round(going: Round, seen: Observation, *, follows_step: bool) -> Round | None:
    # With nothing written and nothing waiting there is no round: the next flush begins one.
    if not (seen.overdue_bytes or seen.flush_bytes) and going.waiting_since is None:
        return None
    before_bytes = seen.unsent_bytes if follows_step else seen.overdue_bytes
    return Round(
        seen.now, before_bytes, waiting_since=going.waiting_since, follows_step=follows_step
    )


def _with_age(going: Round, seen: Observation) -> Round:
    """Return the round with the age of its oldest flush, acknowledged now or not."""
    since = going.waiting_since
    if since is None:
        return going
    drain_ns = max(going.drain_ns, seen.now - since - seen.round_trip_ns)
    if seen.unsent_since is None or seen.unsent_since > since:
        since = seen.unsent_since
    return going._replace(waiting_since=since, drain_ns=drain_ns)


def _written(going: Round, seen: Observation) -> Round:
    since = seen.now if going.waiting_since is None else going.waiting_since
    flush_bytes = going.flush_bytes + seen.flush_bytes
    return going._replace(waiting_since=since, flush_bytes=flush_bytes)


def _judged(state: State, going: Round, seen: Observation) -> tuple[State, Decision | None]:
    if not seen.overdue_bytes:
        return _in_time(state, going, seen)
    state = state._replace(calm_since=None, calm_rounds=0)
    # Recovering: the interval stays while a connection works off its backlog.
    gone_bytes = going.overdue_bytes - seen.overdue_bytes
    if gone_bytes > 0 and gone_bytes >= going.flush_bytes // 4 and not seen.is_full:
        return state, None
    return _late(state, going, seen)


def _late(state: State, going: Round, seen: Observation) -> tuple[State, Decision | None]:
    state = state._replace(late_rounds=state.late_rounds + 1)
    if state.late_rounds < LATE_ROUNDS or state.longer_ns is None:
        return state, None
    reason = Reason.FULL if seen.is_full else Reason.SLOW
    decision = _decided(state, state.longer_ns, reason, going, seen)
    # The last step back did not last: the next one needs a longer calm.
    if state.stepped_back is not None and seen.now < state.stepped_back + LASTING_NS:
        needed_ns = max(CALM_AFTER_FAILURE_NS, 2 * state.calm_needed_ns)
        state = state._replace(calm_needed_ns=min(needed_ns, CALM_MAX_NS), stepped_back=None)
    return state._replace(interval_ns=decision.to_ns), decision


def _in_time(state: State, going: Round, seen: Observation) -> tuple[State, Decision | None]:
    # The last step back has lasted, so failures before it are forgotten.
    if state.stepped_back is not None and seen.now >= state.stepped_back + LASTING_NS:
        state = state._replace(stepped_back=None, calm_needed_ns=CALM_NS)
    if going.follows_step or not going.flush_bytes:
        return state, None
    shorter_ns = state.shorter_ns
    # In time, but it would be late at the shorter interval, so it is not calm.
    if shorter_ns is None or going.drain_ns > shorter_ns // 2:
        if state.late_rounds or state.calm_rounds:
            state = state._replace(late_rounds=0, calm_since=None, calm_rounds=0)
        return state, None
    since = going.began if state.calm_since is None else state.calm_since
    rounds = state.calm_rounds + 1
    state = state._replace(late_rounds=0, calm_since=since, calm_rounds=rounds)
    if rounds < CALM_ROUNDS or seen.now < since + state.calm_needed_ns:
        return state, None
    decision = _decided(state, shorter_ns, Reason.QUICK, going, seen)
    state = state._replace(interval_ns=shorter_ns, calm_since=None, calm_rounds=0)
    return state._replace(stepped_back=seen.now), decision


def _decided(state: State, to_ns: int, reason: Reason, going: Round, seen: Observation) -> Decision:
    figures = Figures(
        going.flush_bytes, seen.unsent_bytes, seen.overdue_bytes, going.drain_ns,
        state.late_rounds, 0 if state.calm_since is None else seen.now - state.calm_since,
    )  # fmt: skip
    return Decision(seen.now, state.interval_ns, to_ns, reason, figures)
