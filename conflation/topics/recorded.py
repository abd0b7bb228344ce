"""Conflation of recorded messages: an interval measured on the timeline of publication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from operator import attrgetter

from tidegate.conflation.frame import Frame, Row
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
    """Return what a lane would have let through, by the messages' own times.

    As in AMPS a fast replay with `1s` has one message per key and *recorded* second. The lane is
    the very one that serves live subscriptions, under a clock that shows the recorded time.
    """
    recording = Recording(Feed(lane_id.feed, sow_spec, topic), _unshown(lane_id))
    cost = lane_id.feed.record_cost
    rows = yield from in_steps(frames, lambda piece: _rows_of(recording.take(piece)), cost)
    for _, flushed in recording.end():
        rows += whole(flushed)
        if len(flushed) > FEW:
            yield
    if lane_id.oof:
        missed = MissedRemovals()
        missed.note(frames)
        rows += missed.besides(rows)
    return rows


class MissedRemovals:
    """The removals that a reader missed, besides those that a lane sends of a recording.

    A lane that begins with nothing sends none of a key that it has not sent before. The reader may
    have that key: it ignores a removal too many, and one too few would leave it a record that is
    gone.
    """

    def __init__(self) -> None:
        self._removed: dict[str, Frame] = {}

    def note(self, frames: Sequence[Frame]) -> None:
        """Note which records are gone after messages that follow."""
        for frame in frames:
            if frame.removed:
                self._removed[frame.key] = frame
            else:
                self._removed.pop(frame.key, None)

    def sent(self, rows: Sequence[Frame]) -> None:
        """Take note that the lane has sent rows."""
        for row in rows:
            removal = self._removed.get(row.key) if row.removed else None
            if removal is not None and removal.offset <= row.offset:
                del self._removed[row.key]

    def besides(self, rows: Sequence[Frame]) -> list[Frame]:
        """Return the removals that are not among the last rows of the lane, oldest first."""
        self.sent(rows)
        return sorted(self._removed.values(), key=attrgetter("offset"))


def passing(lane_id: LaneId, topic: str, frames: Sequence[Frame]) -> Steps[list[Frame]]:
    """Return the messages that a lane without an interval sends, each by itself."""
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
    """Yield when a lane of this feed lets recorded messages go, and the rows of each flush."""
    recording = Recording(feed, lane_id)
    yield from recording.take(frames)
    yield from recording.end()


class Recording:
    """A lane under a clock that shows recorded times; messages may come piece by piece."""

    def __init__(self, feed: Feed, lane_id: LaneId) -> None:
        self._feed = feed
        self._lane = feed.lane(lane_id)
        self._now: Instant = 0

    def take(self, frames: Sequence[Frame]) -> Iterator[tuple[Instant, Sequence[Frame]]]:
        """Take messages that follow; yield the flushes that are due until the last of them."""
        feed, lane = self._feed, self._lane
        together: list[Frame] = []
        for frame in frames:
            # Wall time may step back between two messages; the engine's clock never does.
            before, self._now = self._now, max(self._now, frame.timestamp_ms * MILLISECOND)
            # A lane that runs and looks at no message needs none until it is due: a publish of
            # many costs half of what it costs by itself for each.
            if together and (lane.deadline is None or lane.deadline <= self._now):
                feed.publish(together, before)
                together = []
            # What is due goes first: a flush at the message's very time does not have it.
            while lane.deadline is not None and lane.deadline <= self._now:
                yield lane.deadline, _flush(feed, lane)
            if lane.deadline is None or lane.sees_every_message:
                feed.publish([frame], self._now)
            else:
                together.append(frame)
        if together:
            feed.publish(together, self._now)

    def end(self) -> Iterator[tuple[Instant, Sequence[Frame]]]:
        """Yield the flushes of what is still held: nothing follows."""
        while self._lane.deadline is not None:
            yield self._lane.deadline, _flush(self._feed, self._lane)


def _unshown(lane_id: LaneId) -> LaneId:
    """Return a lane whose rows have all fields: a cursor selects those of each piece as it goes."""
    return replace(lane_id, select=None) if lane_id.asks_board else lane_id


def _flush(feed: Feed, lane: Lane) -> Sequence[Frame]:
    assert lane.deadline is not None
    since = lane.position
    return lane.flushed(since) if feed.flush(lane, lane.deadline) else ()


def _rows_of(flushes: Iterable[tuple[Instant, Sequence[Frame]]]) -> list[Frame]:
    # The client may not hold what a delta of the past is against, so rows go with full values.
    return [row for _, rows in flushes for row in whole(rows)]


# --- A replay that begins before the journal does: an archive supplies what is older, in pieces


class HistoryReplay:
    """How far a replay has got in an archive, and what it holds of an open interval.

    The engine does no I/O: it announces what it wants, and the gateway supplies it.

    Attributes:
        after: everything up to here was supplied.
        asked: the next piece is on its way.
        has_interval: rows depend on the pieces before; no piece by itself is an answer.
    """

    def __init__(
        self,
        lane_id: LaneId,
        sow_spec: KeySpec,
        topic: str,
        after: int,
        since_ms: int | None = None,
    ) -> None:
        """`since_ms`: leave out what is older, at the beginning."""
        self.after = after
        self.asked = False
        self.has_interval = bool(lane_id.interval_ns)
        self._lane_id = lane_id
        self._topic = topic
        self._since_ms = since_ms
        # One lane for all pieces: where a piece ends is chance, and must not be seen.
        feed = Feed(lane_id.feed, sow_spec, topic)
        self._recording = Recording(feed, _unshown(lane_id)) if self.has_interval else None
        self._removals = MissedRemovals() if lane_id.oof else None

    def rows(self, piece: Sequence[Frame]) -> Sequence[Frame]:
        """Return what the lane sends of the messages that follow."""
        self.after, self.asked = piece[-1].offset, False
        if self._since_ms is not None:
            since_ms = self._since_ms
            piece = list(dropwhile(lambda frame: frame.timestamp_ms < since_ms, piece))
            # From the first message that is young enough on all belong, whatever their times say.
            self._since_ms = None if piece else since_ms
        if self._recording is None:
            return finished(passing(self._lane_id, self._topic, piece))
        rows = _rows_of(self._recording.take(piece))
        if self._removals is not None:
            self._removals.note(piece)
            self._removals.sent(rows)
        return rows

    def rest(self, journal: Log) -> Sequence[Frame]:
        """Return what it sends of the journal, where the archive ends, and of what it holds."""
        missed = journal.after(self.after)
        rows = list(self.rows(missed)) if missed else []
        if self._recording is None:
            return rows
        last = _rows_of(self._recording.end())
        removals = [] if self._removals is None else self._removals.besides(last)
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
    """Replay messages through a lane of their own on their own timeline; None if no time passed.

    `records`, the state of the world after them, is what a window begins with, as far as it is
    older than the messages; the records that they replaced are not known any more.
    """
    if not frames:
        return None
    feed = _feed_before(frames[0], records, lane_id, sow_spec, topic)
    begun_ns = frames[0].timestamp_ms * MILLISECOND
    ended_ns = max(frame.timestamp_ms for frame in frames) * MILLISECOND
    rows = payload_bytes = 0
    for flushed_ns, flushed in recorded_flushes(feed, lane_id, frames):
        rows += len(flushed)
        payload_bytes += sum(map(_size, flushed))
        ended_ns = max(ended_ns, flushed_ns)
    return Estimate(rows, payload_bytes, ended_ns - begun_ns) if ended_ns > begun_ns else None


def _feed_before(
    first: Frame, records: Iterable[Frame], lane_id: LaneId, sow_spec: KeySpec, topic: str
) -> Feed:
    feed = Feed(lane_id.feed, sow_spec, topic)
    # A plain board needs no past: a lane flushes what changes. A window does: rows move in it.
    if isinstance(lane_id.feed.shape, Window):
        feed.seed(record for record in records if record.offset < first.offset)
    feed.board.head = first.offset - 1
    return feed


def _size(frame: Frame) -> int:
    patch = frame.patch if isinstance(frame, Row) else None
    return len(frame.payload if patch is None else patch)
