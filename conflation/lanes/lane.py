"""A lane: what equal subscriptions share. Encoded once, written to each member.

There are three kinds of lanes, and each counts positions in its own way:

    IntervalLane      an interval, answered by the board alone; positions are offsets
    StatefulLane      an interval with state in addition to the board; positions count flushes
    EveryMessageLane  `conflation=none`: every message in order; positions are offsets

`take` serves a member (`member.py`) from its position: the flush that all get, or rows of its own.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import ClassVar, NamedTuple, Self

import msgspec

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.frame import Batch, Frame, Row, sent_bytes
from tidegate.conflation.lanes.accumulate import Unreported
from tidegate.conflation.lanes.catch_up import CatchUpRows
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.operators.filter import Change
from tidegate.conflation.steps import Steps, in_steps
from tidegate.conflation.subscription import LaneId
from tidegate.keys.select import Select
from tidegate.keys.text.duration import Instant

COMBINING_COST = 30
"""What combining a message with others costs, as a number of filters that are tried on it."""


class HeldRow(NamedTuple):
    """A row that a lane holds of a key, as `explain` and traces show it.

    `first_offset` and `offset` are those of the first message and the newest, `messages` is their
    number if the lane counts them, `due` is when they go.
    """

    board_key: str
    first_offset: int
    offset: int
    due: Instant | None
    payload: bytes
    messages: int | None = None
    removed: bool = False


class Undelivered(NamedTuple):
    """What a member that leaves has not been sent: rows, and messages that no row reports.

    `counted` counts the values among the rows; None if only making them can tell.
    """

    steps: Steps[tuple[list[Pair], list[tuple[str, Unreported]]]]
    counted: Callable[[], int | None]


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
        self.examined = 0  # rows of the last flush, those included that are not sent
        self._shown = shown_as(lane_id.select)

    @property
    def message_cost(self) -> int:
        """What `accept` costs for a message, as a number of filters that are tried on it."""
        return 0

    @property
    def sees_every_message(self) -> bool:
        """True if `accept` is due for every publish; else only while the lane is idle."""
        return True

    @property
    def sends_in_pieces(self) -> bool:
        """True if the lane itself splits an answer that is too large for one take."""
        return False

    @abstractmethod
    def accept(self, changes: Sequence[Change], now: Instant) -> None:
        """Hold what members are to be sent of these changes of the board; arm the deadline."""

    @abstractmethod
    def flush(self, now: Instant) -> bool:
        """Flush what is due; return False if nothing is."""

    def flushed(self, since: int) -> Sequence[Frame]:
        """Return the rows of the last flush, which began at this position."""
        del since
        return () if self.batch is None else self.batch.frames

    def prepare(self, rows_max: int) -> bool:
        """Do a part of the work of the due flush; return True once the rest fits in one step."""
        del rows_max
        return True

    @abstractmethod
    def join(self, member: Member) -> None:
        """Place a new member at the head: it has everything published so far."""

    @abstractmethod
    def pending(self, member: Member) -> list[Pair]:
        """Return all that the member was not sent yet, held rows included, oldest first."""

    @abstractmethod
    def held(self, board_key: str | None = None) -> list[HeldRow]:
        """Return what is held, of one key or of all; this changes nothing."""

    def unreported(self, member: Member) -> list[tuple[str, Unreported]]:
        """Return, by row key, messages that no row reports unless their key comes again.

        A plain interval counts nothing, so it knows of none.
        """
        return []

    def undelivered(self, member: Member) -> Undelivered:
        """Return what a member that leaves now was not sent, made in steps."""
        return self._left(self.pending(member), self.unreported(member))

    def _left(
        self,
        rows: Sequence[Pair],
        unreported: list[tuple[str, Unreported]],
        shown: Callable[[Sequence[Pair]], list[Pair]] | None = None,
    ) -> Undelivered:
        """Return these rows as an `Undelivered`; `shown` selects their fields in steps."""

        def steps() -> Steps[tuple[list[Pair], list[tuple[str, Unreported]]]]:
            left = [*rows] if shown is None else (yield from in_steps(rows, shown))
            return left, unreported

        return Undelivered(steps(), lambda: sum(not row.removed for _, row in rows))

    @abstractmethod
    def low_water(self) -> int:
        """Return the offset at or below which the lane holds nothing."""

    def needs_board_since(self) -> int | None:
        """Return the offset after which the lane may still ask its board; None: it never does.

        Tombstones up to it can be dropped.
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
        # Only values are matched, so only values wait: the accounting identity counts no removals.
        return sum(not row.removed for _, row in self.pending(member))

    @abstractmethod
    def by_backlog(self) -> Iterable[Sequence[Member]]:
        """Group members that have the same backlog, so that it is counted once for each group."""

    def on(self, board: Board) -> Self:
        """Return a view of the lane and its members on another board, such as a preview."""
        if board is self.board:
            return self
        # A shallow copy is enough to be read.
        twin = copy.copy(self)
        twin.board = board
        return twin

    def queued(self, member: Member) -> tuple[int, int]:
        """Count the rows, and their bytes, that the member has not taken, held ones included."""
        rows = [row for _, row in self.pending(member)]
        return len(rows), sum(map(sent_bytes, rows))

    def unconflated(self, member: Member) -> Sequence[Frame]:
        """Return the messages of a member's queue that `conflate_queue` has not conflated yet."""
        return ()

    def conflate_queue(self, member: Member, rules: LaneId, through: int | None = None) -> None:
        """Conflate a member's queue by its topic's rules, all of it or up to an offset.

        Only a lane of every message has queues that it may conflate.
        """
        del member, rules, through

    def has_sent(self, member: Member, row: Frame) -> bool:
        """Return whether a member was sent a flushed row ahead of its turn."""
        return False

    def take(self, member: Member, bytes_max: int) -> Batch | None:
        """Return what the member gets next: the shared batch if it is in step, else its own.

        The caller splits an answer larger than `bytes_max`, unless the lane `sends_in_pieces`: it
        then sends rows that change meanwhile with their newest values.
        """
        if not self.ready(member):
            return None
        shared = self.batch
        # A large flush taken whole would fill a slow connection with values that are old when they
        # arrive.
        is_whole = not self.sends_in_pieces
        fits = shared is not None and (is_whole or shared.payload_bytes <= bytes_max)
        # The shared batch is encoded once for all members, other batches for one member.
        if shared is not None and fits and self.in_step(member, shared):
            is_for_all = member.accepts_shared(shared.frames)
            batch = shared if is_for_all else self._personalized(member, shared)
        else:
            batch = self._own_answer(member, bytes_max)
        member.position = batch.position
        member.delivered += batch.messages()
        # Last: the rows above depend on what the member was sent before them.
        member.record_sent(batch.frames)
        return batch

    def begin_catch_up(self, members: Collection[Member]) -> CatchUpRows | None:
        """Move members with equal progress to the lane's position; return their rows as a build.

        None, and nothing is moved, if the rows are so few that `take` returns them at once.
        """
        del members
        return None

    def may_join_cohort(self, member: Member) -> bool:
        """Return True if a member will get the same rows as all others at its position."""
        # A row that was released to this member alone is not part of the next flush.
        return member.is_plain and member.catch_up is None and member.released <= member.position

    def _personalized(self, member: Member, batch: Batch) -> Batch:
        rows = member.personalize(batch.frames)
        has_more = batch.has_more
        return Batch(rows, batch.since, batch.position, batch.low_water, has_more=has_more)

    @abstractmethod
    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        """Return the rows that a member is behind, oldest first, without the held ones."""


def grouped(
    members: Iterable[Member], kin_of: Callable[[Member], Hashable]
) -> Iterable[Sequence[Member]]:
    """Group members that have the same `kin_of`."""
    groups: dict[Hashable, list[Member]] = {}
    for member in members:
        groups.setdefault(kin_of(member), []).append(member)
    return groups.values()


def shown_as(select: Select | None) -> Callable[[Frame], Frame] | None:
    """Return how rows are shown, with the fields that were selected; None: as they are."""
    if select is None:
        return None

    def shown(frame: Frame) -> Frame:
        return msgspec.structs.replace(frame, payload=select.apply(frame.payload))

    return shown


def all_shown(shown: Callable[[Frame], Frame] | None, frames: Iterable[Frame]) -> list[Frame]:
    """Return rows as they are shown."""
    return list(frames) if shown is None else [shown(frame) for frame in frames]


def whole(frames: Iterable[Frame]) -> list[Frame]:
    """Return rows with their full values, for a member that does not hold the base of deltas."""
    return [frame.whole() if isinstance(frame, Row) else frame for frame in frames]
