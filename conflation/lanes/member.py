"""A member: one subscription in its lane, with the rows that are kept for it alone.

A lane encodes a flush once and keeps no rows for those that are behind: they ask the board, or the
lane's flushes, from their position. Beside the position a member has only what makes its rows
differ from everybody's: what it was sent, what its next rows count, a catch-up on its way, and in
a conflated queue of every message a backlog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from tidegate.conflation.boards.board import THE_RECORD, Board, Pair
from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone, receipt_of
from tidegate.conflation.lanes.accumulate import (
    CombinedRow,
    Merges,
    Unreported,
    accumulator_of,
    unreported_of,
)
from tidegate.conflation.lanes.pending import Pending, PendingKeys, PendingPart
from tidegate.conflation.subscription import LaneId, Subscription


@dataclass(slots=True, eq=False)
class CatchUp:
    """The keys changed up to `position`, each once, in the order in which they had changed.

    Each has the value that is newest when it is sent. Sorted by last change alone, a key that
    never rests would never be reached on a line that is always full. `ahead` has the offsets
    beyond `position` that were sent: the next catch-up leaves them out. The next one waits for a
    flush: rows taken late belong to the flush that they missed. One that `appends` is a queue in
    publication order: a row that is replaced is left to the next catch-up.
    """

    rows: Sequence[Pair]
    position: int
    appends: bool = False
    sent: int = 0
    ahead: dict[str, int] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """True if all of it is sent."""
        return self.sent == len(self.rows)

    def take(self, board: Board, bytes_max: int) -> list[Frame]:
        """Return the next rows of about `bytes_max` payload bytes, at least one if any is left."""
        piece: list[Frame] = []
        for board_key, row in self.rows[self.sent :]:
            newest = _newest(board, board_key, row)
            # In publication order a replaced row would carry a later message at an earlier place:
            # it is left to the next catch-up, where its place is.
            if newest is row or not self.appends:
                bytes_max -= len(newest.payload)
                # One row goes whatever its size: without it a catch-up behind a large row would
                # never end.
                if bytes_max < 0 and piece:
                    break
                piece.append(newest)
                # Its change lies beyond `position`, so the next catch-up would find the same row
                # again.
                if newest is not row:
                    self.ahead[board_key] = newest.offset
            self.sent += 1
        return piece

    def rest(self, board: Board) -> list[Pair]:
        """Return the rows still to come, as they would be sent now."""
        now = [(known, row, _newest(board, known, row)) for known, row in self.rows[self.sent :]]
        return [(known, new) for known, row, new in now if new is row or not self.appends]


def _newest(board: Board, board_key: str, row: Frame) -> Frame:
    """Return the value that has taken a row's place, or the row itself."""
    # Where messages are exempt, one of them may lie between, and has to be sent as well.
    if row.removed or row.exempt or board.exempts:
        return row
    newest = board.row(board_key, row.offset)
    if newest is None or newest.exempt:
        return row
    return newest


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
        # An earlier delta would be applied to a base that the row in between has replaced.
        for entry in others:
            entry.parts[-1] = msgspec.structs.replace(entry.newest, patch=None)
        if others:
            part = msgspec.structs.replace(part, patch=None)
        self._entries.open(board_key, part, sealed=sealed)

    def _part(self, row: Frame, board_key: str, was_there: WasThere) -> PendingPart:
        # Without `oof` no removal is sent, and the board need not be asked if there was something
        # to remove.
        is_new = self._rules.oof and not was_there(board_key, row.offset - 1)
        count = receipt_of(row)
        if isinstance(row, Tombstone):
            counted = count if count.messages else None
            return PendingPart(0, row, counted, is_new=False, gone=row)
        patch = row.patch if isinstance(row, Row) else None
        accumulator = None if self._accumulate is None else self._accumulate(row.payload)
        # It covers every message that the row counts. Begun anew from the payload, a sum of sums
        # would be taken for one message.
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
        return entry.send_order if in_order else entry.newest.frame.offset

    def _row(self, entry: Pending) -> Frame | None:
        part = entry.whole()
        assert part is not None
        payload = part.frame.payload if part.accumulator is None else part.accumulator.payload()
        is_shorter = part.patch is not None and len(part.patch) < len(payload)
        patch = part.patch if is_shorter else None
        return part.row(payload, patch, self._rules, exempt=entry.sealed)


