"""Observes one stream's socket for its subscriptions with `conflation=auto`.

It has no timer and no task: the stream calls it at each write, and when it is due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidegate.app.streams.auto import AutoInterval, at_interval, bounds_of, decision_document
from tidegate.app.streams.connection import StreamConnection
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.sse import event
from tidegate.app.streams.subscriptions import SessionSubscription
from tidegate.conflation.auto import InFlight
from tidegate.conflation.outputs import Output, Rows
from tidegate.keys.text.duration import SECOND, Instant


class AutoWatch:
    """Feeds a reader's socket to the controllers, and applies their decisions.

    Args:
        reader: of the stream; once another reader has come, its consumer is over.
        subscriptions: returns the session's, by name; a change may put others in their place.
    """

    __slots__ = (
        "_began", "_driver", "_found_at", "_in_flight", "_reader", "_round_trip_ns",
        "_subscriptions", "_watched",
    )  # fmt: skip

    def __init__(
        self, reader: Reader, subscriptions: Callable[[], Mapping[str, SessionSubscription]]
    ) -> None:
        self._driver = reader.driver
        self._reader = reader
        self._subscriptions = subscriptions
        self._watched: Sequence[SessionSubscription] = ()
        # The reader's revision for which `_watched` was found; none at first.
        self._found_at = -1
        # Only a stream with `auto` has one: most have none, and it is not small.
        self._in_flight: InFlight | None = None
        self._began: Instant = 0
        self._round_trip_ns = 0

    def observe(
        self,
        connection: StreamConnection | None,
        outputs: Sequence[Output] = (),
        *,
        is_full: bool = False,
    ) -> None:
        """Observe what the peer has taken; `outputs` are about to be written.

        `is_full`: a write waits for room.
        """
        self._find()
        if not self._watched or connection is None:
            return
        now = self._now()
        if not is_full:  # a write that waits for room began at its first observation
            self._began = now
        if self._in_flight is None:
            self._in_flight = InFlight()
        # Once for all subscriptions: each of these is a system call.
        self._in_flight.left(connection.unsent_bytes)
        self._round_trip_ns = connection.round_trip_ns
        flushes = self._flushes(outputs)
        for asked in self._watched:
            assert asked.auto is not None
            due = asked.auto.observation_due(self._round_trip_ns)
            flush_bytes = flushes.get(asked.name, 0)
            if flush_bytes or (due is not None and due <= now):
                self._observe(asked, asked.auto, now, flush_bytes, is_full=is_full)

    def wrote(self, size_bytes: int) -> None:
        """Record that bytes were handed to the socket, perhaps after a wait."""
        if self._watched and self._in_flight is not None:
            self._in_flight.wrote(self._began, size_bytes)

    def wait_s(self, seconds_max: float) -> float:
        """Return how long a stream may wait until the next observation is due."""
        autos = [asked.auto for asked in self._watched if asked.auto is not None]
        dues = [auto.observation_due(self._round_trip_ns) for auto in autos]
        due = min((due for due in dues if due is not None), default=None)
        if due is None:
            return seconds_max
        return min(seconds_max, max(0.0, (due - self._now()) / SECOND))

    def _observe(
        self,
        asked: SessionSubscription,
        auto: AutoInterval,
        now: Instant,
        flush_bytes: int,
        *,
        is_full: bool,
    ) -> None:
        assert self._in_flight is not None, "`observe` has made it"
        seen = self._in_flight.observed(
            now, auto.state.interval_ns,
            round_trip_ns=self._round_trip_ns, flush_bytes=flush_bytes, is_full=is_full,
        )  # fmt: skip
        decision = auto.record(seen, self._driver.wall_ms())
        if decision is None:
            return
        direction = "longer" if decision.to_ns > decision.from_ns else "shorter"
        self._driver.figures.auto_changes[direction] += 1
        for topic, found in list(asked.topics.items()):
            subscription = at_interval(found.subscription, decision.to_ns)
            if subscription is not found.subscription:
                asked.topics[topic] = found._replace(subscription=subscription)
                self._reader.change(asked.name, subscription, changes_rows=False)
        self._reader.consumer.send(
            event(
                "conflation",
                {"sub": asked.name, "topic": asked.text, **decision_document(decision)},
            )
        )

    def _find(self) -> None:
        """Find the subscriptions to observe; none once another reader is attached.

        Controllers that were observed before keep their state.
        """
        if self._reader.consumer.is_over:
            self._watched = ()
            return
        present = self._subscriptions()
        are_there = all(present.get(asked.name) is asked for asked in self._watched)
        if self._found_at == self._reader.revision and are_there:
            return
        self._found_at, before = self._reader.revision, self._watched
        watched: list[SessionSubscription] = []
        for asked in present.values():
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
                watched.append(asked)
        self._watched = watched or ()  # most streams watch none

    def _flushes(self, outputs: Sequence[Output]) -> dict[str, int]:
        """Return bytes of live rows by subscription; an opening is not paced by the interval."""
        flushes: dict[str, int] = {}
        for output in outputs:
            if isinstance(output, Rows) and output.op != "snapshot" and output.batch.frames:
                cut = self._reader.styles[output.name, output.topic].cut
                if output.batch.frames[-1].offset > cut.offset:
                    known = flushes.get(output.name, 0)
                    flushes[output.name] = known + output.batch.payload_bytes
        return flushes

    def _now(self) -> Instant:
        return self._driver.now()
