"""A round: what a member behind is told before anyone asks again what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from conflation.boards.board import Board, Pair
from conflation.frame import Frame


@dataclass(slots=True, eq=False)
class Round:
    """The keys changed up to `position`, each once, in the order in which they had changed.

    Each with the value that is its newest when it is sent. Served in the order of last change
    alone, a key that never rests would never be reached on a line that is always full. `ahead`:
    the offsets beyond `position` that were sent thereby, so that the next round leaves them out.
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