@dataclass(slots=True, eq=False)
class Member:
    """The place of one subscriber in its lane, and the rows that are kept for it alone.

    Attributes:
        position: everything up to it has been taken; it counts as the lane counts.
        cut: the offset of the join; nothing at or below it comes from the lane.
        joined: the feed's count of accepted messages at the join.
        passed: the feed's count of messages that it filtered out, at the join.
        joins: the lane's count of joins at its own.
        delivered: live rows taken.
        conflated_to: its queue of every message was conflated up to this offset.
        owed: by row key, what the next row counts beyond itself, for messages given up; like
            `unreported` None while there is nothing, as mostly.
        backlog: the conflated queue itself, where the board cannot answer for it.
        unreported: by row key, messages that no row reports, as the key came and went; the
            key's next row stands for them.
        released: rows up to this offset were let go to it alone, when it changed lanes.
        catch_up: what it is sent where it was behind an interval.
        sent: keys that it was sent; None for all. Without a snapshot, the removal of a key that
            it was never sent makes no sense.
        based: keys of which it holds the base of deltas; None for all.
    """

    name: str
    session: str
    subscription: Subscription
    position: int = 0
    cut: int = 0
    joined: int = 0
    passed: int = 0
    joins: int = 0
    delivered: int = 0
    conflated_to: int = 0
    released: int = 0
    catch_up: CatchUp | None = None
    owed: dict[str, Receipt] | None = None
    unreported: dict[str, Unreported] | None = None
    backlog: Backlog | None = None
    sent: set[str] | None = None
    based: set[str] | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """Session, subscription, topic: unique among the members of a lane."""
        return self.session, self.name, self.subscription.topic

    def remember(self) -> None:
        """Begin to note which keys it has been sent, where its rows depend on that."""
        subscription, lane_id = self.subscription, self.subscription.lane_id
        if subscription.command.queries:
            return  # with a snapshot it has everything
        # A client that resumes may hold any key from before, so every removal may concern it.
        if lane_id.oof and self.sent is None and subscription.resume is None:
            self.sent = set()
        if lane_id.delta and self.based is None:
            self.based = set()

    def drop_delta_base(self) -> None:
        """Forget what it holds: it is not the base of coming deltas, so values come first."""
        self.based = None
        self.remember()

    @property
    def is_plain(self) -> bool:
        """True if any row may go to it as it goes to all."""
        return self.sent is None and self.based is None and not self.unreported

    def knows(self, frames: Iterable[Frame]) -> bool:
        """Return True if rows may go to this member as they go to all."""
        # Cheapest first: this is asked for each member of a lane at each flush, and nearly all of
        # them have none of the three.
        unreported = self.unreported
        if unreported and any(frame.key in unreported for frame in frames):
            return False
        if self.sent is None and self.based is None:
            return True
        return all(self._own(frame) is frame for frame in frames)

    def as_known(self, frames: Iterable[Frame]) -> list[Frame]:
        """Return rows in terms of what this member has been sent, and note them as sent."""
        rows: list[Frame] = []
        for frame in frames:
            own = self._own(frame)
            if own is None:
                # The messages that this removal took away were matched, so a later row has to count
                # them.
                self.miss(frame.key, unreported_of(frame))
            else:
                rows.append(self._standing_for_unreported(own))
            self.note((frame,))
        return rows

    def owe(self, row_key: str, count: Receipt) -> None:
        """Remember messages that were given up; the key's next row counts them."""
        if self.owed is None:
            self.owed = {}
        self.owed[row_key] = count.after(self.owed.get(row_key))

    def miss(self, row_key: str, newer: Unreported | None) -> None:
        """Remember messages that no row reports; the key's next row counts them."""
        if newer is not None:
            if self.unreported is None:
                self.unreported = {}
            older = self.unreported.get(row_key)
            self.unreported[row_key] = newer if older is None else older.then(newer)

    def note(self, frames: Iterable[Frame]) -> None:
        """Note rows as sent."""
        for keys in (self.sent, self.based):
            if keys is not None:
                _note(keys, frames)

    def _standing_for_unreported(self, row: Frame) -> Frame:
        """Return the row, standing also for what no row of its key has reported.

        Not so an exempt row, which stands for itself, and one that a filter brought in, which
        stands for no message.
        """
        is_brought_in = not row.removed and not receipt_of(row).messages
        if not self.unreported or row.key not in self.unreported or row.exempt or is_brought_in:
            return row
        if self.unreported[row.key].count.first > row.offset:
            return row  # those messages came later than it
        return self.unreported.pop(row.key).on(row)

    def _own(self, frame: Frame) -> Frame | None:
        """Return the row for this member: no removal of what it never had, no delta of it."""
        if frame.removed:
            return frame if self.sent is None or frame.key in self.sent else None
        # A delta without its base makes a wrong record that nobody notices; a value never does.
        has_base = self.based is None or frame.key in self.based
        return frame if has_base or not isinstance(frame, Row) else frame.whole()


def _note(keys: set[str], frames: Iterable[Frame]) -> None:
    for frame in frames:
        if frame.removed:
            # With the record its base is gone as well: the next row of the key has to be a value.
            keys.discard(frame.key)
        else:
            keys.add(frame.key)
