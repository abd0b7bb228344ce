"""Which message was the first that a conflated row stands for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from conflation.board import Board
from conflation.frame import Frame


class Firsts:
    """Offsets of first messages: noted while a key is held, told with the row it became.

    A row is recognised by its newest offset. A key's last row is remembered until its next,
    for members that take it late.
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._last_row: dict[str, int] = {}
        self._first_of_row: dict[int, int] = {}

    def note(self, rows: Iterable[tuple[str, Frame]]) -> None:
        """Messages that are held: the first of each key counts."""
        for board_key, frame in rows:
            self._open.setdefault(board_key, frame.offset)

    def release(self, board_keys: Iterable[str], board: Board) -> None:
        """These keys are let go with the row that the board has now."""
        for board_key in board_keys:
            first = self._open.pop(board_key, None)
            row = board.get(board_key)
            if first is None or row is None:
                continue
            self._first_of_row.pop(self._last_row.pop(board_key, 0), None)
            if first != row.offset:
                self._last_row[board_key] = row.offset
                self._first_of_row[row.offset] = first

    def release_all(self, board: Board) -> None:
        """Everything that is held is let go."""
        self.release(list(self._open), board)

    def tell(self, rows: Sequence[Frame]) -> list[int]:
        """The first message of each row; its own offset where nothing was conflated."""
        return [self._first_of_row.get(row.offset, row.offset) for row in rows]
