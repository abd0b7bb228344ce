"""What a seat gets first: a snapshot, or what was missed since a bookmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, dropwhile

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.definition import QueuePolicy
from tidegate.conflation.frame import Batch, Frame, prefix_within, receipt_of, sent_bytes
from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.accumulate import CombinedRow, Unreported, unreported_of
from tidegate.conflation.lanes.lane import whole
from tidegate.conflation.lanes.pending import Backlog
from tidegate.conflation.operators.filter import matcher
from tidegate.conflation.outputs import GroupBegin, GroupEnd, Output, Resumed, Rows
from tidegate.conflation.subscription import BATCH_SIZE
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.recorded import Recording
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import MILLISECOND, SECOND, Instant
from tidegate.keys.text.rate import Rate

# What a subscription is owed beside its lane: a large answer in pieces, or what it left behind.


@dataclass(slots=True, eq=False)
class CatchUpRows:
    """Rows kept as references, in the order in which they are told; the last piece has the id.

    A row that stands for no message is no delivery: what a change of filter brought in.
    """

    rows: Sequence[Pair]
    low_water: int | None
    sent: int = 0

    def take(self, bytes_max: int) -> tuple[Batch, int]:
        """The next piece, and how many deliveries are in it."""
        since = self.sent
        rows = [row for _, row in self.rows[since:]]
        rows = rows[: prefix_within(rows, bytes_max)]
        self.sent += len(rows)
        low_water = self.low_water if self.is_over else None
        return Batch(rows, since, self.sent, low_water), _deliveries(rows)

    def queued(self) -> tuple[int, int]:
        """Rows to come, and their bytes."""
        rest = self.rest()
        return len(rest), sum(sent_bytes(row) for _, row in rest)

    def conflate(self, rules: LaneId, board: Board) -> list[tuple[str, Unreported]]:
        """Put what is still to come together by a topic's rules; return what no row reports."""
        backlog = Backlog(rules)
        backlog.absorb([row for _, row in self.rest()], board.held_at)
        unseen = backlog.take_unseen()
        self.rows, self.sent = [(row.key, row) for row in backlog.rows()], 0
        return unseen

    def waiting(self) -> int:
        """Deliveries to come."""
        return _deliveries(row for _, row in self.rest())

    def rest(self) -> Sequence[Pair]:
        """What is still to come."""
        return self.rows[self.sent :]

    @property
    def is_over(self) -> bool:
        """Whether all of it is out."""
        return self.sent == len(self.rows)


def _deliveries(rows: Iterable[Frame]) -> int:
    return sum(not row.removed and receipt_of(row).messages > 0 for row in rows)


def collapsed(pairs: Iterable[Pair]) -> list[Pair]:
    """Put rows of each key together, in the order of last change.

    Of values that replace one another the last remains and stands for the earlier ones too.
    Combined values are joined; those that do not combine (other rules, a merger that declines)
    all stay. The value before a removal stays: without it the removal would be of a key never
    sent. What is not to be conflated stays in its place.
    """
    kept = _Kept()
    for board_key, row in pairs:
        kept.add(board_key, row)
    return kept.pairs()


class _Kept:
    """Rows in their order, and for each key the places of those that another may join."""

    def __init__(self) -> None:
        self._rows: dict[int, Pair] = {}
        self._places: dict[str, list[int]] = {}
        self._next = count()

    def pairs(self) -> list[Pair]:
        """All rows."""
        return list(self._rows.values())

    def add(self, board_key: str, row: Frame) -> None:
        """Take in a row that is newer than all others."""
        if row.exempt:
            self._rows[next(self._next)] = board_key, row
        elif row.removed:
            self._add_removal(board_key, row)
        else:
            self._add_value(board_key, row)

    def _add_removal(self, board_key: str, row: Frame) -> None:
        older = self._removal(board_key)
        if older is not None:
            unreported = unreported_of(self._pop(board_key, older))
            row = row if unreported is None else unreported.on(row)
            values = self._places.get(board_key, [])
            if len(values) > 1:
                last = self._pop(board_key, values[-1])
                self._append(board_key, self._joined(board_key, last))
        self._append(board_key, row)

    def _add_value(self, board_key: str, row: Frame) -> None:
        removal = self._removal(board_key)
        if removal is not None:
            unreported = unreported_of(self._rows[removal][1])
            if unreported is not None and not unreported.fits(row):
                self._append(board_key, row)
                return
            self._pop(board_key, removal)
            row = row if unreported is None else unreported.on(row)
        self._append(board_key, self._joined(board_key, row))

    def _joined(self, board_key: str, row: Frame) -> Frame:
        """Put a value together with the newest one that it meets, unless a merger declines."""
        for place in reversed(self._places.get(board_key, [])):
            older = self._rows[place][1]
            if older.removed or not _meet(older, row):
                continue
            if not (isinstance(older, CombinedRow) and isinstance(row, CombinedRow)):
                return _stand_for(self._pop(board_key, place), row)
            joined = older.then(row)
            if joined is None:
                return row
            self._pop(board_key, place)
            return joined
        return row

    def _removal(self, board_key: str) -> int | None:
        places = self._places.get(board_key, [])
        return next((place for place in places if self._rows[place][1].removed), None)

    def _append(self, board_key: str, row: Frame) -> None:
        place = next(self._next)
        self._rows[place] = board_key, row
        self._places.setdefault(board_key, []).append(place)

    def _pop(self, board_key: str, place: int) -> Frame:
        self._places[board_key].remove(place)
        return self._rows.pop(place)[1]


