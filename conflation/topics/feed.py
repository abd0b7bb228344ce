"""A feed: one board of a topic with its operator, and the lanes that flush it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.conflation.boards.board import THE_RECORD, Board
from tidegate.conflation.frame import Frame, RestoredTopic, Tombstone
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.conflation.lanes.interval import IntervalLane
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.lanes.stateful import StatefulLane
from tidegate.conflation.operators.filter import (
    Change,
    FilterOperator,
    Move,
    Operator,
    as_published,
)
from tidegate.conflation.operators.group_by import GroupByOperator
from tidegate.conflation.operators.top_n import TopNOperator
from tidegate.conflation.subscription import FeedId, LaneId, Window
from tidegate.conflation.topics.watermarks import Place, Watermarks
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import Instant

FORGOTTEN_AT = 10_000
"""Keys of a board whose keys are no records; above it, those that no lane needs are forgotten."""
TOMBSTONES_MAX = 10_000
"""Tombstones of a board; above it, the older half is forgotten unless a lane needs it."""
EXEMPTS_MAX = 10_000
"""Replaced messages that a board keeps because they must not be conflated; above it, the older half
is forgotten unless a lane needs it."""
DEFERRED_MAX = 1_000
"""Messages whose rows a board may defer."""
DEFERRED_BYTES_MAX = 1_024
"""The mean size of a publish's messages above which no board defers them, as it holds them."""


