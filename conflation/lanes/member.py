"""A member: one subscription in its lane, with the rows that are kept for it alone.

A lane encodes a flush once, and keeps no rows for members that are behind: their rows are read from
the board or the lane's flushes, from their position. Apart from the position a member has only what
makes its rows differ from those of others: the keys it was sent, what its next rows count, a
catch-up under way, and for a conflated queue of every message a backlog.
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
    """One member's queue of every message, conflated, where the board does not have its rows.

    It has one value or one composite delta for each key, the shorter of the two, as in Diffusion
    on back pressure. Rows come in the order of sending and leave at the old end. `rules` are the
    topic's: what merges, what may not conflate, which message keeps its place.
    """

    def __init__(self, rules: LaneId, merges: Merges | None = None) -> None:
        """Begin empty; `merges`: answers of the rules' merger, shared with other queues."""
        self._rules = rules
        self._entries = PendingKeys(rules)
        self._accumulate = accumulator_of(rules.merge, merges)
        self._rows: list[tuple[Pending, Frame]] | None = None

    def pop_unseen(self) -> list[tuple[str, Unreported]]:
        """Remove and return the messages of keys that came and went, by row key.

        No row reports them.
        """
        unseen = [entry for entry in self._entries.all() if entry.newest.is_unseen]
        for entry in unseen:
            self._entries.remove(entry)
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
        """Add rows that are newer than all others."""
        for row in rows:
            board_key = row.key if self._rules.feed.key_spec else THE_RECORD
            part = self._part(row, board_key, was_there)
            if self._entries.merge(board_key, part, sealed=row.exempt) is None:
                self._open(board_key, part, sealed=row.exempt)
        self._rows = None

    def rows(self) -> Sequence[Frame]:
        """Return all rows, in the order of sending."""
        return [row for _, row in self._ordered()]

    def drop_sent(self, count: int) -> None:
        """Drop the first `count` rows, which were sent."""
        ordered = self._ordered()
        for entry, _ in ordered[:count]:
            self._entries.remove(entry)
        self._rows = ordered[count:]

    def _open(self, board_key: str, part: PendingPart, *, sealed: bool) -> None:
        """Open an entry; if the key has others, all of them are sent as values."""
        others = self._entries.of_key(board_key)
        # A delta would be applied to a base that another row of the key has replaced.
        for entry in others:
            entry.newest = msgspec.structs.replace(entry.newest, patch=None)
        if others:
            part = msgspec.structs.replace(part, patch=None)
        self._entries.open(board_key, part, sealed=sealed)

    def _part(self, row: Frame, board_key: str, was_there: WasThere) -> PendingPart:
        # Whether the key was on the board matters only for removals, which `oof` sends.
        is_new = self._rules.oof and not was_there(board_key, row.offset - 1)
        count = receipt_of(row)
        if isinstance(row, Tombstone):
            counted = count if count.messages else None
            return PendingPart(0, row, counted, is_new=False, gone=row)
        patch = row.patch if isinstance(row, Row) else None
        accumulator = None if self._accumulate is None else self._accumulate(row.payload)
        # The row's own accumulator covers every message that it counts. One of the payload would
        # take a sum of sums for one message.
        if isinstance(row, CombinedRow) and row.rules.merge == self._rules.merge:
            accumulator = row.accumulator
        return PendingPart(0, row, count, is_new=is_new, patch=patch, accumulator=accumulator)

    def _ordered(self) -> list[tuple[Pending, Frame]]:
        if self._rows is None:
            # Cached until the next change: the first rows of a large queue are read many times.
            self._rows = [
                (entry, row)
                for entry in sorted(self._entries.all(), key=self._place)
                if (row := self._row(entry)) is not None
            ]
        return self._rows

    def _place(self, entry: Pending) -> int:
        """Return the place of an entry.

        Where deltas follow, the newest value of a key has to be its last row, as their base.
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
    """How far a member has got in its lane; the members of a cohort share one object.

    Attributes:
        position: everything up to it is taken; in the lane's own count.
        delivered: live rows taken with this object.
        catch_up: rows of an interval lane that the member missed.
        unreported: by row key, messages that no row reports, as the key came and went; the
            key's next row stands for them. None if there are none, which is usual.
    """

    position: int = 0
    delivered: int = 0
    catch_up: CatchUp | None = None
    unreported: dict[str, Unreported] | None = None

    def copy(self) -> LaneProgress:
        """Return a copy for a member that leaves its cohort."""
        catch_up = None if self.catch_up is None else self.catch_up.copy()
        unreported = None if self.unreported is None else dict(self.unreported)
        return LaneProgress(self.position, self.delivered, catch_up, unreported)


@dataclass(slots=True, eq=False)
class Member:
    """One subscriber in its lane, and the rows that are kept for it alone.

    Attributes:
        progress: how far it has got; shared with the members of its cohort.
        cut: the offset of the join; the lane sends it nothing at or below it.
        joined: the feed's count of accepted messages at the join.
        passed: the feed's count of messages that it filtered out, at the join.
        joins: the lane's count of joins when it joined.
        delivered_before: its live rows in all, minus `progress.delivered`.
        conflated_to: its queue of every message was conflated up to this offset.
        owed: by row key, conflated messages that the key's next row counts; None if there are none,
            which is usual.
        backlog: the conflated queue itself, where the board does not have its rows.
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
        """Everything up to it is taken; in the lane's own count."""
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
        """Rows of an interval lane that it missed."""
        return self.progress.catch_up

    @catch_up.setter
    def catch_up(self, catch_up: CatchUp | None) -> None:
        self.progress.catch_up = catch_up

    @property
    def is_catching_up(self) -> bool:
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
        """Share a cohort's progress: from here on its position moves with the others'."""
        self.delivered_before = self.delivered - progress.delivered
        self.progress = progress

    def stand_alone(self) -> None:
        """Continue alone with a copy of the shared progress."""
        self.progress = self.progress.copy()

    # --- What it was sent

    def track_sent(self) -> None:
        """Begin to record the keys that it is sent, if its rows depend on that."""
        subscription, lane_id = self.subscription, self.subscription.lane_id
        if subscription.command.queries:
            return  # with a snapshot it has all keys
        # A client that resumes may hold any key, so it is sent every removal.
        if lane_id.oof and self.sent is None and subscription.resume is None:
            self.sent = set()
        if lane_id.delta and self.based is None:
            self.based = set()

    def drop_delta_base(self) -> None:
        """Forget which keys have a base for deltas: the next row of each is a value."""
        self.based = None
        self.track_sent()

    @property
    def is_plain(self) -> bool:
        """True if it can be sent any row in its shared form."""
        return self.sent is None and self.based is None and not self.unreported

    def accepts_shared(self, frames: Iterable[Frame]) -> bool:
        """Return True if this member can be sent these rows in their shared form."""
        # Cheapest first: this runs for each member of a lane at each flush, and nearly all of them
        # have none of the three.
        unreported = self.unreported
        if unreported and any(frame.key in unreported for frame in frames):
            return False
        if self.sent is None and self.based is None:
            return True
        return all(self._own(frame) is frame for frame in frames)

    def personalize(self, frames: Iterable[Frame]) -> list[Frame]:
        """Return rows as this member needs them, and record them as sent.

        It needs values in place of deltas without a base, and no removals of keys that it was
        never sent.
        """
        rows: list[Frame] = []
        for frame in frames:
            own = self._own(frame)
            if own is None:
                # The messages before the removal were matched, so a later row has to count them.
                self.add_unreported(frame.key, unreported_of(frame))
            else:
                rows.append(self._standing_for_unreported(own))
            self.record_sent((frame,))
        return rows

    def add_owed(self, row_key: str, count: Receipt) -> None:
        """Add conflated messages, which the key's next row counts."""
        if self.owed is None:
            self.owed = {}
        self.owed[row_key] = count.after(self.owed.get(row_key))

    def add_unreported(self, row_key: str, newer: Unreported | None) -> None:
        """Add messages that no row reports; the key's next row stands for them."""
        if newer is not None:
            if self.unreported is None:
                self.unreported = {}
            older = self.unreported.get(row_key)
            self.unreported[row_key] = newer if older is None else older.then(newer)

    def record_sent(self, frames: Iterable[Frame]) -> None:
        """Record the keys of rows that it is sent."""
        for keys in (self.sent, self.based):
            if keys is not None:
                _record_keys(keys, frames)

    def _standing_for_unreported(self, row: Frame) -> Frame:
        """Return the row, which also stands for messages of its key that no row has reported.

        An exempt row stands only for itself, and a row that a change of filter brought in stands
        for no message.
        """
        is_brought_in = not row.removed and not receipt_of(row).messages
        if not self.unreported or row.key not in self.unreported or row.exempt or is_brought_in:
            return row
        if self.unreported[row.key].count.first > row.offset:
            return row  # those messages came later than it
        return self.unreported.pop(row.key).on(row)

    def _own(self, frame: Frame) -> Frame | None:
        """Return the row as this member needs it; None for a removal of a key it never had."""
        if frame.removed:
            return frame if self.sent is None or frame.key in self.sent else None
        # A delta applied without its base makes a wrong record that nobody notices.
        has_base = self.based is None or frame.key in self.based
        return frame if has_base or not isinstance(frame, Row) else frame.whole()


def _record_keys(keys: set[str], frames: Iterable[Frame]) -> None:
    for frame in frames:
        if frame.removed:
            # With the record its base is gone as well: the next row of the key has to be a value.
            keys.discard(frame.key)
        else:
            keys.add(frame.key)
