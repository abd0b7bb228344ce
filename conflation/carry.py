"""What a subscription takes along when it moves to another lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from conflation.board import Board
from conflation.duration import Instant
from conflation.frame import Batch, Frame, prefix_within
from conflation.lane import Lane
from conflation.member import Member


@dataclass(slots=True, eq=False)
class Carry:
    """Rows that were held at the move, due at the earlier of the old and the new deadline.

    Until then the new lane serves the member, without ids: older rows are still to come. At
    the deadline everything that the member is owed goes together, the newest of each key.
    """

    held: Sequence[Frame]
    deadline: Instant | None
    rows: Sequence[Frame] = field(default=())
    low_water: int = 0

    def waiting(self, board: Board) -> int:
        """Rows still owed that no newer message has overtaken."""
        return len(self._newest(board)) if self.deadline is not None else len(self.rows)

    def release(self, board: Board, lane: Lane, member: Member) -> bool:
        """The deadline has come; False if everything was overtaken and sent by the lane."""
        rows = [*self._newest(board), *lane.catch_up(member)]
        self.let_go(sorted(rows, key=lambda frame: frame.offset), board.head)
        return bool(rows)

    def let_go(self, rows: Sequence[Frame], low_water: int) -> None:
        """These rows go as soon as the member takes; nothing older is owed then."""
        self.deadline, self.rows, self.low_water = None, rows, low_water

    def take(self, bytes_max: int) -> Batch | None:
        """Rows that are due, oldest first; the last piece has the id."""
        if not self.rows:
            return None
        rows = self.rows[: prefix_within(self.rows, bytes_max)]
        self.rows = self.rows[len(rows) :]
        low_water = None if self.rows else self.low_water
        return Batch(rows, rows[0].offset - 1, rows[-1].offset, low_water)

    def _newest(self, board: Board) -> list[Frame]:
        offsets = {frame.offset for frame in self.held}
        oldest = min(offsets, default=board.head + 1)
        return [frame for frame in board.changes(oldest - 1) if frame.offset in offsets]

    @property
    def over(self) -> bool:
        """Whether nothing is owed any more."""
        return self.deadline is None and not self.rows
