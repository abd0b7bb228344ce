"""A lane: what equal subscriptions share. Encoded once, written to each member.

Three kinds, one face. All count their own positions:

    BatchLane  an interval for all keys together (`pace=batch`); positions are offsets
    KeyLane    an interval for each key (`pace=key`); positions count flushed rows
    ListLane   `conflation=none`: every message in order; positions are offsets
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from conflation.board import Board
from conflation.duration import Instant
from conflation.firsts import Firsts
from conflation.frame import Batch, Frame, prefix_within
from conflation.member import Member
from conflation.subscription import LaneId


class Lane(ABC):
    """Position, deadline and members; `flush` moves the position, members follow by taking."""

    def __init__(self, lane_id: LaneId, board: Board, position: int) -> None:
        self.id = lane_id
        self.board = board
        self.position = position
        self.deadline: Instant | None = None
        self.batch: Batch | None = None
        self.members: dict[tuple[str, str], Member] = {}
        self.firsts: Firsts | None = None

    @property
    def sees_every_message(self) -> bool:
        """Whether `accept` is due for every publish, or only while the lane is idle."""
        return True

    @abstractmethod
    def accept(self, rows: Sequence[tuple[str, Frame]], now: Instant) -> None:
        """Rows (board key, frame) have been put on the board: hold them, arm the deadline."""

    @abstractmethod
    def flush(self, now: Instant) -> bool:
        """Let go what is due; False if that was nothing."""

    @abstractmethod
    def joining_position(self) -> int:
        """Where a member stands that has everything published so far."""

    @abstractmethod
    def backlog(self, member: Member) -> list[Frame]:
        """What a member is behind by, oldest first; what the lane still holds is not in it."""

    @abstractmethod
    def waiting(self, member: Member) -> int:
        """Rows that the member will still get if nothing else is published."""

    @abstractmethod
    def catch_up(self, member: Member) -> list[Frame]:
        """All that the member has not got, held rows included; it then stands at the head."""

    @abstractmethod
    def row_position(self, frame: Frame) -> int:
        """The position of a member that has taken a backlog up to this row."""

    @abstractmethod
    def low_water(self) -> int:
        """The offset at or below which the lane holds nothing back."""

    def tell_firsts(self) -> None:
        """From now on rows name the first message they stand for; a member asked for it."""
        if self.firsts is None:
            self.firsts = Firsts()

    def firsts_of(self, rows: Sequence[Frame]) -> list[int] | None:
        """The first message of each row, if the lane keeps count."""
        return None if self.firsts is None else self.firsts.tell(rows)

    def ready(self, member: Member) -> bool:
        """Whether a take would move the member."""
        return member.position < self.position

    def in_step(self, member: Member, batch: Batch) -> bool:
        """Whether the shared batch is exactly what the member gets next."""
        return batch.since == member.position

    def take(self, member: Member, bytes_max: int) -> Batch | None:
        """What the member gets next: the shared batch if it is in step, else its own answer.

        Its own answer comes in pieces of `bytes_max`; every piece is a position, so rows that
        change meanwhile move out of the backlog instead of being sent stale.
        """
        if not self.ready(member):
            return None
        shared = self.batch
        if (
            shared is not None
            and self.in_step(member, shared)
            and shared.payload_bytes <= bytes_max
        ):
            batch = shared
        else:
            batch = self._own_answer(member, bytes_max)
        member.position = batch.position
        member.delivered += len(batch.frames)
        return batch

    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        frames = self.backlog(member)
        count = prefix_within(frames, bytes_max)
        if count == len(frames):
            position, low_water = self.position, max(self.low_water(), member.cut)
        else:
            frames = frames[:count]
            position, low_water = self.row_position(frames[-1]), None
        return Batch(frames, member.position, position, low_water, self.firsts_of(frames))


class BatchLane(Lane):
    """One interval for all keys: the first message of an idle lane opens it (CONTRACT 5.1)."""

    @property
    def sees_every_message(self) -> bool:
        return self.firsts is not None

    def accept(self, rows: Sequence[tuple[str, Frame]], now: Instant) -> None:
        if self.firsts is not None:
            self.firsts.note(rows)
        if self.deadline is None:
            self.deadline = now + self.id.interval_ns

    def flush(self, now: Instant) -> bool:
        self.deadline = None
        frames = self.board.changes(self.position)
        if self.firsts is not None:
            self.firsts.release_all(self.board)
        since, self.position = self.position, self.board.head
        self.batch = Batch(frames, since, self.position, self.position, self.firsts_of(frames))
        return True

    def joining_position(self) -> int:
        return self.board.head

    def backlog(self, member: Member) -> list[Frame]:
        return self.board.changes(member.position, until=self.position)

    def waiting(self, member: Member) -> int:
        return len(self.board.changes(member.position))

    def catch_up(self, member: Member) -> list[Frame]:
        rows = self.board.changes(member.position)
        member.position = self.board.head
        return rows

    def row_position(self, frame: Frame) -> int:
        return frame.offset

    def low_water(self) -> int:
        return self.position
