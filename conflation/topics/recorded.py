"""Conflation of recorded messages: an interval measured on the timeline of publication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from operator import attrgetter

from tidegate.conflation.frame import Frame, sent_bytes
from tidegate.conflation.journal import Log
from tidegate.conflation.lanes.lane import Lane, whole
from tidegate.conflation.operators.filter import matcher
from tidegate.conflation.steps import FEW, Steps, finished, in_steps
from tidegate.conflation.subscription import LaneId, Window
from tidegate.conflation.topics.feed import Feed
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import MILLISECOND, SECOND, Instant


def conflate_recorded(
    frames: Sequence[Frame], lane_id: LaneId, sow_spec: KeySpec, topic: str
) -> Steps[list[Frame]]:
    """Return the rows that a lane would have sent, by the times of the messages.

    As in AMPS a fast replay with `1s` has one message per key and *recorded* second. It uses the
    same lanes as live subscriptions, with the recorded time as `now`.
    """
    recording = Recording(Feed(lane_id.feed, sow_spec, topic), _unshown(lane_id))
    cost = lane_id.feed.record_cost
    rows = yield from in_steps(frames, lambda piece: _rows_of(recording.play(piece)), cost)
    for _, flushed in recording.end():
        rows += whole(flushed)
        if len(flushed) > FEW:
            yield
    if lane_id.oof:
        missed = MissedRemovals()
        missed.record(frames)
        rows += missed.unsent(rows)
    return rows


class MissedRemovals:
    """The removals that a reader missed, and that the lane of a recording does not send.

    A lane that begins empty sends no removal of a key that it has not sent before. The reader may
    have that key, and would keep the record; it ignores a removal of a key that it does not have.
    """

    def __init__(self) -> None:
        self._removed: dict[str, Frame] = {}

    def record(self, frames: Sequence[Frame]) -> None:
        """Record the removals among the next messages that no later one voids."""
        for frame in frames:
            if frame.removed:
                self._removed[frame.key] = frame
            else:
                self._removed.pop(frame.key, None)

    def sent(self, rows: Sequence[Frame]) -> None:
        """Drop removals that the lane has sent."""
        for row in rows:
            removal = self._removed.get(row.key) if row.removed else None
            if removal is not None and removal.offset <= row.offset:
                del self._removed[row.key]

    def unsent(self, rows: Sequence[Frame]) -> list[Frame]:
        """Return the removals that the lane has not sent, oldest first; `rows` are its last."""
        self.sent(rows)
        return sorted(self._removed.values(), key=attrgetter("offset"))


def passing(lane_id: LaneId, topic: str, frames: Sequence[Frame]) -> Steps[list[Frame]]:
    """Return the messages that a lane without an interval sends."""
    matches = matcher(lane_id.feed.filter, topic)

    def passed(piece: Sequence[Frame]) -> list[Frame]:
        return [
            frame
            for frame in piece
            if (
                lane_id.oof
                if frame.removed
                else matches is None or matches(frame.payload, frame.key)
            )
        ]

    return (yield from in_steps(frames, passed, lane_id.feed.record_cost))


def recorded_flushes(
    feed: Feed, lane_id: LaneId, frames: Sequence[Frame]
) -> Iterator[tuple[Instant, Sequence[Frame]]]:
    """Yield the time and the rows of each flush of a lane of this feed."""
    recording = Recording(feed, lane_id)
    yield from recording.play(frames)
    yield from recording.end()


class Recording:
    """A lane whose clock is the recorded time; messages may be played piece by piece."""

    def __init__(self, feed: Feed, lane_id: LaneId) -> None:
        # The lane has no members, for whom keys are kept, and all its rows are still to be read.
        feed.forgets = False
        self._feed = feed
        self._lane = feed.lane(lane_id)
        self._now: Instant = 0

    def play(self, frames: Sequence[Frame]) -> Iterator[tuple[Instant, Sequence[Frame]]]:
        """Publish the next messages; yield the flushes that are due until the last of them."""
        feed, lane = self._feed, self._lane
        together: list[Frame] = []
        for frame in frames:
            # Wall time may step back between two messages; the engine's clock never does.
            before, self._now = self._now, max(self._now, frame.timestamp_ms * MILLISECOND)
            # A lane with a deadline that does not see every message needs none until it is due:
            # publishing many together takes half of the time.
            if together and (lane.deadline is None or lane.deadline <= self._now):
                feed.publish(together, before)
                together = []
            # Flush first: a flush at exactly the message's time does not include it.
            while lane.deadline is not None and lane.deadline <= self._now:
                yield lane.deadline, _flush(feed, lane)
            if lane.deadline is None or lane.sees_every_message:
                feed.publish([frame], self._now)
            else:
                together.append(frame)
        if together:
            feed.publish(together, self._now)

    def end(self) -> Iterator[tuple[Instant, Sequence[Frame]]]:
        """Yield the flushes of what is still held after the last message."""
        while self._lane.deadline is not None:
            yield self._lane.deadline, _flush(self._feed, self._lane)


def _unshown(lane_id: LaneId) -> LaneId:
    """Return a lane whose rows have all fields, as a cursor selects those of each piece."""
    return replace(lane_id, select=None) if lane_id.asks_board else lane_id


def _flush(feed: Feed, lane: Lane) -> Sequence[Frame]:
    assert lane.deadline is not None
    since = lane.position
    return lane.flushed(since) if feed.flush(lane, lane.deadline) else ()


def _rows_of(flushes: Iterable[tuple[Instant, Sequence[Frame]]]) -> list[Frame]:
    # Full values, as the client may not hold the base of a recorded delta.
    return [row for _, rows in flushes for row in whole(rows)]


# --- A replay that begins before the journal does: an archive supplies what is older, in pieces


class HistoryReplay:
    """How far a replay has got in an archive, and what it holds of an open interval.

    The engine does no I/O: it announces `HistoryWanted`, and the gateway calls `supply_history`.

    Attributes:
        after: everything up to this offset was supplied.
        asked: the next piece was requested.
        has_interval: rows of a piece depend on earlier ones, so no piece ends with an id.
    """

    def __init__(
        self,
        lane_id: LaneId,
        sow_spec: KeySpec,
        topic: str,
        after: int,
        since_ms: int | None = None,
    ) -> None:
        """`since_ms`: the time before which the first messages are left out."""
        self.after = after
        self.asked = False
        self.has_interval = bool(lane_id.interval_ns)
        self._lane_id = lane_id
        self._topic = topic
        self._since_ms = since_ms
        # One lane for all pieces, as the rows must not depend on where pieces end.
        feed = Feed(lane_id.feed, sow_spec, topic)
        self._recording = Recording(feed, _unshown(lane_id)) if self.has_interval else None
        self._removals = MissedRemovals() if lane_id.oof else None

    def rows(self, piece: Sequence[Frame]) -> Sequence[Frame]:
        """Return what the lane sends of the next messages."""
        self.after, self.asked = piece[-1].offset, False
        if self._since_ms is not None:
            since_ms = self._since_ms
            piece = list(dropwhile(lambda frame: frame.timestamp_ms < since_ms, piece))
            # After the first message that is young enough, all are included, whatever their times.
            self._since_ms = None if piece else since_ms
        if self._recording is None:
            return finished(passing(self._lane_id, self._topic, piece))
        rows = _rows_of(self._recording.play(piece))
        if self._removals is not None:
            self._removals.record(piece)
            self._removals.sent(rows)
        return rows

    def rest(self, journal: Log) -> Sequence[Frame]:
        """Return the last rows: those of the journal after the archive's end, and held ones."""
        missed = journal.after(self.after)
        rows = list(self.rows(missed)) if missed else []
        if self._recording is None:
            return rows
        last = _rows_of(self._recording.end())
        removals = [] if self._removals is None else self._removals.unsent(last)
        return rows + last + removals


