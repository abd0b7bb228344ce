"""Watches one stream for its subscriptions with `auto`: what is written, and what is taken.

It has no timer and no task: the stream calls it at each write, and looks when it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.auto import AutoInterval, at_interval, bounds_of, told
from app.connection import Connection
from app.sessions.asked import Asked
from app.sessions.session import Session
from app.sse import Style, event
from conflation.duration import SECOND, Instant
from conflation.in_flight import InFlight
from conflation.outputs import Output, Rows
from conflation.sessions.session import SeatId


class AutoWatch:
    """What is seen of one reader's socket, and what follows.

    Args:
        session: whose subscriptions they are.
        styles: of the reader's seats.
        change: has the engine go over to what a topic of a subscription is granted now.
        tell: sends an event before the next rows.
    """

    def __init__(
        self,
        session: Session,
        styles: Mapping[SeatId, Style],
        change: Callable[[Asked, str], None],
        tell: Callable[[bytes], None],
    ) -> None:
        self._session = session
        self._styles = styles
        self._change = change
        self._tell = tell
        self._watched: list[Asked] = []
        self._is_current = False
        self._in_flight = InFlight()
        self._began: Instant = 0
        self._round_trip_ns = 0

    def refresh(self) -> None:
        """Subscriptions have come, gone or changed."""
        self._is_current = False

    def look(
        self,
        connection: Connection | None,
        outputs: Sequence[Output] = (),
        *,
        is_full: bool = False,
    ) -> None:
        """See what the peer has taken; `outputs` are about to be written.

        `is_full`: a write waits for room.
        """
        self._find()
        if not self._watched or connection is None:
            return
        now = self._now()
        if not is_full:
            self._began = now
        self._in_flight.left(connection.unsent_bytes)
        self._round_trip_ns = connection.round_trip_ns
        flushes = self._flushes(outputs)
        for asked in self._watched:
            assert asked.auto is not None
            due = asked.auto.look_due(self._round_trip_ns)
            flush_bytes = flushes.get(asked.name, 0)
            if flush_bytes or (due is not None and due <= now):
                self._observe(asked, asked.auto, now, flush_bytes, is_full=is_full)

    def wrote(self, size_bytes: int) -> None:
        """What was about to be written is handed to the socket, be it after a wait."""
        if self._watched:
            self._in_flight.wrote(self._began, size_bytes)

    def wait_s(self, seconds_max: float) -> float:
        """How long a wait may be until there is something to look for."""
        dues = [asked.auto.look_due(self._round_trip_ns) for asked in self._watched if asked.auto]
        due = min((due for due in dues if due is not None), default=None)
        if due is None:
            return seconds_max
        return min(seconds_max, max(0.0, (due - self._now()) / SECOND))

    def _observe(
        self, asked: Asked, auto: AutoInterval, now: Instant, flush_bytes: int, *, is_full: bool
    ) -> None:
        seen = self._in_flight.observed(
            now, auto.state.interval_ns,
            round_trip_ns=self._round_trip_ns, flush_bytes=flush_bytes, is_full=is_full,
        )  # fmt: skip
        decision = auto.take(seen, self._session.gateway.driver.wall_ms())
        if decision is None:
            return
        direction = "longer" if decision.to_ns > decision.from_ns else "shorter"
        self._session.gateway.driver.figures.auto_changes[direction] += 1
        for topic, found in list(asked.topics.items()):
            subscription = at_interval(found.subscription, decision.to_ns)
            if subscription is not found.subscription:
                asked.topics[topic] = found._replace(subscription=subscription)
                self._change(asked, topic)
        self._tell(event("conflation", {"sub": asked.name, "topic": asked.text, **told(decision)}))

    def _find(self) -> None:
        """Which subscriptions are to be watched; those of before go on as they are.

        None once another reader has come.
        """
        session = self._session
        if session.reader is None or session.reader.auto is not self:
            self._watched = []
            return
        are_there = all(session.asked.get(asked.name) is asked for asked in self._watched)
        if self._is_current and are_there:
            return
        self._is_current, before, self._watched = True, self._watched, []
        for asked in session.asked.values():
            bounds = bounds_of(found.subscription for found in asked.topics.values())
            if bounds is None:
                asked.auto = None
                continue
            if asked.auto is None:
                asked.auto = AutoInterval(bounds.min_ns)
            if asked not in before:
                asked.auto.begin(bounds)
            asked.auto.keep_to(bounds)
            if bounds.min_ns < bounds.max_ns:
                self._watched.append(asked)

    def _flushes(self, outputs: Sequence[Output]) -> dict[str, int]:
        """Bytes of live rows by subscription; an opening is not at the interval's pace."""
        flushes: dict[str, int] = {}
        for output in outputs:
            if isinstance(output, Rows) and output.batch.frames:
                cut = self._styles[output.name, output.topic].cut
                if output.batch.frames[-1].offset > cut.offset:
                    known = flushes.get(output.name, 0)
                    flushes[output.name] = known + output.batch.payload_bytes
        return flushes

    def _now(self) -> Instant:
        return self._session.gateway.driver.now()
