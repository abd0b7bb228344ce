"""Pending entries: what a lane or a backlog holds of each key, and which entry a message joins.

An entry consists of parts, cut where members join. Parts are immutable and join associatively in
publication order, as accumulators do: what a slow or late member gets is a join of parts.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import methodcaller
from typing import Any

import msgspec

from tidegate.conflation.lanes.accumulate import outgrow
from tidegate.conflation.lanes.part import PendingPart, joined_parts
from tidegate.conflation.subscription import LaneId
from tidegate.keys.merging import Matcher
from tidegate.keys.spec import KeyOf, KeySpec, conflation_key
from tidegate.keys.text.duration import Instant

HELD_KEYS_MAX = 100_000
"""Keys that are held at once; one more flushes them, so that an interval of a day has a bound."""


# Neither an entry nor a part is visited by the garbage collector: with a hundred thousand held keys
# each full collection would block the event loop for a quarter of a second. That is why the newest
# part, which is mostly the only one, is not in a list.
class Pending(msgspec.Struct, eq=False, gc=False):
    """A place in a lane's queue: parts of one key, due together.

    Messages join the `newest` part; `older` are those before it, mostly none. A part begins where
    a member joins: members that joined between the same two parts get equal rows. `sealed`: never
    conflated with anything. `send_order` is its place in the queue: the offset of its newest
    message, or with `placement=replace` of its first. `first_offset` is the offset of its first
    message, `joins_at_open` the lane's count of joins then. `match` is the value of the fields
    that decide which messages of a key may conflate. `suppressed`: it has no news, so only members
    that joined while it was held are sent a row of it. `is_retraction`: it began with a removal,
    which has an entry of its own only if several rows of the key precede it.
    """

    board_key: str
    newest: PendingPart
    due: Instant
    send_order: int
    first_offset: int
    joins_at_open: int = 0
    sealed: bool = False
    match: str = ""
    is_held: bool = True
    suppressed: bool = False
    is_retraction: bool = False
    older: tuple[PendingPart, ...] = ()

    def __deepcopy__(self, memo: object) -> Pending:
        return copy.copy(self)  # parts are immutable and shared

    @property
    def parts(self) -> tuple[PendingPart, ...]:
        """All parts."""
        return (*self.older, self.newest)

    @property
    def oldest(self) -> PendingPart:
        """The first part."""
        return self.older[0] if self.older else self.newest

    def append(self, part: PendingPart) -> None:
        """Add a part that is newer than all others."""
        self.older, self.newest = self.parts, part

    @property
    def was_joined(self) -> bool:
        """True if a member joined while it was held."""
        return self.newest.joins > self.joins_at_open

    def unreported_parts(self) -> Sequence[PendingPart]:
        """Return the parts that the key's next entry stands for; those since its opening as one.

        Members that joined since its opening get a row now, so they need no separate part.
        """
        older = [part for part in self.parts if part.joins < self.joins_at_open]
        own = self.whole(self.joins_at_open)
        assert own is not None
        return (*older, own)

    def stand_for(self, unreported: Sequence[PendingPart]) -> None:
        """Put parts of which no row was sent before its own parts."""
        if not unreported:
            return
        own = self.oldest
        # A key that came and went in these parts is as new as the entry itself is.
        older = [part.as_unreported(is_new=own.is_new) for part in unreported]
        # Parts of one join become one; others stay apart for members that joined between them.
        together = older[-1].then(own) if older[-1].joins == self.joins_at_open else None
        before = (*older, own) if together is None else (*older[:-1], together)
        parts = (*before, *self.parts[1:])
        self.older, self.newest = parts[:-1], parts[-1]

    def whole(self, since_join: int = 0) -> PendingPart | None:
        """Join all parts, or those that began after a join; None if there is none."""
        found: PendingPart | None = None
        if not self.older:
            return self.newest if self.newest.joins >= since_join else None
        for part in self.parts:
            if part.joins >= since_join:
                found = part if found is None else joined_parts(found, part)
        return found


copy_entry = methodcaller("__copy__")
"""Copies an entry, to be read while the lane changes the original; its parts are shared."""


class PendingKeys:
    """Pending entries by key: usually one; several where messages may not conflate."""

    def __init__(self, lane_id: LaneId) -> None:
        self._replaces = lane_id.replaces
        self._matcher = lane_id.match if isinstance(lane_id.match, Matcher) else None
        self._match_of: KeyOf | None = (
            conflation_key(lane_id.match) if isinstance(lane_id.match, KeySpec) else None
        )
        # The first entry of each key, and the later ones of the few keys that have several.
        self._entries: dict[str, Pending] = {}
        self._others: dict[str, tuple[Pending, ...]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> PendingKeys:
        twin: PendingKeys = copy.copy(self)
        twin._entries = copy.deepcopy(self._entries, memo)
        twin._others = copy.deepcopy(self._others, memo)
        return twin

    def all(self) -> Iterator[Pending]:
        """Return every entry, keys in the order in which they were opened."""
        if not self._others:
            return iter(self._entries.values())
        return chain.from_iterable(map(self.of_key, self._entries))

    def listed(self) -> list[Pending]:
        """Return every entry as a new list."""
        return list(self.all())

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._entries)

    def of_key(self, board_key: str) -> tuple[Pending, ...]:
        """Return the entries of one key."""
        first = self._entries.get(board_key)
        return () if first is None else (first, *self._others.get(board_key, ()))

    def is_full(self, board_key: str, part: PendingPart) -> bool:
        """Return True if a message would exceed a bound: of its key's lists, or on the keys."""
        entries = self.of_key(board_key)
        if not entries:
            return len(self._entries) >= HELD_KEYS_MAX
        return outgrow(entries[-1].newest.accumulator, part.accumulator)

    def first(self) -> Pending | None:
        """Return the entry that was opened first."""
        return next(self.all(), None)

    def elder(self, entry: Pending, *, same_key: bool) -> Pending | None:
        """Return the older entry whose due time a new one shares; None if there is none."""
        found = self._entries[entry.board_key] if same_key else self.first()
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
        entries = self.of_key(board_key)
        has_left = part.gone is not None or part.is_back
        if has_left and entries and (len(entries) > 1 or entries[0].sealed):
            return None  # several rows go before the removal, so it has to be a row, too
        if sealed:
            return None
        # The newest first: it is the nearest in publication order of those that would accept the
        # part.
        for entry in reversed(entries):
            if entry.sealed or not self._meets(entry, part):
                continue
            earlier = entry.newest
            is_apart = entry in apart or outgrow(earlier.accumulator, part.accumulator)
            joined = None if is_apart else earlier.then(part)
            # A merger that declines decides for older entries as well: in one of those the message
            # would overtake the one that it may not join.
            if joined is None:
                return None
            # A member has joined in between: it must get the newer part alone.
            if earlier.joins == part.joins:
                entry.newest = joined
            else:
                entry.append(part)
            if not self._replaces and not joined.keeps_place(earlier):
                entry.send_order = part.frame.offset
            return entry
        return None

    def open(self, board_key: str, part: PendingPart, *, sealed: bool = False) -> Pending:
        """Open an entry for a part."""
        offset = part.frame.offset
        order = part.count.first if self._replaces and part.count is not None else offset
        entry = Pending(
            board_key,
            part,
            due=0,
            send_order=order,
            first_offset=offset,
            joins_at_open=part.joins,
            sealed=sealed,
            match=self._match(part),
            is_retraction=part.gone is not None,
        )
        if self._entries.setdefault(board_key, entry) is not entry:
            self._others[board_key] = (*self._others.get(board_key, ()), entry)
        return entry

    def absorb(
        self,
        flushed: Iterable[Pending],
        since_join: int = 0,
        apart: set[Pending] | None = None,
    ) -> None:
        """Take over the entries of a later flush, or their parts that began after a join.

        A flush may be given in pieces, with the same set as `apart`: entries of one flush are not
        conflated with one another.
        """
        apart = set() if apart is None else apart
        for entry in flushed:
            # A suppressed entry has a row only for members that joined while it was held.
            if not entry.suppressed or since_join > entry.joins_at_open:
                self._absorb(entry, since_join, apart)

    def _absorb(self, entry: Pending, since_join: int, apart: set[Pending]) -> None:
        """Take over an entry; its parts stay apart, for members that joined between them."""
        taken: Pending | None = None
        touched: set[Pending] = set()
        for part in entry.parts:
            if part.joins < since_join:
                continue
            if taken is not None:
                taken.append(part)
                continue
            # What kept them apart was before the join, and is not here.
            is_alone = entry.is_retraction and len(self.of_key(entry.board_key)) == 1
            kept_apart = () if is_alone else apart
            joined = self.merge(entry.board_key, part, sealed=entry.sealed, apart=kept_apart)
            if joined is None:
                joined = taken = self.open(entry.board_key, part, sealed=entry.sealed)
                taken.match = entry.match
                if not self._replaces or part is entry.oldest:
                    taken.send_order = entry.send_order
            touched.add(joined)
        apart |= touched

    def remove(self, entry: Pending) -> bool:
        """Remove an entry; return False if it was removed before."""
        if not entry.is_held:
            return False
        entry.is_held = False
        rest = tuple(it for it in self.of_key(entry.board_key) if it is not entry)
        self._others.pop(entry.board_key, None)
        if not rest:
            del self._entries[entry.board_key]
            return True
        self._entries[entry.board_key] = rest[0]
        if len(rest) > 1:
            self._others[entry.board_key] = rest[1:]
        return True

    def pop_all(self) -> list[Pending]:
        """Remove and return all entries."""
        entries = list(self.all())
        # Other structures, such as a heap of due times, may still refer to an entry.
        for entry in entries:
            entry.is_held = False
        self._entries, self._others = {}, {}
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
