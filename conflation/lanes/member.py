"""A member: one subscription in its lane. It has a position and no queue.

A lane encodes a flush once and keeps no rows for those that are behind: they ask the board, or the
lane's flushes, from their position. Beside the position a member has only what makes its rows
differ from everybody's: what it was sent, what its next rows count, a catch-up on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.frame import Frame, Receipt, Row, receipt_of
from tidegate.conflation.lanes.accumulate import Unreported, unreported_of
from tidegate.conflation.lanes.backlog import Backlog
from tidegate.conflation.subscription import Subscription


@dataclass(slots=True, eq=False)
class CatchUp:
    """The keys changed up to `position`, each once, in the order in which they had changed.

    Each has the value that is newest when it is sent. Sorted by last change alone, a key that
    never rests would never be reached on a line that is always full. `ahead` has the offsets
    beyond `position` that were sent: the next catch-up leaves them out. The next one waits for a
    flush: rows taken late belong to the flush that they missed. One that `appends` is a queue in
    publication order: a row that is replaced is left to the next catch-up.
    """

    rows: Sequence[Pair]
    position: int
    appends: bool = False
    sent: int = 0
    ahead: dict[str, int] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """True if all of it is sent."""
        return self.sent == len(self.rows)

    def take(self, board: Board, bytes_max: int) -> list[Frame]:
        """Return the next rows of about `bytes_max` payload bytes, at least one if any is left."""
        piece: list[Frame] = []
        for board_key, row in self.rows[self.sent :]:
            newest = _newest(board, board_key, row)
            if newest is row or not self.appends:
                bytes_max -= len(newest.payload)
                if bytes_max < 0 and piece:
                    break
                piece.append(newest)
                if newest is not row:
                    self.ahead[board_key] = newest.offset
            self.sent += 1
        return piece

    def rest(self, board: Board) -> list[Pair]:
        """Return the rows still to come, as they would be sent now."""
        now = [(known, row, _newest(board, known, row)) for known, row in self.rows[self.sent :]]
        return [(known, new) for known, row, new in now if new is row or not self.appends]


def _newest(board: Board, board_key: str, row: Frame) -> Frame:
    """Return the value that has taken a row's place, or the row itself."""
    # Where messages are exempt, one of them may lie between, and has to be sent as well.
    if row.removed or row.exempt or board.exempts:
        return row
    newest = board.row(board_key, row.offset)
    if newest is None or newest.exempt:
        return row
    return newest


@dataclass(slots=True, eq=False)
class Member:
    """The place of one subscriber in its lane, and the rows that are kept for it alone.

    Attributes:
        position: everything up to it has been taken; it counts as the lane counts.
        cut: the offset of the join; nothing at or below it comes from the lane.
        joined: the feed's count of accepted messages at the join.
        passed: the feed's count of messages that it filtered out, at the join.
        joins: the lane's count of joins at its own.
        delivered: live rows taken.
        conflated_to: its queue of every message was conflated up to this offset.
        owed: by row key, what the next row counts beyond itself, for messages given up.
        backlog: the conflated queue itself, where the board cannot answer for it.
        unreported: by row key, messages that no row reports, as the key came and went; the
            key's next row stands for them.
        released: rows up to this offset were let go to it alone, when it changed lanes.
        catch_up: what it is sent where it was behind an interval.
        sent: keys that it was sent; None for all. Without a snapshot, the removal of a key that
            it was never sent makes no sense.
        based: keys of which it holds the base of deltas; None for all.
    """

    name: str
    session: str
    subscription: Subscription
    position: int = 0
    cut: int = 0
    joined: int = 0
    passed: int = 0
    joins: int = 0
    delivered: int = 0
    conflated_to: int = 0
    released: int = 0
    catch_up: CatchUp | None = None
    owed: dict[str, Receipt] = field(default_factory=dict)
    unreported: dict[str, Unreported] = field(default_factory=dict)
    backlog: Backlog | None = None
    sent: set[str] | None = None
    based: set[str] | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """Session, subscription, topic: what tells members apart."""
        return self.session, self.name, self.subscription.topic

    def remember(self) -> None:
        """Begin to note which keys it has been sent, where its rows depend on that."""
        subscription, lane_id = self.subscription, self.subscription.lane_id
        if subscription.command.queries:
            return  # with a snapshot it has everything
        if lane_id.oof and self.sent is None and subscription.resume is None:
            self.sent = set()
        if lane_id.delta and self.based is None:
            self.based = set()

    def drop_delta_base(self) -> None:
        """Forget what it holds: it is not the base of coming deltas, so values come first."""
        self.based = None
        self.remember()

    def knows(self, frames: Iterable[Frame]) -> bool:
        """Return True if rows may go to this member as they go to all."""
        if self.unreported and any(frame.key in self.unreported for frame in frames):
            return False
        if self.sent is None and self.based is None:
            return True
        return all(self._own(frame) is frame for frame in frames)

    def as_known(self, frames: Iterable[Frame]) -> list[Frame]:
        """Return rows in terms of what this member has been sent, and note them as sent."""
        rows: list[Frame] = []
        for frame in frames:
            own = self._own(frame)
            if own is None:
                self.miss(frame.key, unreported_of(frame))
            else:
                rows.append(self._standing_for_unreported(own))
            self.note((frame,))
        return rows

    def miss(self, row_key: str, newer: Unreported | None) -> None:
        """Remember messages that no row reports; the key's next row counts them."""
        if newer is not None:
            older = self.unreported.get(row_key)
            self.unreported[row_key] = newer if older is None else older.then(newer)

    def note(self, frames: Iterable[Frame]) -> None:
        """Note rows as sent."""
        for keys in (self.sent, self.based):
            if keys is not None:
                _note(keys, frames)

    def _standing_for_unreported(self, row: Frame) -> Frame:
        """Return the row, standing also for what no row of its key has reported.

        Not so an exempt row, which stands for itself, and one that a filter brought in, which
        stands for no message.
        """
        is_brought_in = not row.removed and not receipt_of(row).messages
        unreported = self.unreported.get(row.key)
        if unreported is None or row.exempt or is_brought_in:
            return row
        if unreported.count.first > row.offset:
            return row  # those messages came later than it
        return self.unreported.pop(row.key).on(row)

    def _own(self, frame: Frame) -> Frame | None:
        """Return the row for this member: no removal of what it never had, no delta of it."""
        if frame.removed:
            return frame if self.sent is None or frame.key in self.sent else None
        has_base = self.based is None or frame.key in self.based
        return frame if has_base or not isinstance(frame, Row) else frame.whole()


def _note(keys: set[str], frames: Iterable[Frame]) -> None:
    for frame in frames:
        if frame.removed:
            keys.discard(frame.key)
        else:
            keys.add(frame.key)
