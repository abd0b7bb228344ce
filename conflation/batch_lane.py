"""The lane of a plain interval: `pace=batch`, the newest of each key, from the board alone."""

from __future__ import annotations

from collections.abc import Sequence

from conflation.board import Board
from conflation.duration import Instant
from conflation.frame import Batch, Frame, prefix_within
from conflation.lane import Lane, Pair, all_shown
from conflation.lane_id import LaneId
from conflation.member import Member
from conflation.screen import Change


class BatchLane(Lane):
    """One interval for all keys: the first message of an idle lane opens it (CONTRACT 5.1)."""

    def __init__(self, lane_id: LaneId, board: Board) -> None:
        super().__init__(lane_id, board, position=board.head)

    @property
    def sees_every_message(self) -> bool:
        return False

    @property
    def cuts(self) -> bool:
        return not self.id.oof  # with removals only the whole is a position

    def accept(self, changes: Sequence[Change], now: Instant) -> None:
        if self.deadline is None:
            self.deadline = now + self.id.interval_ns

    def flush(self, now: Instant) -> bool:
        self.deadline = None
        since, self.position = self.position, self.board.head
        rows = self._rows(since, None)
        self.batch = Batch(rows, since, self.position, self.position)
        return self.position > since

    def join(self, member: Member) -> None:
        member.position = self.board.head

    def answer(self, member: Member) -> list[Frame]:
        return self._rows(member.position, self.position)

    def pending(self, member: Member) -> list[Pair]:
        rows = self.board.rows(member.position, oof=self.id.oof)
        return [(board_key, row) for board_key, row in rows if row.offset > member.cut]

    def low_water(self) -> int:
        return self.position

    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        rows = self.answer(member)
        count = prefix_within(rows, bytes_max)
        if self.id.oof:
            member.missed.update(self.board.superseded(member.position, self.position))
        if not self.cuts or count == len(rows):
            return super()._own_answer(member, bytes_max)
        position = rows[count - 1].offset
        return Batch(rows[:count], member.position, position, None)

    def _rows(self, since: int, until: int | None) -> list[Frame]:
        rows = self.board.rows(since, until, oof=self.id.oof)
        return all_shown(self._shown, (row for _, row in rows))