def _meet(older: Frame, newer: Frame) -> bool:
    """Whether two values of a key may become one."""
    if isinstance(older, CombinedRow) and isinstance(newer, CombinedRow):
        return older.meets(newer)
    return not isinstance(older, CombinedRow) and not isinstance(newer, CombinedRow)


def _stand_for(older: Frame, newer: Frame) -> Frame:
    """The newer row, which stands for the older one too."""
    total = receipt_of(older).then(receipt_of(newer))
    return newer if total == receipt_of(newer) else total.on(newer)


# What was queued for a subscription that has ended: it goes before the end is told.


@dataclass(slots=True, eq=False)
class DrainedRows:
    """Rows that are still to come, counted in their topic's sums as they go."""

    name: str
    topic: Topic
    board: Board
    rules: LaneId
    owed: CatchUpRows
    sums: Counter[str]

    def take(self, bytes_max: int) -> Rows:
        """The next piece."""
        batch, delivered = self.owed.take(bytes_max)
        self._move(delivered, "delivered")
        return Rows(self.name, self.topic.name, self.topic.epoch, "publish", batch)

    def queued(self) -> tuple[int, int]:
        """Messages and bytes that count towards the session's limits."""
        return self.owed.queued()

    def conflate_idle(self) -> None:
        """By the topic's policy, now that the queue is full."""
        policy = self.topic.definition.policy
        if policy is QueuePolicy.UNSUBSCRIBE:
            self.drop("BACK_PRESSURE")
        elif policy is not QueuePolicy.OFF:
            before = self.owed.waiting()
            self.owed.conflate(self.rules, self.board)
            self._move(before - self.owed.waiting(), "conflated")

    def drop(self, reason: str) -> None:
        """Nobody will take it."""
        waiting = self.owed.waiting()
        self.owed.rows, self.owed.sent = (), 0
        self._move(waiting, "dropped")
        self.sums[f"dropped {reason}"] += waiting

    def _move(self, rows: int, to: str) -> None:
        self.sums["waiting"] -= rows
        self.sums[to] += rows


# A replay that begins before the journal does: what is older comes from an archive, in pieces.
#
# The engine says what it wants, as an event; the shell brings it when it has it.


@dataclass(slots=True, eq=False)
class HistoryReplay:
    """How far a replay has got in the archive, and what it holds of an open interval.

    `after`: up to here everything has come. `since_ms`: what is older at the beginning is no part
    of it. `asked`: the next piece is on its way.
    """

    after: int
    since_ms: int | None = None
    recording: Recording | None = None
    asked: bool = False

    @classmethod
    def of(
        cls, topic: Topic, lane_id: LaneId, after: int, since_ms: int | None = None
    ) -> HistoryReplay:
        """Of a replay behind an offset; an interval is measured over all its pieces."""
        feed = Feed(lane_id.feed, topic.definition.key_spec, topic.name)
        return cls(after, since_ms, Recording(feed, lane_id) if lane_id.interval_ns else None)

    def rows(self, topic: Topic, lane_id: LaneId, piece: Sequence[Frame]) -> Sequence[Frame]:
        """What the lane tells of the messages that follow."""
        self.after, self.asked = piece[-1].offset, False
        if self.since_ms is not None:
            since_ms = self.since_ms
            piece = list(dropwhile(lambda frame: frame.timestamp_ms < since_ms, piece))
            self.since_ms = None if piece else since_ms
        if self.recording is not None:
            return _told(self.recording.take(piece))
        return passing(topic, lane_id, piece)

    def rest(self, topic: Topic, lane_id: LaneId) -> Sequence[Frame]:
        """What it tells of the journal, which goes on here, and of what it still holds."""
        missed = topic.journal.after(self.after)
        rows = list(self.rows(topic, lane_id, missed)) if missed else []
        return rows if self.recording is None else rows + _told(self.recording.end())


