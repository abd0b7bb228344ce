"""The lane of a plain interval: `pace=batch`, the newest of each key, from the board alone."""

from __future__ import annotations

from collections.abc import Sequence

from conflation.boards.board import Board
from conflation.boards.screen import Change
from conflation.duration import Instant
from conflation.frame import Batch, Frame, prefix_within
from conflation.lane_id import LaneId
from conflation.lanes.lane import Held, Lane, Pair, all_shown
from conflation.lanes.member import Member


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

    def ready(self, member: Member) -> bool:
        return member.position < self._let_go(member)

    def answer(self, member: Member) -> list[Frame]:
        return self._rows(member.position, None if self.id.oof else self._let_go(member))

    def pending(self, member: Member) -> list[Pair]:
        shown = self._shown
        rows = self.board.rows(member.position, oof=self.id.oof)
        due = [(board_key, row) for board_key, row in rows if row.offset > member.cut]
        return due if shown is None else [(board_key, shown(row)) for board_key, row in due]

    def held(self, board_key: str | None = None) -> list[Held]:
        oof = self.id.oof
        if board_key is None:
            rows = self.board.rows(self.position, oof=oof)
        else:
            row = self.board.told(board_key, self.position, oof=oof)
            rows = [] if row is None else [(board_key, row)]
        return [
            Held(known, 0, row.offset, self.deadline, row.payload, removed=row.removed)
            for known, row in rows
        ]

    def low_water(self) -> int:
        return self.position

    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        """In pieces; where removals are told, whole and up to now.

        Up to the lane's position it would leave out what changed since, and whoever is past a
        change that it was not told of holds something else than its position says.
        """
        rows = self.answer(member)
        since, position = member.position, self._let_go(member)
        low_water: int | None = max(position, member.cut)
        if self.id.oof:
            position = low_water = self.board.head
        elif (count := prefix_within(rows, bytes_max)) < len(rows):
            rows = rows[:count]
            position, low_water = rows[-1].offset, None
        batch = Batch(rows, since, position, low_water)
        return batch if member.knows(batch.frames) else self._own_terms(member, batch)

    def _let_go(self, member: Member) -> int:
        return max(self.position, member.released)

    def _rows(self, since: int, until: int | None) -> list[Frame]:
        rows = self.board.rows(since, until, oof=self.id.oof)
        return all_shown(self._shown, (row for _, row in rows))
