"""The lane of `conflation=none`: every message, in order."""

from __future__ import annotations

from collections.abc import Sequence

from conflation.board import Board
from conflation.duration import Instant
from conflation.frame import Batch, Frame
from conflation.lane import Lane
from conflation.log import Log
from conflation.member import Member
from conflation.subscription import LaneId


class ListLane(Lane):
    """A list shared by its members, flushed as soon as the caller advances.

    A member that falls behind costs nothing: the list reaches back to the slowest one. When
    a queue overflows, `give_up` forgets the member's part of the list and remembers the
    position; from there the board answers (Diffusion's `conflate`). What the board keeps for
    it still counts towards the limits: `_kept_messages` is the most that it can be.
    """

    def __init__(self, lane_id: LaneId, board: Board, position: int) -> None:
        super().__init__(lane_id, board, position)
        self.log = Log()
        self._watch_messages: int | None = None
        self._watch_bytes = 0
        self._kept_messages = 0
        self._kept_bytes = 0

    def accept(self, rows: Sequence[tuple[str, Frame]], now: Instant) -> None:
        self.log.extend(frame for _, frame in rows)
        if self.deadline is None:
            self.deadline = now

    def flush(self, now: Instant) -> bool:
        self.deadline = None
        self._trim()
        frames = self.log.after(self.position)
        since, self.position = self.position, self.board.head
        self.batch = Batch(frames, since, self.position, self.position)
        return True

    def in_step(self, member: Member, batch: Batch) -> bool:
        return batch.since == member.position and member.conflated_to <= member.position

    def joining_position(self) -> int:
        return self.board.head

    def backlog(self, member: Member) -> list[Frame]:
        return self._rows(member, until=self.position)

    def waiting(self, member: Member) -> int:
        return self.queued(member)[0]

    def catch_up(self, member: Member) -> list[Frame]:
        rows = self._rows(member, until=self.board.head)
        member.position = self.board.head
        return rows

    def row_position(self, frame: Frame) -> int:
        return frame.offset

    def low_water(self) -> int:
        return self.position

    def queued(self, member: Member) -> tuple[int, int]:
        """Messages and payload bytes of a member's queue, what is not flushed yet included."""
        messages, size = self.log.backlog(max(member.position, member.conflated_to))
        kept = self._kept(member, until=member.conflated_to)
        return messages + len(kept), size + sum(len(frame.payload) for frame in kept)

    def watch(self, messages_max: int, bytes_max: int) -> None:
        """A member's share of its session's limits: shorter lists need no closer look."""
        if self._watch_messages is None:
            self._watch_messages, self._watch_bytes = messages_max, bytes_max
        self._watch_messages = min(self._watch_messages, messages_max)
        self._watch_bytes = min(self._watch_bytes, bytes_max)

    def may_overflow(self) -> bool:
        """Whether the list is long enough to be over any member's limits."""
        return self._watch_messages is not None and (
            len(self.log) + self._kept_messages > self._watch_messages
            or self.log.payload_bytes + self._kept_bytes > self._watch_bytes
        )

    def is_long(self) -> bool:
        """Whether the list is long enough to fill half of any member's queue."""
        return self._watch_messages is not None and (
            2 * (len(self.log) + self._kept_messages) > self._watch_messages
            or 2 * (self.log.payload_bytes + self._kept_bytes) > self._watch_bytes
        )

    def give_up(self, member: Member) -> None:
        """Conflate a member's whole queue: forget the list, remember the position."""
        member.conflated_to = self.board.head
        messages, size = self.queued(member)
        self._kept_messages = max(self._kept_messages, messages)
        self._kept_bytes = max(self._kept_bytes, size)

    def _rows(self, member: Member, until: int) -> list[Frame]:
        """What the board answers of a queue that was given up, then the list."""
        listed_after = max(member.position, member.conflated_to)
        return self._kept(member, until) + self.log.after(listed_after, until=until)

    def _kept(self, member: Member, until: int) -> list[Frame]:
        if member.conflated_to <= member.position:
            return []
        return self.board.changes(member.position, until=min(member.conflated_to, until))

    def _trim(self) -> None:
        """Forget the part of the list that no member will ask for."""
        members = self.members.values()
        listed_after = (max(member.position, member.conflated_to) for member in members)
        self.log.drop_through(min(listed_after, default=self.position))
        if all(member.conflated_to <= member.position for member in members):
            self._kept_messages = self._kept_bytes = 0
