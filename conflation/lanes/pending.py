"""Pending entries: what a lane or a backlog holds of each key, and which entry a message joins."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.conflation.boards.board import THE_RECORD
from tidegate.conflation.frame import Frame, Row, Tombstone, receipt_of
from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.accumulate import (
    CombinedRow,
    Merges,
    PendingPart,
    Unreported,
    accumulator_of,
)
from tidegate.keys.merging import Matcher
from tidegate.keys.spec import KeyOf, KeySpec, conflation_key
from tidegate.keys.text.duration import Instant


@dataclass(slots=True, eq=False)
class Pending:
    """A place in a lane's queue: parts of one key, due together.

    A part begins where a member joins: members that joined between the same two parts get equal
    rows. `sealed`: never conflated with anything. `order` is its place: the offset of its newest
    message, or with `placement=replace` of its first. `opened` is the offset of its first message,
    `began` the lane's count of joins then. `match` is the value of the fields that decide which
    messages of a key may conflate. `unseen`: the key came and went, so that only members that
    joined in between are sent something. `is_retraction`: it began with a removal, which has an
    entry of its own only where several rows go before it.
    """

    board_key: str
    parts: list[PendingPart]
    due: Instant
    order: int
    opened: int
    began: int = 0
    sealed: bool = False
    match: str = ""
    is_held: bool = True
    unseen: bool = False
    is_retraction: bool = False

    def __deepcopy__(self, memo: object) -> Pending:
        return Pending(
            self.board_key, list(self.parts), self.due, self.order, self.opened, self.began,
            self.sealed, self.match, self.is_held, self.unseen, self.is_retraction,
        )  # fmt: skip

    @property
    def newest(self) -> PendingPart:
        """The part that messages still join."""
        return self.parts[-1]

    @property
    def was_joined(self) -> bool:
        """True if a member joined while it was held."""
        return self.newest.joins > self.began

    def unreported_parts(self) -> list[PendingPart]:
        """Return its parts for members older than it; those that joined since get a row now."""
        older = [part for part in self.parts if part.joins < self.began]
        own = self.whole(self.began)
        assert own is not None
        return [*older, own]

    def stand_for(self, unreported: Sequence[PendingPart]) -> None:
        """Put parts before its own of which no row was sent."""
        if not unreported:
            return
        own = self.parts[0]
        # A key that came and went in them was not there before: only now it is known to be new.
        older = [part.unreported(is_new=own.is_new) for part in unreported]
        together = older[-1].then(own) if older[-1].joins == self.began else None
        self.parts[:1] = [*older, own] if together is None else [*older[:-1], together]

    def whole(self, since_join: int = 0) -> PendingPart | None:
        """Join all parts, or those that began after a join; None if there is none."""
        found: PendingPart | None = None
        for part in self.parts:
            if part.joins >= since_join:
                found = part if found is None else _with(found, part)
        return found


def _with(older: PendingPart, newer: PendingPart) -> PendingPart | None:
    """Join two parts; where a merger declines, the older messages are only counted."""
    return older.then(newer) or msgspec.structs.replace(older, accumulator=None).then(newer)


class PendingKeys:
    """Pending entries by key: usually one; several where messages may not conflate."""

    def __init__(self, lane_id: LaneId) -> None:
        self._replaces = lane_id.replaces
        self._matcher = lane_id.match if isinstance(lane_id.match, Matcher) else None
        self._match_of: KeyOf | None = (
            conflation_key(lane_id.match) if isinstance(lane_id.match, KeySpec) else None
        )
        self._entries: dict[str, list[Pending]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> PendingKeys:
        twin: PendingKeys = copy.copy(self)
        twin._entries = {
            board_key: [copy.deepcopy(entry, memo) for entry in entries]
            for board_key, entries in self._entries.items()
        }
        return twin

    def all(self) -> Iterator[Pending]:
        """Return every entry, keys in the order in which they were opened."""
        return (entry for entries in self._entries.values() for entry in entries)

    def of_key(self, board_key: str) -> list[Pending]:
        """Return the entries of one key."""
        return self._entries.get(board_key, [])

    def first(self) -> Pending | None:
        """Return the entry that was opened first."""
        return next(self.all(), None)

    def has(self, entry: Pending) -> bool:
        """Return True if an entry is still here."""
        return entry.is_held

    def elder(self, entry: Pending, *, same_key: bool) -> Pending | None:
        """Return the entry whose due time a new one shares; None if it has its own."""
        found = self._entries[entry.board_key][0] if same_key else self.first()
        return None if found is entry else found

    def merge(
        self,
        board_key: str,
        part: PendingPart,
        *,
        sealed: bool = False,
        apart: Collection[Pending] = (),
    ) -> Pending | None:
        """Join a part to the newest entry that accepts it; None if it needs one of its own.

        Entries `apart` were flushed together with it and were not conflated with it.
        """
        entries = self._entries.get(board_key, [])
        if part.gone is not None and entries and (len(entries) > 1 or entries[0].sealed):
            return None  # rows that go before it have to be taken back by a row of its own
        for entry in () if sealed else reversed(entries):
            if entry.sealed or not self._meets(entry, part):
                continue
            earlier = entry.newest
            joined = None if entry in apart else earlier.then(part)
            if joined is None:
                return None
            # A member has joined in between: it must get the newer part alone.
            if earlier.joins == part.joins:
                entry.parts[-1] = joined
            else:
                entry.parts.append(part)
            if not self._replaces and not joined.keeps_place(earlier):
                entry.order = part.frame.offset
            return entry
        return None

    def open(self, board_key: str, part: PendingPart, *, sealed: bool = False) -> Pending:
        """Open an entry for a part."""
        offset = part.frame.offset
        order = part.count.first if self._replaces and part.count is not None else offset
        entry = Pending(board_key, [part], 0, order, offset, part.joins, sealed, self._match(part))
        entry.is_retraction = part.gone is not None
        self._entries.setdefault(board_key, []).append(entry)
        return entry

    def absorb(self, flushed: Iterable[Pending], since_join: int = 0) -> None:
        """Take over the entries of a later flush, or their parts that began after a join."""
        apart: set[Pending] = set()
        for entry in flushed:
            if not entry.unseen or since_join > entry.began:
                self._absorb(entry, since_join, apart)

    def _absorb(self, entry: Pending, since_join: int, apart: set[Pending]) -> None:
        """Take over an entry; its parts stay apart, for members that joined between them."""
        taken: Pending | None = None
        touched: set[Pending] = set()
        for part in entry.parts:
            if part.joins < since_join:
                continue
            if taken is not None:
                taken.parts.append(part)
                continue
            # What kept them apart was before the join, and is not here.
            is_alone = entry.is_retraction and len(self.of_key(entry.board_key)) == 1
            beside = () if is_alone else apart
            joined = self.merge(entry.board_key, part, sealed=entry.sealed, apart=beside)
            if joined is None:
                joined = taken = self.open(entry.board_key, part, sealed=entry.sealed)
                taken.match = entry.match
                if not self._replaces or part is entry.parts[0]:
                    taken.order = entry.order
            touched.add(joined)
        apart |= touched

    def take(self, entry: Pending) -> bool:
        """Take one entry out; False if it is not here any more."""
        if not entry.is_held:
            return False
        entry.is_held = False
        entries = self._entries[entry.board_key]
        entries.remove(entry)
        if not entries:
            del self._entries[entry.board_key]
        return True

    def take_all(self) -> list[Pending]:
        """Take every entry out."""
        entries = list(self.all())
        for entry in entries:
            entry.is_held = False
        self._entries = {}
        return entries

    def _meets(self, entry: Pending, part: PendingPart) -> bool:
        """Return True if a message may conflate with those of an entry (`match`)."""
        if part.frame.removed:  # it ends the record, whatever its fields were
            return True
        if self._matcher is not None:
            return self._matcher.matches(entry.newest.frame.payload, part.frame.payload)
        return self._match_of is None or entry.match == self._match(part)

    def _match(self, part: PendingPart) -> str:
        return "" if self._match_of is None else self._match_of(part.frame.payload)


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
