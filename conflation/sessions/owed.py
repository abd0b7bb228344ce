"""What a subscription is owed beside its lane: a large answer in pieces, or what it left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conflation.boards.board import Board, Pair
from conflation.count import count_of
from conflation.frame import Batch, Frame, prefix_within, told_bytes
from conflation.lane_id import LaneId
from conflation.lanes.backlog import Backlog


@dataclass(slots=True, eq=False)
class Owed:
    """Rows kept as references, in the order in which they are told; the last piece has the id.

    A row that stands for no message is no delivery: what a change of filter brought in.
    """

    rows: Sequence[Pair]
    low_water: int | None
    sent: int = 0

    def take(self, bytes_max: int) -> tuple[Batch, int]:
        """The next piece, and how many deliveries are in it."""
        since = self.sent
        rows = [row for _, row in self.rows[since:]]
        rows = rows[: prefix_within(rows, bytes_max)]
        self.sent += len(rows)
        low_water = self.low_water if self.is_over else None
        return Batch(rows, since, self.sent, low_water), _deliveries(rows)

    def queued(self) -> tuple[int, int]:
        """Rows to come, and their bytes."""
        rest = self.rest()
        return len(rest), sum(told_bytes(row) for _, row in rest)

    def conflate(self, rules: LaneId, board: Board) -> None:
        """Put what is still to come together by a topic's rules."""
        backlog = Backlog(rules)
        backlog.absorb([row for _, row in self.rest()], board.held_at)
        self.rows, self.sent = [(row.key, row) for row in backlog.rows()], 0

    def waiting(self) -> int:
        """Deliveries to come."""
        return _deliveries(row for _, row in self.rest())

    def rest(self) -> Sequence[Pair]:
        """What is still to come."""
        return self.rows[self.sent :]

    @property
    def is_over(self) -> bool:
        """Whether all of it is out."""
        return self.sent == len(self.rows)


def _deliveries(rows: Iterable[Frame]) -> int:
    return sum(not row.removed and count_of(row).messages > 0 for row in rows)


def collapsed(pairs: Iterable[Pair]) -> list[Pair]:
    """Of each key the last row, in the order of last change, standing for the earlier ones too.

    The value before a removal stays: without it the removal would be of a key never sent. What
    is not to be conflated stays in its place.
    """
    kept: dict[tuple[str, str | int], Pair] = {}
    for board_key, row in pairs:
        if row.exempt:
            kept[board_key, row.offset] = board_key, row
            continue
        removed = kept.pop((board_key, "removed"), None)
        if row.removed:
            kept[board_key, "removed"] = board_key, row
            continue
        value = kept.pop((board_key, "value"), None)
        earlier = [pair[1] for pair in (value, removed) if pair is not None]
        kept[board_key, "value"] = board_key, _in_place(earlier, row)
    return list(kept.values())


def _in_place(earlier: Sequence[Frame], row: Frame) -> Frame:
    count = count_of(row)
    for older in reversed(earlier):
        count = count_of(older).then(count)
    return row if count == count_of(row) else count.on(row)
