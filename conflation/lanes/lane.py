"""A lane: what equal subscriptions share. Encoded once, written to each member.

Three kinds, one face. All count their own positions:

    BatchLane  an interval, answered by the board alone; positions are offsets
    SlotLane   an interval with state beside the board; positions count flushes
    ListLane   `conflation=none`: every message in order; positions are offsets
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import msgspec

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.frame import Batch, Frame, Receipt, Row, Tombstone, receipt_of, told_bytes
from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.accumulate import (
    Unreported,
    unreported_of,
)
from tidegate.conflation.lanes.pending import Backlog
from tidegate.conflation.operators.filter import Change
from tidegate.conflation.subscription import Subscription
from tidegate.keys.select import Select
from tidegate.keys.text.duration import Instant


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


class Held(NamedTuple):
    """A row that a lane holds of a key, to be looked at.

    `opened` and `offset` are the first message and the newest, `messages` is how many, if the lane
    counts them, `due` when they go.
    """

    board_key: str
    opened: int
    offset: int
    due: Instant | None
    payload: bytes
    messages: int | None = None
    removed: bool = False


class Lane(ABC):
    """Position, deadline and members; `flush` moves the position, members follow by taking."""

    def __init__(self, lane_id: LaneId, board: Board, position: int) -> None:
        self.id = lane_id
        self.board = board
        self.position = position
        self.deadline: Instant | None = None
        self.batch: Batch | None = None
        self.members: dict[tuple[str, str, str], Member] = {}
        self.joins = 0
        self._shown = shown_as(lane_id.select)

    @property
    def sees_every_message(self) -> bool:
        """Whether `accept` is due for every publish, or only while the lane is idle."""
        return True

    @property
    def cuts(self) -> bool:
        """Whether a member that cannot take an answer whole gets one of its own, in pieces."""
        return False

    @abstractmethod
    def accept(self, changes: Sequence[Change], now: Instant) -> None:
        """The board has changed: hold what is asked for, arm the deadline."""

    @abstractmethod
    def flush(self, now: Instant) -> bool:
        """Let go what is due; False if that was nothing."""

    @abstractmethod
    def join(self, member: Member) -> None:
        """Seat a member that has everything published so far."""

    @abstractmethod
    def pending(self, member: Member) -> list[Pair]:
        """All that the member has not got, held rows included, oldest first."""

    @abstractmethod
    def held(self, board_key: str | None = None) -> list[Held]:
        """What is not let go yet, of one key or of all; nothing changes by looking at it."""

    def unreported(self, member: Member) -> list[tuple[str, Unreported]]:
        """By row key, messages that the member will not be told of unless their key comes again.

        A plain interval counts nothing, so it knows of none.
        """
        return []

    def left_behind(self, member: Member) -> tuple[list[Pair], list[tuple[str, Unreported]]]:
        """What a member that leaves has not got, and what no row of that reports."""
        return self.pending(member), self.unreported(member)

    @abstractmethod
    def low_water(self) -> int:
        """The offset at or below which the lane holds nothing back."""

    def needs_board_since(self) -> int | None:
        """The offset from which on the lane may still ask its board; None: it never does."""
        return min((member.position for member in self.members.values()), default=None)

    def ready(self, member: Member) -> bool:
        """Whether a take would move the member."""
        return member.position < self.position

    def in_step(self, member: Member, batch: Batch) -> bool:
        """Whether the shared batch is exactly what the member gets next."""
        return batch.since == member.position

    def waiting(self, member: Member) -> int:
        """Values that the member will still get if nothing else is published."""
        return sum(not row.removed for _, row in self.pending(member))

    @abstractmethod
    def alike(self) -> Iterable[Sequence[Member]]:
        """Its members, together those for whom the same waits: a count of one is that of all."""

    def on(self, board: Board) -> Self:
        """The same lane with the same members, to be asked as if this were its board."""
        if board is self.board:
            return self
        twin = copy.copy(self)
        twin.board = board
        return twin

    def queued(self, member: Member) -> tuple[int, int]:
        """Rows and their bytes that the member has not taken, what is not flushed yet included."""
        rows = [row for _, row in self.pending(member)]
        return len(rows), sum(map(told_bytes, rows))

    def take(self, member: Member, bytes_max: int) -> Batch | None:
        """What the member gets next: the shared batch if it is in step, else its own answer.

        An answer larger than `bytes_max` is the caller's to send in pieces, unless the lane
        `cuts` it: rows that change meanwhile are then sent as they have become.
        """
        if not self.ready(member):
            return None
        shared = self.batch
        fits = shared is not None and (not self.cuts or shared.payload_bytes <= bytes_max)
        if shared is not None and fits and self.in_step(member, shared):
            batch = shared if member.knows(shared.frames) else self._own_terms(member, shared)
        else:
            batch = self._own_answer(member, bytes_max)
        member.position = batch.position
        member.delivered += batch.messages()
        member.note(batch.frames)
        return batch

    def _own_terms(self, member: Member, batch: Batch) -> Batch:
        rows = member.as_known(batch.frames)
        return Batch(rows, batch.since, batch.position, batch.low_water)

    @abstractmethod
    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        """What a member is behind by, oldest first; what the lane still holds is not in it."""


def grouped(
    members: Iterable[Member], kin_of: Callable[[Member], Hashable]
) -> Iterable[Sequence[Member]]:
    """Members by what makes them alike."""
    groups: dict[Hashable, list[Member]] = {}
    for member in members:
        groups.setdefault(kin_of(member), []).append(member)
    return groups.values()


def shown_as(select: Select | None) -> Callable[[Frame], Frame] | None:
    """How rows are shown: with the fields that were selected. None: as they are."""
    if select is None:
        return None

    def shown(frame: Frame) -> Frame:
        fields = {"payload": select.apply(frame.payload)}
        if isinstance(frame, Tombstone):
            fields["record"] = select.apply(frame.record) if frame.record else b""
        return msgspec.structs.replace(frame, **fields)

    return shown


def all_shown(shown: Callable[[Frame], Frame] | None, frames: Iterable[Frame]) -> list[Frame]:
    """Rows as they are shown."""
    return list(frames) if shown is None else [shown(frame) for frame in frames]


def whole(frames: Iterable[Frame]) -> list[Frame]:
    """Rows with their full values, for those who do not hold what a delta is against."""
    return [frame.whole() if isinstance(frame, Row) else frame for frame in frames]