def passing(topic: Topic, lane_id: LaneId, frames: Sequence[Frame]) -> list[Frame]:
    """Of messages, each to be told, those that are for the lane."""
    matches = matcher(lane_id.feed.filter, topic.name)
    return [
        frame
        for frame in frames
        if (lane_id.oof if frame.removed else matches is None or matches(frame.payload, frame.key))
    ]


def _told(flushes: Iterable[tuple[Instant, Sequence[Frame]]]) -> list[Frame]:
    return [row for _, rows in flushes for row in whole(rows)]


# The speed of a replay: messages or bytes a second, or a multiple of the recorded speed.


BURST_NS = SECOND
"""How far a replay that was held up may run ahead of its speed to make up for it."""


class Pacing:
    """Says when each row of a replay is due, one after the other."""

    def __init__(self, rate: Rate, now: Instant) -> None:
        self._rate = rate
        self._last: Instant = now
        self._before: Frame | None = None

    def due(self, row: Frame) -> Instant:
        """When this row may go, the one after that which went last; the first one at once."""
        return self._last if self._before is None else self._last + self._gap_ns(self._before, row)

    def went(self, row: Frame, now: Instant) -> None:
        """A row goes."""
        self._last = max(self.due(row), now - BURST_NS)
        self._before = row

    def _gap_ns(self, before: Frame, row: Frame) -> int:
        rate = self._rate
        if rate.messages_per_s is not None:
            gap_ns = SECOND // rate.messages_per_s
        elif rate.bytes_per_s is not None:
            gap_ns = len(before.payload) * SECOND // rate.bytes_per_s
        else:
            recorded_ns = max(0, row.timestamp_ms - before.timestamp_ms) * MILLISECOND
            gap_ns = int(recorded_ns / (rate.times or 1))
        return gap_ns if rate.max_gap_ns is None else min(gap_ns, rate.max_gap_ns)


@dataclass(slots=True, eq=False)
class Backfill:
    """Rows kept as references, an exact cut; pulled as the socket drains, never queued.

    In a group they are snapshot rows and replace what the client holds; else they continue
    from its bookmark. `pacing` holds a replay back: `deadline` is then when more may go. With a
    `past` further rows are to be brought; without an interval `cut` is then how far these go.
    """

    name: str
    topic: str
    epoch: str
    rows: Sequence[Frame]
    cut: int
    group: bool = False
    resumed: Resumed | None = None
    batch_size: int = BATCH_SIZE
    shown: Callable[[Frame], Frame] | None = None
    pacing: Pacing | None = None
    past: HistoryReplay | None = None
    deadline: Instant | None = None
    sent: int = 0
    begun: bool = False
    done: bool = False

    def take(self, bytes_max: int, now: Instant) -> list[Output]:
        """The next outputs, about `bytes_max` of payload; `done` once the last is out."""
        outputs = [] if self.begun else self._begin()
        self.begun = True
        rows = self._due(self.rows[self.sent : self.sent + self.batch_size], now)
        rows = rows[: prefix_within(rows, bytes_max)]
        self._went(rows, now)
        since, self.sent = self.sent, self.sent + len(rows)
        is_out = self.sent == len(self.rows)
        self.done = is_out and self.past is None
        if rows:
            low_water = self.cut if is_out and not self.group else None
            told = rows if self.shown is None else [self.shown(row) for row in rows]
            op = "snapshot" if self.group else "publish"
            batch = Batch(told, since, self.sent, low_water)
            outputs.append(Rows(self.name, self.topic, self.epoch, op, batch))
        if self.done and self.group:
            bookmark = str(Bookmark(self.epoch, self.cut))
            outputs.append(GroupEnd(self.name, self.topic, len(self.rows), bookmark))
        return outputs

    @property
    def wants_past(self) -> bool:
        """Whether all that has come from an archive is out, and nobody was asked for more."""
        return self.past is not None and not self.past.asked and self.sent == len(self.rows)

    def _begin(self) -> list[Output]:
        resumed = self.resumed
        if resumed is not None and not self.rows and not self.group and self.past is None:
            resumed = replace(resumed, bookmark=str(Bookmark(self.epoch, self.cut)))
        outputs: list[Output] = [resumed] if resumed is not None else []
        if self.group:
            outputs.append(GroupBegin(self.name, self.topic, len(self.rows)))
        return outputs

    def _due(self, rows: Sequence[Frame], now: Instant) -> Sequence[Frame]:
        """The first of these that may go; one at a time, as each depends on the one before."""
        self.deadline = None
        if self.pacing is None or not rows:
            return rows
        due = self.pacing.due(rows[0])
        if due > now:
            self.deadline = due
            return ()
        return rows[:1]

    def _went(self, rows: Sequence[Frame], now: Instant) -> None:
        if self.pacing is not None:
            for row in rows:
                self.pacing.went(row, now)
