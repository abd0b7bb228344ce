"""Missed rows: those of members behind a stateful lane, made at once or in steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter

from tidegate.conflation.boards.board import Pair
from tidegate.conflation.frame import Frame
from tidegate.conflation.lanes.accumulate import Unreported, is_always_joined
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.lanes.pending import Pending, PendingKeys
from tidegate.conflation.steps import RowBuild, Steps, in_steps, items_at_once
from tidegate.conflation.subscription import LaneId


def in_send_order(entries: Iterable[Pending], rules: LaneId) -> list[Pending]:
    """Return entries in the order of sending.

    Where deltas follow, the newest value of a key has to be its last row, as their base.
    """
    ordered = sorted(entries, key=_SEND_ORDER)
    if not (rules.delta and rules.replaces):
        return ordered
    rows = Counter(entry.board_key for entry in ordered)

    def place(entry: Pending) -> int:
        is_alone = rows[entry.board_key] == 1
        return entry.send_order if is_alone else entry.newest.frame.offset

    return sorted(ordered, key=place)


_SEND_ORDER = attrgetter("send_order")

Unseen = list[tuple[str, Unreported]]
"""Messages of keys that came and went, by row key: no row reports them."""


@dataclass(slots=True, eq=False)
class MissedRows:
    """The entries that members with equal progress are behind, put together and made into rows.

    Attributes:
        rules: the lane's rules.
        members: the rows are made for the first one, and are equal for all.
        pieces: the entries as of the cut: what is flushed or joined later is not among them.
        make: returns the rows of some of the entries that were put together.
        unseen: returns the messages of keys that came and went among some entries.
    """

    rules: LaneId
    members: Sequence[Member]
    pieces: Sequence[list[Pending]]
    make: Callable[[PendingKeys, Sequence[Pending]], list[Pair]]
    unseen: Callable[[Iterable[Pending]], Unseen]
    _joins: int = field(init=False)  # in this lane: a member may be in another one by now
    _values: int | None = None

    def __post_init__(self) -> None:
        self._joins = self.members[0].joins

    def build(self) -> RowBuild:
        """Return the rows as they are made in steps."""
        keys: list[str] = []
        return RowBuild(self._all(keys), keys, self.count)

    def count(self) -> int | None:
        """Count the values among the rows; None if they have to be made to be counted."""
        if self._values is not None:
            return self._values
        return rows_counted(chain.from_iterable(self.pieces), self.rules, self._joins)

    def _all(self, keys: list[str]) -> Steps[Sequence[Frame]]:
        """Return the rows, and fill in `keys`."""
        first, spec = self.members[0], str(self.rules.feed.key_spec)
        rows = yield from self.rows()
        for member in self.members[1:]:  # making the rows changed nothing else of the first
            member.unreported = None if first.unreported is None else dict(first.unreported)
        keys += [f"{spec} {row.key}" for row in rows]
        self._made(sum(not row.removed for row in rows))
        return rows

    def rows(self) -> Steps[list[Frame]]:
        """Return the rows in the order of sending."""
        member = self.members[0]
        together, listed, unseen = yield from self._put_together()
        # These messages are older than any row of their key, so it can stand for them.
        for row_key, unreported in unseen:
            member.add_unreported(row_key, unreported)

        def rows_of(piece: Sequence[Pending]) -> list[Frame]:
            rows = [row for _, row in self.make(together, piece)]
            known = rows if member.accepts_shared(rows) else member.personalize(rows)
            member.record_sent(known)
            return known

        return (yield from in_steps(listed, rows_of))

    def left(self, empty: Unseen) -> Steps[tuple[list[Pair], Unseen]]:
        """Return the rows of a member that leaves, and the messages that none of them reports.

        The rows are in their shared form.
        """
        together, listed, unseen = yield from self._put_together()
        pairs = yield from in_steps(listed, partial(self.make, together))
        self._made(sum(not row.removed for _, row in pairs))
        return pairs, [*empty, *unseen]

    def _put_together(self) -> Steps[tuple[PendingKeys, list[Pending], Unseen]]:
        """Put the entries together; return them in order of sending, and what no row reports."""
        together, joins = PendingKeys(self.rules), self._joins
        are_many = sum(map(len, self.pieces)) > items_at_once()
        for flush in self.pieces:
            apart: set[Pending] = set()

            def absorb(piece: Sequence[Pending], apart: set[Pending] = apart) -> tuple[Frame, ...]:
                together.absorb(piece, joins, apart)
                return ()

            yield from in_steps(flush, absorb)
            if are_many:
                yield
        listed = together.listed()
        unseen = self.unseen(listed)
        return together, in_send_order(listed, self.rules), unseen

    def _made(self, values: int) -> None:
        """Record the number of values, and free the entries."""
        self._values, self.pieces = values, ()


def rows_counted(entries: Iterable[Pending], rules: LaneId, joins: int) -> int | None:
    """Count the rows of entries for a member that joined at `joins`; None if they must be made."""
    # This runs for each subscription that ends: mostly a key has one row, which need not be made.
    keys: set[str] = set()
    count = 0
    for entry in entries:
        newest = entry.newest
        oldest = entry.older[0] if entry.older else newest  # `entry.oldest` would be a call
        is_apart = entry.sealed or entry.suppressed or newest.gone is not None
        if is_apart or oldest.joins < joins:
            return None
        keys.add(entry.board_key)
        count += 1
    # Two entries stay apart if a merger declines, or if their lists are too long.
    may_part = rules.match is not None or (
        rules.merge is not None and not is_always_joined(rules.merge)
    )
    return None if may_part and count > len(keys) else len(keys)
