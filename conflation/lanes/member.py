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

from tidegate.conflation.boards.board import THE_RECORD
from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone, receipt_of
from tidegate.conflation.lanes.accumulate import (
    CombinedRow,
    Merges,
    Unreported,
    accumulator_of,
    unreported_of,
)
from tidegate.conflation.lanes.catch_up import CatchUp
from tidegate.conflation.lanes.part import PendingPart
from tidegate.conflation.lanes.pending import Pending, PendingKeys
from tidegate.conflation.subscription import LaneId, Subscription

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
            entry.newest = msgspec.structs.replace(entry.newest, patch=None)
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
class LaneProgress:
    """How far a member has got in its lane; the members of a cohort share it.

    Attributes:
        position: everything up to it is taken; in the lane's own count.
        delivered: live rows taken here.
        catch_up: what is sent where the member was behind an interval.
        unreported: by row key, messages that no row reports, as the key came and went; the
            key's next row stands for them. None if there are none, which is usual.
    """

    position: int = 0
    delivered: int = 0
    catch_up: CatchUp | None = None
    unreported: dict[str, Unreported] | None = None

    def copy(self) -> LaneProgress:
        """Return one that goes on from here by itself."""
        catch_up = None if self.catch_up is None else self.catch_up.copy()
        unreported = None if self.unreported is None else dict(self.unreported)
        return LaneProgress(self.position, self.delivered, catch_up, unreported)


@dataclass(slots=True, eq=False)
class Member:
    """One subscriber in its lane, and the rows that are kept for it alone.

    Attributes:
        progress: how far it has got, alone or with its cohort.
        cut: the offset of the join; nothing at or below it comes from the lane.
        joined: the feed's count of accepted messages at the join.
        passed: the feed's count of messages that it filtered out, at the join.
        joins: the lane's count of joins at its own.
        delivered_before: live rows taken, less those of the progress that it has now.
        conflated_to: its queue of every message was conflated up to this offset.
        owed: by row key, what the next row counts for messages that were given up; None if there
            are none, which is usual.
        backlog: the conflated queue itself, where the board cannot answer for it.
        released: rows up to this offset were released to it alone, when it changed lanes.
        sent: keys that it was sent; None for all. Without a snapshot it gets no removal of a key
            that it was never sent.
        based: keys whose base for deltas it holds; None for all.
    """

    name: str
    session: str
    subscription: Subscription
    progress: LaneProgress = field(default_factory=LaneProgress)
    cut: int = 0
    joined: int = 0
    passed: int = 0
    joins: int = 0
    delivered_before: int = 0
    conflated_to: int = 0
    released: int = 0
    owed: dict[str, Receipt] | None = None
    backlog: Backlog | None = None
    sent: set[str] | None = None
    based: set[str] | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """Session, subscription, topic: unique among the members of a lane."""
        return self.session, self.name, self.subscription.topic

    # --- Its progress

    @property
    def position(self) -> int:
        """Everything up to it has been taken; it counts as the lane counts."""
        return self.progress.position

    @position.setter
    def position(self, position: int) -> None:
        self.progress.position = position

    @property
    def delivered(self) -> int:
        """Live rows taken."""
        return self.delivered_before + self.progress.delivered

    @delivered.setter
    def delivered(self, rows: int) -> None:
        self.progress.delivered = rows - self.delivered_before

    @property
    def catch_up(self) -> CatchUp | None:
        """What it is sent where it was behind an interval."""
        return self.progress.catch_up

    @catch_up.setter
    def catch_up(self, catch_up: CatchUp | None) -> None:
        self.progress.catch_up = catch_up

    @property
    def is_midway(self) -> bool:
        """True while rows of a catch-up are left."""
        going = self.progress.catch_up
        return going is not None and not going.is_over

    @property
    def unreported(self) -> dict[str, Unreported] | None:
        """By row key, messages that no row reports: the key's next row stands for them."""
        return self.progress.unreported

    @unreported.setter
    def unreported(self, unreported: dict[str, Unreported] | None) -> None:
        self.progress.unreported = unreported

    def share_progress(self, progress: LaneProgress) -> None:
        """Share progress: from here on its position moves with those of others."""
        self.delivered_before = self.delivered - progress.delivered
        self.progress = progress

    def stand_alone(self) -> None:
        """Go on from the shared progress by itself."""
        self.progress = self.progress.copy()

    # --- What it was sent

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