class Feed:
    """Puts frames on its board, once for all lanes; a publish calls only lanes that listen.

    An `IntervalLane` listens only for the message that begins its interval; other lanes see every
    message.

    Attributes:
        accepted: rows that were put on the board.
        materializations: how often deferred rows were made.
        begun_at: values published to its topic before the feed was made.
        message_cost: what a message costs, as a number of filters that are tried on it.
        row_cost: what making a deferred row costs, in messages that are examined.
        topic: its topic's name.
        grown_messages, grown_bytes: upper bounds of what was added to any queue of its lanes.
    """

    def __init__(self, feed_id: FeedId, sow_spec: KeySpec, topic: str) -> None:
        self.id = feed_id
        self.topic = topic
        self.board = Board()
        self.lanes: dict[LaneId, Lane] = {}
        self.accepted = 0
        self.materializations = 0
        self.begun_at = 0
        self.watermarks = Watermarks()
        self.grown_messages = self.grown_bytes = 0
        self._operator = _operator(feed_id, sow_spec, topic, self.board)
        self._listening: dict[Lane, None] = {}  # not by id: hashing one costs ten lookups
        # Properties of all lanes, cached because every publish needs them.
        self._is_watched = False
        self._is_queued = False
        self.message_cost = self._operator.message_cost + feed_id.filter_cost
        self.row_cost = self._operator.row_cost
        self._tombstones_max, self._exempts_max = TOMBSTONES_MAX, EXEMPTS_MAX
        # Keys that are not those of records may be new for ever, such as the id of an order, and no
        # removal of a record removes them.
        self.forgets = feed_id.shape is None and feed_id.key_spec not in (sow_spec, KeySpec())
        self._keys_max = FORGOTTEN_AT
        self._checkpointed: int | None = None
        self._rows_left: int | None = None  # deferred rows that `materialize_some` has left

    # --- Beginning

    def seed(self, frames: Iterable[Frame]) -> None:
        """Put existing records on the board, oldest first; they do not count as accepted."""
        self.seed_part(frames)
        self.finish_seed()
        self.materialize()
        self.accepted = 0  # no subscriber was there to match them

    def seed_part(self, frames: Iterable[Frame]) -> None:
        """Give some of the existing records to the operator, oldest first, before `finish_seed`."""
        self._apply(self._operator.seed(frames))

    def finish_seed(self) -> None:
        """Put the rows on the board that depend on all existing records."""
        self._apply(self._operator.seeded())

    def restore(self, kept: RestoredTopic) -> None:
        """Restore a board of all records, and apply the later messages of the journal."""
        rows = ((record.key or THE_RECORD, record) for record in kept.records)
        self.board.restore(rows, kept.horizon, kept.exempt_through)
        self.seed(frame for frame in kept.journal if frame.offset > kept.through)
        self.board.head = kept.head

    def take_over(self, other: Feed) -> None:
        """Take over the state of another feed of the same id, without its lanes."""
        self.board.take_over(other.board)
        self.accepted, self.begun_at = other.accepted, other.begun_at
        self._operator = other._operator.copy_for(self.board)
        self.materialize_messages()  # a trace's copy shows what each message does

    # --- Messages

    def publish(
        self, frames: Sequence[Frame], now: Instant, *, has_removals: bool | None = None
    ) -> list[Lane]:
        """Put frames on the board; return the lanes whose deadline this armed.

        `has_removals`: whether any frame is one; None: not known, where no topic has checked.
        """
        if has_removals is None:
            has_removals = any(frame.removed for frame in frames)
        operator = self._operator
        if (values := operator.defer(frames, has_removals=has_removals)) is not None:
            armed = self._wake((), now) if values and self._listening else []
            if operator.deferred_messages > DEFERRED_MAX:
                # Twice as many as came in: so a board that is not read for long never has more of
                # them, and no publish makes the rows of all earlier ones.
                before = [(lane, lane.deadline) for lane in self.lanes.values()]
                self.materialize(2 * len(frames), now)
                # One that holds very many keys lets them go.
                armed += [lane for lane, deadline in before if lane.deadline != deadline]
            return armed
        row_of = None if self._is_watched or has_removals else operator.passing()
        if row_of is not None:
            # The common case at the least cost: each message is a row that no lane has to see.
            if row_of is as_published:
                self.board.put_all(frames)
            else:
                for frame in frames:
                    self.board.put(*row_of(frame))
            self.accepted += len(frames)
            if self._is_queued:
                self._grow(frames)
            self._trim()
            return self._wake((), now)
        changes = [change for frame in frames for change in self._apply(operator.moves(frame))]
        if self._is_queued:
            self._grow([change.frame for change in changes])
        self._trim()
        return self._wake(changes, now) if changes or not operator.is_materialized else []

    def set_checkpoint(self, offset: int) -> None:
        """Record that the board is stored up to an offset; later tombstones must be kept."""
        self._checkpointed = offset

    def grown_queues(self) -> list[Place]:
        """Return the queues that may have reached the next relevant level."""
        return self.watermarks.due(self.grown_messages, self.grown_bytes)

    # --- Deferred rows, which are made when the board is read

    def materialize(self, rows_max: int | None = None, now: Instant | None = None) -> None:
        """Make the deferred rows, or the first `rows_max` of them.

        `now` arms the deadlines of lanes; without it none comes nearer.
        """
        moves = self._operator.materialize(rows_max)
        if moves:
            self.materializations += 1  # a trace makes the rows at the same moment
            changes = self._apply(moves)
            self._trim()
            if self._is_watched:  # by lanes that defer messages, and know since when
                for lane in self.lanes.values():
                    if lane.sees_every_message:
                        lane.accept(changes, (lane.deadline or 0) if now is None else now)

    def materialize_some(self, rows_max: int | None) -> bool:
        """Make `rows_max` deferred rows, and as many as were added since the last call.

        So calls come to an end however much is published meanwhile. Return True if none is left.
        """
        if self._operator.is_materialized:
            self._rows_left = None
            return True
        if rows_max is not None:
            rows_max = max(1, rows_max // self.row_cost)
        deferred_rows = self._operator.deferred_rows
        known = deferred_rows if self._rows_left is None else min(deferred_rows, self._rows_left)
        left = 0 if rows_max is None else max(0, known - rows_max)
        self.materialize(deferred_rows - left if left else None)
        self._rows_left = left or None
        return not left

    def materialize_messages(self) -> None:
        """Make the rows of deferred messages; rows of groups stay deferred."""
        if self._operator.deferred_messages:
            self.materialize()

    @property
    def is_materialized(self) -> bool:
        """True if `materialize` would change nothing."""
        return self._operator.is_materialized

    @property
    def deferred_rows(self) -> int:
        """The number of deferred rows of groups, which nothing bounds."""
        return self._operator.deferred_rows

    def frames(self) -> list[Frame]:
        """Return the rows, of a window in its order, else the oldest first, tombstones included."""
        keys = self._operator.ordered()
        if keys is None:
            return self.board.frames()
        return [row for key in keys if (row := self.board.get(key)) is not None]

    def preview(self) -> tuple[int, Board]:
        """Return the count of accepted rows and the board as they will be after `materialize`.

        Deferred rows have no value in it: it is for counting.
        """
        if self._is_watched:
            # A lane that holds rows has to have them itself: no preview of a board shows them.
            self.materialize_messages()
        if self._operator.is_materialized:
            return self.accepted, self.board
        accepted, board = self.accepted, Board()
        board.take_over(self.board)
        for board_key, row in self._operator.preview():
            if isinstance(row, Tombstone):
                board.remove(board_key, row)
            else:
                board.put(board_key, row)
                accepted += 1
        return accepted, board

    def deferred_keys(self, offset: int) -> list[str]:
        """Return the board keys that a message has changed last, and whose rows are deferred."""
        return self._operator.deferred_keys(offset)

    @property
    def is_eager(self) -> bool:
        """True while rows that could be deferred are made with every message, as a lane needs."""
        return self._operator.is_eager

    def set_eager(self, *, eager: bool) -> None:
        """Defer rows or not, as another feed of the same id does."""
        self._operator.set_eager(eager=eager)

    def filtered_out(self, published: int, accepted: int) -> int:
        """Return how many of the published values the filter has kept out.

        Rows of windows and groups are no messages, so there it is 0.
        """
        return published - self.begun_at - accepted if self._operator.rows_are_messages else 0

    # --- Lanes

    def lane(self, lane_id: LaneId) -> Lane:
        """Return the lane of this id, made if this is its first member."""
        found = self.lanes.get(lane_id)
        if found is None:
            found = _new_lane(lane_id, self.board)
            self.lanes[lane_id] = found
            self._listening[found] = None
            self._lanes_changed()
        return found

    def adopt(self, lane: Lane) -> None:
        """Add a lane on this board that has run already."""
        self.lanes[lane.id] = lane
        if lane.sees_every_message or lane.deadline is None:
            self._listening[lane] = None
        self._lanes_changed()

    def listen(self, lane: Lane) -> None:
        """Let an idle lane listen again."""
        if lane.id in self.lanes:
            self._listening[lane] = None

    def flush(self, lane: Lane, now: Instant) -> int:
        """Flush a lane; return 1 plus the rows that this made and sent, or 0 if nothing was due."""
        before = self.accepted
        self.materialize()
        flushed = lane.flush(now)
        if self.forgets and len(self.board) > self._keys_max:
            self.forget()
        self.listen(lane)
        sent = 0 if lane.batch is None else len(lane.batch.frames)
        return 1 + self.accepted - before + sent if flushed else 0

    def forget(self) -> None:
        """Forget keys that no lane will ask for, on a board whose keys are no records."""
        self.board.forget_through(self._needed())
        # Twice what is needed, or each flush would search in vain.
        self._keys_max = max(FORGOTTEN_AT, 2 * len(self.board))

    def crowded_members(self, keys_max: int) -> list[Member]:
        """Return the members for which more than `keys_max` keys wait, if keys have no bound."""
        if not self.forgets or len(self.board) <= keys_max:
            return []
        self.forget()
        oldest = self.board.offset_of_newest(keys_max)
        lanes = [lane for lane in self.lanes.values() if lane.needs_board_since() is not None]
        return [it for lane in lanes for it in lane.members.values() if it.position < oldest]

    def drop_lane(self, lane: Lane) -> None:
        """Forget a lane without members."""
        assert not lane.members
        lane.deadline = None
        self.lanes.pop(lane.id, None)
        self._listening.pop(lane, None)
        self._lanes_changed()

    def _lanes_changed(self) -> None:
        self._is_queued = any(lane_id.queues for lane_id in self.lanes)
        watching = [lane.id for lane in self.lanes.values() if lane.sees_every_message]
        self._is_watched = bool(watching)
        lanes = sum(lane.message_cost for lane in self.lanes.values())
        self.message_cost = self._operator.message_cost + self.id.filter_cost + lanes
        self.materialize_messages()  # or new messages would be put before the deferred ones
        is_early = not all(lane_id.defers_messages for lane_id in watching)
        self._operator.set_eager(eager=is_early or self._is_queued)

    # --- Inside a publish

    def _apply(self, moves: Iterable[Move]) -> list[Change]:
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
        # A copy: a lane that needs only one message is removed below.
        for lane in list(self._listening):
            before = lane.deadline
            lane.accept(changes, now)
            # A deadline may also become earlier: `pace=key` and `flush_on` have one for each key.
            if lane.deadline != before:
                armed.append(lane)
            if not lane.sees_every_message:
                del self._listening[lane]
        return armed

    def _trim(self) -> None:
        """Let the board forget some of what no lane needs, if it keeps too much."""
        board = self.board
        if board.tombstones <= self._tombstones_max and board.exempts <= self._exempts_max:
            return
        needed = self._needed()  # by the lane that is furthest back
        if self._checkpointed is not None:
            # A removal forgotten before it is stored would bring the record back at the next start.
            needed = min(needed, self._checkpointed)
        # Later twice what could not be trimmed, or each publish would search it in vain.
        if board.tombstones > self._tombstones_max:
            board.trim_half(needed)
            self._tombstones_max = max(TOMBSTONES_MAX, 2 * board.tombstones)
        if board.exempts > self._exempts_max:
            board.trim_exempt_half(needed)
            self._exempts_max = max(EXEMPTS_MAX, 2 * board.exempts)

    def _needed(self) -> int:
        """Return the offset after which a lane may still need changes of the board."""
        places = (lane.needs_board_since() for lane in self.lanes.values())
        return min((place for place in places if place is not None), default=self.board.head)

    def _grow(self, frames: Sequence[Frame]) -> None:
        # An upper bound: a removal is sent with one of its two values.
        self.grown_messages += len(frames)
        self.grown_bytes += sum(
            max(len(frame.payload), len(frame.record))
            if isinstance(frame, Tombstone)
            else len(frame.payload)
            for frame in frames
        )


def _new_lane(lane_id: LaneId, board: Board) -> Lane:
    if lane_id.lists:
        return EveryMessageLane(lane_id, board)
    return IntervalLane(lane_id, board) if lane_id.asks_board else StatefulLane(lane_id, board)


def _operator(feed_id: FeedId, sow_spec: KeySpec, topic: str, board: Board) -> Operator:
    if feed_id.shape is None:
        return FilterOperator(feed_id, sow_spec, topic, board)
    # Windows and groups are made of records, whatever keys their own rows have.
    records = FilterOperator(FeedId(sow_spec, feed_id.filter), sow_spec, topic, board)
    if isinstance(feed_id.shape, Window):
        return TopNOperator(records, feed_id.shape)
    return GroupByOperator(records, feed_id.shape)
