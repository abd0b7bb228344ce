"""What a subscription is owed beside its lane: a large answer in pieces, or what a move held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conflation.count import count_of
from conflation.duration import Instant
from conflation.frame import Batch, Frame, prefix_within
from conflation.lane import Pair


@dataclass(slots=True, eq=False)
class Owed:
    """Rows kept as references, oldest first; the last piece has the id.

    Each row stands beside whether it is a delivery: what a change of filter brought in is not.
    """

    rows: Sequence[tuple[Frame, bool]]
    low_water: int | None
    sent: int = 0

    def take(self, bytes_max: int) -> tuple[Batch, int]:
        """The next piece, and how many deliveries are in it."""
        since = self.sent
        rows = [row for row, _ in self.rows[since:]]
        rows = rows[: prefix_within(rows, bytes_max)]
        self.sent += len(rows)
        low_water = self.low_water if self.is_over else None
        return Batch(rows, since, self.sent, low_water), _deliveries(self.rows[since : self.sent])

    def waiting(self) -> int:
        """Deliveries to come."""
        return _deliveries(self.rows[self.sent :])

    def rest(self) -> Sequence[tuple[Frame, bool]]:
        """What is still to come."""
        return self.rows[self.sent :]

    @property
    def is_over(self) -> bool:
        """Whether all of it is out."""
        return self.sent == len(self.rows)


def _deliveries(rows: Sequence[tuple[Frame, bool]]) -> int:
    return sum(counts and not row.removed for row, counts in rows)


@dataclass(slots=True, eq=False)
class Carry:
    """What was held at a move to another lane, due at the earlier of the old and new deadline.

    Until then the member takes nothing; at the deadline everything that it is owed goes
    together, the newest of each key.
    """

    held: Sequence[Pair]
    deadline: Instant | None

    def together(self, later: Sequence[Pair]) -> list[Frame]:
        """With what the new lane has for the member since."""
        return [row for _, row in newest_of_each([*self.held, *later])]


def newest_of_each(pairs: Iterable[Pair]) -> list[Pair]:
    """The last row of each key, standing for the earlier ones too; exempt ones beside them."""
    newest: dict[str, Frame] = {}
    beside: list[Pair] = []
    for board_key, row in pairs:
        if row.exempt:
            beside.append((board_key, row))
            continue
        earlier = newest.pop(board_key, None)
        newest[board_key] = (
            row if earlier is None else count_of(earlier).then(count_of(row)).on(row)
        )
    return sorted([*beside, *newest.items()], key=lambda pair: pair[1].offset)
