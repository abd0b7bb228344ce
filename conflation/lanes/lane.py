"""A lane: what equal subscriptions share. Encoded once, written to each member.

There are three kinds of lanes, and each counts positions in its own way:

    IntervalLane      an interval, answered by the board alone; positions are offsets
    StatefulLane      an interval with state beside the board; positions count flushes
    EveryMessageLane  `conflation=none`: every message in order; positions are offsets

A member is one subscription in its lane: a position, no queue.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

import msgspec

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.frame import Batch, Frame, Receipt, Row, Tombstone, receipt_of, sent_bytes
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

    @property
    def is_plain(self) -> bool:
        """True if any row may go to it as it goes to all."""
        return self.sent is None and self.based is None and not self.unreported

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


class Held(NamedTuple):
    """A row that a lane holds of a key, for people who look at it.

    `opened` and `offset` are those of the first message and the newest, `messages` is their number
    if the lane counts them, `due` is when they go.
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

    counts_offsets: ClassVar[bool] = True
    """Positions are offsets of the topic, so one lane's position says something to another."""
    is_stateless: ClassVar[bool] = False
    """The board alone answers: a position is all there is to know of a member."""

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
        """True if `accept` is due for every publish; else only while the lane is idle."""
        return True

    @property
    def cuts(self) -> bool:
        """True if a member that cannot take an answer whole gets one of its own, in pieces."""
        return False

    @abstractmethod
    def accept(self, changes: Sequence[Change], now: Instant) -> None:
        """Take note of changes of the board: hold what members ask for, arm the deadline."""

    @abstractmethod
    def flush(self, now: Instant) -> bool:
        """Let what is due go; False if nothing was."""

    @abstractmethod
    def join(self, member: Member) -> None:
        """Place a new member at the head: it has everything published so far."""

    @abstractmethod
    def pending(self, member: Member) -> list[Pair]:
        """Return all that the member has not got, held rows included, oldest first."""

    @abstractmethod
    def held(self, board_key: str | None = None) -> list[Held]:
        """Return what is held, of one key or of all; looking changes nothing."""

    def unreported(self, member: Member) -> list[tuple[str, Unreported]]:
        """Return, by row key, messages that no row reports unless their key comes again.

        A plain interval counts nothing, so it knows of none.
        """
        return []

    def left_behind(self, member: Member) -> tuple[list[Pair], list[tuple[str, Unreported]]]:
        """Return what a member that leaves has not got, and what no row of that reports."""
        return self.pending(member), self.unreported(member)

    @abstractmethod
    def low_water(self) -> int:
        """Return the offset at or below which the lane holds nothing."""

    def needs_board_since(self) -> int | None:
        """Return the offset after which the lane may still ask its board; None: it never does.

        Tombstones behind it can be dropped.
        """
        return min((member.position for member in self.members.values()), default=None)

    def ready(self, member: Member) -> bool:
        """Return True if a take would move the member."""
        return member.position < self.position

    def in_step(self, member: Member, batch: Batch) -> bool:
        """Return True if the shared batch is exactly what the member gets next."""
        return batch.since == member.position

    def waiting(self, member: Member) -> int:
        """Count the values that the member will still get if nothing else is published."""
        return sum(not row.removed for _, row in self.pending(member))

    @abstractmethod
    def alike(self) -> Iterable[Sequence[Member]]:
        """Group members that have the same backlog, so that one can be counted for all."""

    def on(self, board: Board) -> Self:
        """Return the lane with its members on another board, to be asked what it would answer."""
        if board is self.board:
            return self
        # Shallow: a derived board's preview is asked, and nothing of the lane changes by that.
        twin = copy.copy(self)
        twin.board = board
        return twin

    def queued(self, member: Member) -> tuple[int, int]:
        """Count the rows, and their bytes, that the member has not taken, held ones included."""
        rows = [row for _, row in self.pending(member)]
        return len(rows), sum(map(sent_bytes, rows))

    def unconflated(self, member: Member) -> Sequence[Frame]:
        """Return the messages of a member's queue that `give_up` has not put together yet."""
        return ()

    def give_up(self, member: Member, rules: LaneId, through: int | None = None) -> None:
        """Conflate a member's queue by its topic's rules; only a list of messages has one to."""
        del member, rules, through

    def has_sent(self, member: Member, row: Frame) -> bool:
        """Return whether a member was sent a flushed row ahead of its turn."""
        return False

    def take(self, member: Member, bytes_max: int) -> Batch | None:
        """Return what the member gets next: the shared batch if it is in step, else its own.

        The caller sends an answer larger than `bytes_max` in pieces, unless the lane `cuts` it:
        rows that change meanwhile are then sent with their newest values.
        """
        if not self.ready(member):
            return None
        shared = self.batch
        fits = shared is not None and (not self.cuts or shared.payload_bytes <= bytes_max)
        # The shared batch is encoded once for all; a batch of its own costs an encoding.
        if shared is not None and fits and self.in_step(member, shared):
            batch = shared if member.knows(shared.frames) else self._own_terms(member, shared)
        else:
            batch = self._own_answer(member, bytes_max)
        member.position = batch.position
        member.delivered += batch.messages()
        member.note(batch.frames)
        return batch

    def goes_as_it_is(self, member: Member, batch: Batch) -> bool:
        """Return whether a member gets a flush as all do, and nothing more after it."""
        return (
            batch.position == self.position >= member.released
            and self.in_step(member, batch)
            and (member.is_plain or member.knows(batch.frames))
        )

    def _own_terms(self, member: Member, batch: Batch) -> Batch:
        rows = member.as_known(batch.frames)
        return Batch(rows, batch.since, batch.position, batch.low_water)

    @abstractmethod
    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        """Return the rows that a member is behind, oldest first, without what the lane holds."""


def grouped(
    members: Iterable[Member], kin_of: Callable[[Member], Hashable]
) -> Iterable[Sequence[Member]]:
    """Group members by what makes them alike."""
    groups: dict[Hashable, list[Member]] = {}
    for member in members:
        groups.setdefault(kin_of(member), []).append(member)
    return groups.values()


def shown_as(select: Select | None) -> Callable[[Frame], Frame] | None:
    """Return how rows are shown, with the fields that were selected; None: as they are."""
    if select is None:
        return None

    def shown(frame: Frame) -> Frame:
        fields = {"payload": select.apply(frame.payload)}
        if isinstance(frame, Tombstone):
            fields["record"] = select.apply(frame.record) if frame.record else b""
        return msgspec.structs.replace(frame, **fields)

    return shown


def all_shown(shown: Callable[[Frame], Frame] | None, frames: Iterable[Frame]) -> list[Frame]:
    """Return rows as they are shown."""
    return list(frames) if shown is None else [shown(frame) for frame in frames]


def whole(frames: Iterable[Frame]) -> list[Frame]:
    """Return rows with their full values, for a member that does not hold the base of deltas."""
    return [frame.whole() if isinstance(frame, Row) else frame for frame in frames]