# --- Estimates: what a lane would have sent of messages that are recorded


@dataclass(frozen=True, slots=True)
class Estimate:
    """Rows and their payload bytes, over the time from the first message to the last flush.

    Framing and envelopes come on top of the bytes; a delta counts as its patch.
    """

    rows: int
    payload_bytes: int
    duration_ns: int

    @property
    def rows_per_s(self) -> float:
        """Rows a second."""
        return self.rows * SECOND / self.duration_ns

    @property
    def bytes_per_s(self) -> float:
        """Payload bytes a second."""
        return self.payload_bytes * SECOND / self.duration_ns


def estimate(
    frames: Sequence[Frame],
    records: Iterable[Frame],
    lane_id: LaneId,
    sow_spec: KeySpec,
    topic: str,
) -> Estimate | None:
    """Estimate the rows of a lane for recorded messages, by their times; None if no time passed.

    `records` is the state of the world after the messages. A window begins with those records that
    are older than the messages; the ones that the messages have replaced are not known any more.
    """
    if not frames:
        return None
    feed = _feed_before(frames[0], records, lane_id, sow_spec, topic)
    begun_ns = frames[0].timestamp_ms * MILLISECOND
    ended_ns = max(frame.timestamp_ms for frame in frames) * MILLISECOND
    rows = payload_bytes = 0
    for flushed_ns, flushed in recorded_flushes(feed, lane_id, frames):
        rows += len(flushed)
        payload_bytes += sum(map(sent_bytes, flushed))
        ended_ns = max(ended_ns, flushed_ns)
    return Estimate(rows, payload_bytes, ended_ns - begun_ns) if ended_ns > begun_ns else None


def _feed_before(
    first: Frame, records: Iterable[Frame], lane_id: LaneId, sow_spec: KeySpec, topic: str
) -> Feed:
    feed = Feed(lane_id.feed, sow_spec, topic)
    # Only a window depends on earlier records: its rows move as others change.
    if isinstance(lane_id.feed.shape, Window):
        feed.seed(record for record in records if record.offset < first.offset)
    feed.board.head = first.offset - 1
    return feed
