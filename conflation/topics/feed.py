"""A feed: one board of a topic, and the lanes that ask it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame, RestoredTopic, Tombstone
from tidegate.conflation.lane_id import FeedId, LaneId, Window
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.conflation.lanes.interval import IntervalLane
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.lanes.stateful import StatefulLane
from tidegate.conflation.operators.filter import Change, FilterOperator, Move, Operator
from tidegate.conflation.operators.group_by import GroupByOperator
from tidegate.conflation.operators.top_n import TopNOperator
from tidegate.keys.projection import Projection
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import Instant

TOMBSTONES_MAX = 10_000
EXEMPTS_MAX = 10_000


class Feed:
    """Takes frames in, once for all its lanes; a publish wakes only lanes that listen.

    An `IntervalLane` listens for one message, the one that opens its interval; the others see
    every message. `grown_messages` and `grown_bytes` are at least what has come in for queues.
    `begun_at`: how many values its topic had been given when it was made.
    """

    def __init__(self, feed_id: FeedId, sow_spec: KeySpec, topic: str) -> None:
        self.id = feed_id
        self.board = Board()
        self.lanes: dict[LaneId, Lane] = {}
        self.accepted = 0
        self.settles = 0
        self.begun_at = 0
        self.watermarks = Watermarks()
        self.grown_messages = self.grown_bytes = 0
        self._screen = _screen(feed_id, sow_spec, topic, self.board)
        self._listening: dict[LaneId, Lane] = {}
        self._queued = False
        self._tombstones_max = TOMBSTONES_MAX
        self._checkpointed: int | None = None

    def seed(self, frames: Iterable[Frame]) -> None:
        """Take over what is there already, oldest first; it does not count as accepted."""
        for frame in frames:
            self._apply(self._screen.moves(frame))
        self.settle()
        self.accepted = 0

    def restore(self, kept: RestoredTopic) -> None:
        """Take over a board of all records, and what the journal says since."""
        assert isinstance(self._screen, FilterOperator), "records stand on a plain board"
        rows = map(self._screen.row_of, kept.records)
        self.board.restore(rows, kept.horizon, kept.exempt_through)
        self.seed(frame for frame in kept.journal if frame.offset > kept.through)
        self.board.head = kept.head

    def set_checkpoint(self, offset: int) -> None:
        """The board is kept as of this offset; what has left since is not forgotten untold."""
        self._checkpointed = offset

    def publish(self, frames: Sequence[Frame], now: Instant) -> list[Lane]:
        """Put frames on the board; returns the lanes whose deadline this armed."""
        operator = self._screen
        if (
            isinstance(operator, FilterOperator)
            and operator.lets_pass(frames)
            and not self._is_watched()
        ):
            self._put_all(frames, operator)
            if self._queued:
                self._grow(frames)
            return self._wake((), now)
        changes = [change for frame in frames for change in self._apply(operator.moves(frame))]
        if self._queued:
            self._grow([change.frame for change in changes])
        if self.board.tombstones > self._tombstones_max or self.board.exempts > EXEMPTS_MAX:
            self._trim()
        stirred = isinstance(operator, GroupByOperator) and operator.is_stirred
        return self._wake(changes, now) if changes or stirred else []

    def overgrown(self) -> list[Place]:
        """Whose queue may have reached a level that matters."""
        return self.watermarks.due(self.grown_messages, self.grown_bytes) if self.watermarks else []

    def settle(self) -> None:
        """Bring the board up to date, where that was put off until somebody asks."""
        moves = self._screen.settle()
        if moves:
            self.settles += 1
            self._apply(moves)

    @property
    def is_settled(self) -> bool:
        """Whether `settle` would change nothing."""
        return not (isinstance(self._screen, GroupByOperator) and self._screen.is_stirred)

    def preview(self) -> tuple[int, Board]:
        """How many rows have come in, and the board, as they will be once it has settled.

        For whoever counts: values of rows that are still to be made are not there.
        """
        if not isinstance(self._screen, GroupByOperator) or self.is_settled:
            return self.accepted, self.board
        accepted, board = self.accepted, Board()
        board.take_over(self.board)
        for board_key, row in self._screen.preview():
            if isinstance(row, Tombstone):
                board.remove(board_key, row)
            else:
                board.put(board_key, row)
                accepted += 1
        return accepted, board

    def filtered_out(self, published: int, accepted: int) -> int:
        """Of so many values published to the topic those that are no rows here.

        Rows of windows and groups are no messages: there nothing is passed over.
        """
        is_plain = isinstance(self._screen, FilterOperator)
        return published - self.begun_at - accepted if is_plain else 0

    def lane(self, lane_id: LaneId) -> Lane:
        """The lane of this id, made if this is its first member."""
        found = self.lanes.get(lane_id)
        if found is None:
            found = _new_lane(lane_id, self.board)
            self.lanes[lane_id] = self._listening[lane_id] = found
            self._lanes_changed()
        return found

    def take_over(self, other: Feed) -> None:
        """Stand where another feed of the same kind stands now, its lanes not included."""
        self.board.take_over(other.board)
        self.accepted, self.begun_at = other.accepted, other.begun_at
        if isinstance(self._screen, GroupByOperator) and isinstance(other._screen, GroupByOperator):
            self._screen.take_over(other._screen)

    @property
    def is_eager(self) -> bool:
        """Whether groups are made anew with every message: some lane looks at each of them."""
        return isinstance(self._screen, GroupByOperator) and self._screen.is_eager

    def set_eager(self, *, eager: bool) -> None:
        """Make groups as another feed of the same kind does."""
        if isinstance(self._screen, GroupByOperator):
            self._screen.is_eager = eager

    def stirred(self, offset: int) -> list[str]:
        """Groups that a message has changed, and whose rows are not made yet."""
        return self._screen.stirred(offset) if isinstance(self._screen, GroupByOperator) else []

    def adopt(self, lane: Lane) -> None:
        """A lane on this board that has run already."""
        self.lanes[lane.id] = lane
        if lane.sees_every_message or lane.deadline is None:
            self._listening[lane.id] = lane
        self._lanes_changed()

    def listen(self, lane: Lane) -> None:
        """A lane is idle again."""
        if lane.id in self.lanes:
            self._listening[lane.id] = lane

    def drop_lane(self, lane: Lane) -> None:
        """Forget a lane without members."""
        assert not lane.members
        lane.deadline = None
        self.lanes.pop(lane.id, None)
        self._listening.pop(lane.id, None)
        self._lanes_changed()

    def _is_watched(self) -> bool:
        """Whether a lane looks at every message."""
        return any(lane.sees_every_message for lane in self._listening.values())

    def _put_all(self, frames: Sequence[Frame], operator: FilterOperator) -> None:
        """The common case at the least cost: every message is a row, and nobody looks at it."""
        put, row_of = self.board.put, operator.row_of
        for frame in frames:
            put(*row_of(frame))
        self.accepted += len(frames)

    def _apply(self, moves: Sequence[Move]) -> list[Change]:
        changes: list[Change] = []
        board = self.board
        for board_key, frame in moves:
            if isinstance(frame, Tombstone):
                gone = board.remove(board_key, frame)
                if gone is not None:
                    changes.append(Change(board_key, gone, None))
            else:
                changes.append(Change(board_key, frame, board.put(board_key, frame)))
                self.accepted += 1
        return changes

    def _wake(self, changes: Sequence[Change], now: Instant) -> list[Lane]:
        armed: list[Lane] = []
        for lane in list(self._listening.values()):
            before = lane.deadline
            lane.accept(changes, now)
            if lane.deadline != before:
                armed.append(lane)
            if not lane.sees_every_message:
                del self._listening[lane.id]
        return armed

    def _trim(self) -> None:
        """Let the board forget what nobody needs: who stands furthest back is waited for."""
        places = [lane.needs_board_since() for lane in self.lanes.values()]
        places.append(self._checkpointed)
        needed = min((place for place in places if place is not None), default=self.board.head)
        if self.board.tombstones > self._tombstones_max:
            self.board.trim_half(needed)
            self._tombstones_max = max(TOMBSTONES_MAX, 2 * self.board.tombstones)
        self.board.trim_exempt(needed)

    def _grow(self, frames: Sequence[Frame]) -> None:
        self.grown_messages += len(frames)
        self.grown_bytes += sum(
            max(len(frame.payload), len(frame.record))
            if isinstance(frame, Tombstone)
            else len(frame.payload)
            for frame in frames
        )

    def _lanes_changed(self) -> None:
        self._queued = any(lane_id.queues for lane_id in self.lanes)
        if isinstance(self._screen, GroupByOperator):
            self._screen.is_eager = any(lane.sees_every_message for lane in self.lanes.values())


def _new_lane(lane_id: LaneId, board: Board) -> Lane:
    if lane_id.lists:
        return EveryMessageLane(lane_id, board)
    return IntervalLane(lane_id, board) if lane_id.asks_board else StatefulLane(lane_id, board)


def _screen(feed_id: FeedId, sow_spec: KeySpec, topic: str, board: Board) -> Operator:
    records = FeedId(sow_spec, feed_id.filter)
    if isinstance(feed_id.shape, Window):
        return TopNOperator(FilterOperator(records, sow_spec, topic, board), feed_id.shape)
    if isinstance(feed_id.shape, Projection):
        return GroupByOperator(FilterOperator(records, sow_spec, topic, board), feed_id.shape)
    return FilterOperator(feed_id, sow_spec, topic, board)


# --- Queue watermarks


Place = tuple[str, str, str]
"""Session, subscription and topic of a queue."""

_STALE_MAX = 64


@dataclass(slots=True, eq=False)
class Watermark:
    """The fill level of one queue; not set any more once it was reached, or set anew."""

    place: Place
    is_set: bool = True


_Entry = tuple[int, int, Watermark]


class Watermarks:
    """Queue watermarks of one feed: a publish looks at those that it may have crossed.

    Two heaps over what has come in so far, by messages and by bytes. A watermark that is set anew
    leaves its old entries behind, which are dropped when they come up or become too many.
    """

    def __init__(self) -> None:
        self._set: dict[Place, Watermark] = {}
        self._by_messages: list[_Entry] = []
        self._by_bytes: list[_Entry] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._set)

    def set(self, place: Place, messages: int, size: int) -> None:
        """Set where the feed has grown beyond so many messages, or bytes, in all."""
        self.clear(place)
        mark = self._set[place] = Watermark(place)
        self._by_messages = self._with(self._by_messages, (messages, next(self._order), mark))
        self._by_bytes = self._with(self._by_bytes, (size, next(self._order), mark))

    def clear(self, place: Place) -> None:
        """Clear a queue's watermark."""
        mark = self._set.pop(place, None)
        if mark is not None:
            mark.is_set = False

    def due(self, messages: int, size: int) -> list[Place]:
        """Return the queues whose watermark was crossed, and clear it."""
        crossed = self._crossed(self._by_messages, messages)
        return [*crossed, *self._crossed(self._by_bytes, size)]

    def _crossed(self, heap: list[_Entry], grown: int) -> list[Place]:
        places: list[Place] = []
        while heap and heap[0][0] < grown:
            mark = heappop(heap)[2]
            if mark.is_set:
                places.append(mark.place)
                self.clear(mark.place)
        return places

    def _with(self, heap: list[_Entry], entry: _Entry) -> list[_Entry]:
        heappush(heap, entry)
        if len(heap) > 2 * len(self._set) + _STALE_MAX:
            heap = [known for known in heap if known[2].is_set]
            heapify(heap)
        return heap
