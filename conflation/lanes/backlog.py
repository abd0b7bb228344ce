"""The backlog: one member's queue of every message, conflated, where no board can answer for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from tidegate.conflation.boards.board import THE_RECORD
from tidegate.conflation.frame import Frame, Row, Tombstone, receipt_of
from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.accumulate import (
    CombinedRow,
    Merges,
    Unreported,
    accumulator_of,
)
from tidegate.conflation.lanes.pending import Pending, PendingKeys, PendingPart

WasThere = Callable[[str, int], bool]
"""`(board_key, offset)`: True if the key was on the board then."""


class Backlog:
    """One member's queue of every message, conflated, where no board can answer for it.

    It has one value or one composite delta for each key, the shorter of the two, as in Diffusion
    on back pressure. Rows come in the order of sending and leave at the old end. `rules` are the
    topic's: what merges, what may not conflate, which message keeps its place.
    """

    def __init__(self, rules: LaneId, merges: Merges | None = None) -> None:
        """Begin empty; `merges` are the answers of the rules' merger for other queues."""
        self._rules = rules
        self._entries = PendingKeys(rules)
        self._accumulate = accumulator_of(rules.merge, merges)
        self._rows: list[tuple[Pending, Frame]] | None = None

    def take_unseen(self) -> list[tuple[str, Unreported]]:
        """Take out the messages of keys that came and went, by row key: no row reports them."""
        unseen = [entry for entry in self._entries.all() if entry.newest.is_unseen]
        for entry in unseen:
            self._entries.take(entry)
        parts = [(entry.newest, entry.newest.count) for entry in unseen]
        merge = self._rules.merge
        return [
            (
                part.frame.key,
                Unreported(count, merge, part.accumulator and part.accumulator.unreported()),
            )
            for part, count in parts
            if count is not None
        ]

    def absorb(self, rows: Iterable[Frame], was_there: WasThere) -> None:
        """Add rows that came after everything that is here."""
        for row in rows:
            board_key = row.key if self._rules.feed.key_spec else THE_RECORD
            part = self._part(row, board_key, was_there)
            if self._entries.merge(board_key, part, sealed=row.exempt) is None:
                self._open(board_key, part, sealed=row.exempt)
        self._rows = None

    def rows(self) -> Sequence[Frame]:
        """Return what is here, in the order of sending."""
        return [row for _, row in self._ordered()]

    def took(self, count: int) -> None:
        """Drop this many of the first rows: they are sent."""
        ordered = self._ordered()
        for entry, _ in ordered[:count]:
            self._entries.take(entry)
        self._rows = ordered[count:]

    def _open(self, board_key: str, part: PendingPart, *, sealed: bool) -> None:
        """Open an entry; beside another of its key a delta has no base, so values go."""
        others = self._entries.of_key(board_key)
        for entry in others:
            entry.parts[-1] = msgspec.structs.replace(entry.newest, patch=None)
        if others:
            part = msgspec.structs.replace(part, patch=None)
        self._entries.open(board_key, part, sealed=sealed)

    def _part(self, row: Frame, board_key: str, was_there: WasThere) -> PendingPart:
        is_new = self._rules.oof and not was_there(board_key, row.offset - 1)
        count = receipt_of(row)
        if isinstance(row, Tombstone):
            counted = count if count.messages else None
            return PendingPart(0, row, counted, is_new=False, gone=row)
        patch = row.patch if isinstance(row, Row) else None
        accumulator = None if self._accumulate is None else self._accumulate(row.payload)
        if isinstance(row, CombinedRow) and row.rules.merge == self._rules.merge:
            accumulator = row.accumulator
        return PendingPart(0, row, count, is_new=is_new, patch=patch, accumulator=accumulator)

    def _ordered(self) -> list[tuple[Pending, Frame]]:
        if self._rows is None:
            # Kept until the next change: a large queue is asked for its first rows many times.
            self._rows = [
                (entry, row)
                for entry in sorted(self._entries.all(), key=self._place)
                if (row := self._row(entry)) is not None
            ]
        return self._rows

    def _place(self, entry: Pending) -> int:
        """Return the place of an entry.

        Where deltas follow, the newest value of a key has to be its last row: their base.
        """
        in_order = not self._rules.delta or len(self._entries.of_key(entry.board_key)) == 1
        return entry.order if in_order else entry.newest.frame.offset

    def _row(self, entry: Pending) -> Frame | None:
        part = entry.whole()
        assert part is not None
        payload = part.frame.payload if part.accumulator is None else part.accumulator.payload()
        is_shorter = part.patch is not None and len(part.patch) < len(payload)
        patch = part.patch if is_shorter else None
        return part.row(payload, patch, self._rules, exempt=entry.sealed)
