"""A member: one subscription in its lane. A position instead of a queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.frame import Frame, Receipt, Row, receipt_of
from tidegate.conflation.lanes.backlog import Backlog
from tidegate.conflation.lanes.unreported import Unreported, unreported_of
from tidegate.conflation.subscription import Subscription

# A round: what a member behind is told before anyone asks again what has changed.


@dataclass(slots=True, eq=False)
class CatchUp:
    """The keys changed up to `position`, each once, in the order in which they had changed.

    Each with the value that is its newest when it is sent. Served in the order of last change
    alone, a key that never rests would never be reached on a line that is always full. `ahead`:
    the offsets beyond `position` that were sent thereby, so that the next round leaves them out.
    The next round waits for a flush: rows taken late belong to the flush that they missed.
    One that `appends` is a queue in publication order: what is replaced is left to the next round.
    """

    rows: Sequence[Pair]
    position: int
    appends: bool = False
    sent: int = 0
    ahead: dict[str, int] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether all of it is out."""
        return self.sent == len(self.rows)

    def take(self, board: Board, bytes_max: int) -> list[Frame]:
        """The next rows of about `bytes_max` payload bytes, one at least if there is one."""
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
        """What is still to come, as it would be sent now."""
        now = [(known, row, _newest(board, known, row)) for known, row in self.rows[self.sent :]]
        return [(known, new) for known, row, new in now if new is row or not self.appends]


def _newest(board: Board, board_key: str, row: Frame) -> Frame:
    """The value that has taken a row's place, unless one is between that is to be sent too."""
    if row.removed or row.exempt or board.exempts:
        return row
    newest = board.told(board_key, row.offset)
    if newest is None or newest.exempt:
        return row
    return newest


@dataclass(slots=True, eq=False)
class Member:
    """Where one subscriber stands.

    `position` counts as its lane counts: everything up to it has been taken. `cut` is the
    offset of the join: nothing at or below it comes from the lane. `joined` is the feed's count
    of accepted messages at the join, `passed` of those it passed over; `delivered` counts live
    rows; `joins` is the lane's count of joins. `conflated_to`: a backlog of every message was
    given up to this offset.
    What was given up of a queue stands in `owed`: what the next row of each key counts beyond
    itself; where its board cannot answer for it, the rows themselves stand in `backlog`.
    `unreported`: by the key of rows, messages that no row reports, as the key came and went; the
    key's next row stands for them.
    `released`: what was let go to it alone, up to this offset, when it came from another lane.
    `round`: where it was behind an interval, what it is told until it is asked for again.
    `sent` and `based`: the keys that it was sent, and those of which it holds the value that a
    delta is against. None stands for all, and where it does not matter: with a snapshot it has
    everything; without, the removal of a key never sent makes no sense.
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
    round: CatchUp | None = None
    owed: dict[str, Receipt] = field(default_factory=dict)
    unreported: dict[str, Unreported] = field(default_factory=dict)
    backlog: Backlog | None = None
    sent: set[str] | None = None
    based: set[str] | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """What tells members apart: session, subscription, topic."""
        return self.session, self.name, self.subscription.topic

    def remember(self) -> None:
        """Keep from now on what decides what it may be told."""
        subscription, lane_id = self.subscription, self.subscription.lane_id
        if subscription.command.queries:
            return
        if lane_id.oof and self.sent is None and subscription.resume is None:
            self.sent = set()
        if lane_id.delta and self.based is None:
            self.based = set()

    def drop_delta_base(self) -> None:
        """What it holds is not what its deltas will be against, unless it is told so."""
        self.based = None
        self.remember()

    def knows(self, frames: Iterable[Frame]) -> bool:
        """Whether rows may go to this member as they go to all."""
        if self.unreported and any(frame.key in self.unreported for frame in frames):
            return False
        if self.sent is None and self.based is None:
            return True
        return all(self._own(frame) is frame for frame in frames)

    def as_known(self, frames: Iterable[Frame]) -> list[Frame]:
        """The rows in terms of what this member has been sent, which they are from now on."""
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
        """These rows are sent."""
        for keys in (self.sent, self.based):
            if keys is not None:
                _note(keys, frames)

    def _standing_for_unreported(self, row: Frame) -> Frame:
        """The row with what no row of its key reported, unless it stands for itself or nothing."""
        is_brought_in = not row.removed and not receipt_of(row).messages
        unreported = self.unreported.get(row.key)
        if unreported is None or row.exempt or is_brought_in:
            return row
        if unreported.count.first > row.offset:
            return row  # it came later
        return self.unreported.pop(row.key).on(row)

    def _own(self, frame: Frame) -> Frame | None:
        """A row for this member: no removal of what it never had, no delta against it."""
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
