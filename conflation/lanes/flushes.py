"""Flushes of a stateful lane: what is kept for members behind, and how much goes at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tidegate.conflation.frame import MADE_AT_ONCE
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.lanes.pending import Pending, PendingKeys, copy_entry
from tidegate.conflation.subscription import LaneId


@dataclass(slots=True)
class Flush:
    """The entries flushed after the position before, up to this one.

    `group` is that of all parts of one large flush: no key is in two of them. What was flushed
    later is put behind as another part (`is_mixed`), and the parts are then `joined` one by one:
    the entries are those that are joined and behind them those of the parts, at every moment.
    Joining changes entries that are joined already, and no entry of a part. A part may have
    suppressed entries: `suppressed_since` is the lane's count of joins when the first of them was
    opened, None if there are none.
    """

    position: int
    group: int
    parts: list[list[Pending]]
    suppressed_since: int | None
    is_mixed: bool = False
    joined: PendingKeys | None = None

    def pieces(self) -> Iterator[list[Pending]]:
        """Return the entries in the order in which they are put together; each piece by itself."""
        if self.joined is not None:
            yield self.joined.listed()
        yield from self.parts

    def cut(self) -> list[list[Pending]]:
        """Return the entries in pieces of what goes at once; a key is in one piece of a flush."""
        if self.joined is None:
            return self.parts
        listed, pieces = self.joined.listed(), list[list[Pending]]()
        start = 0
        while start < len(listed):
            end = _whole_keys(listed, start + _joined_at_once())
            pieces.append(listed[start:end])
            start = end
        return pieces + self.parts

    def __len__(self) -> int:
        joined = 0 if self.joined is None else len(self.joined)
        return joined + sum(map(len, self.parts))

    @property
    def is_joinable(self) -> bool:
        """True if a part is there to be joined."""
        return self.is_mixed and bool(self.parts) and self.suppressed_since is None

    def drop_suppressed(self) -> None:
        """Drop the suppressed entries."""
        parts = ([entry for entry in part if not entry.suppressed] for part in self.parts)
        self.parts = [part for part in parts if part]
        self.suppressed_since = None


class Flushes:
    """Flushes that some member is behind.

    There are as many as members stand at different positions: flushes between two of them are
    joined, so a member that never comes back costs its keys, however long it is away. Joining costs
    the entries of the newer flush, so each flush joins as many as it can bring, and no more.
    """

    def __init__(self, lane_id: LaneId) -> None:
        self._lane_id = lane_id
        self._flushes: list[Flush] = []

    def __len__(self) -> int:
        return len(self._flushes)

    def add(self, position: int, entries: Sequence[Pending], group: int) -> None:
        """Add a flush, or a part of one."""
        since = min((entry.joins_at_open for entry in entries if entry.suppressed), default=None)
        parts = [list(entries)]
        # Entries of one key are joined in one step, as they were not conflated with one another.
        if len({entry.board_key for entry in entries}) == len(entries):
            size = _joined_at_once()
            parts = [parts[0][start : start + size] for start in range(0, len(entries), size)]
        self._flushes.append(Flush(position, group, parts, since))

    def all(self) -> Iterator[Pending]:
        """Return the entries of all flushes."""
        return self.entries_after(-1)

    def entries_after(self, position: int) -> Iterator[Pending]:
        """Return the entries of the flushes after a position."""
        return chain.from_iterable(self._pieces(position))

    def _after(self, position: int) -> Iterator[Flush]:
        return (flush for flush in self._flushes if flush.position > position)

    def _pieces(self, position: int) -> Iterator[list[Pending]]:
        return (piece for flush in self._after(position) for piece in flush.pieces())

    def has_many(self, position: int) -> bool:
        """Return True if more entries follow a position than are put together at once."""
        return sum(map(len, self._after(position))) > MADE_AT_ONCE

    def cut(self, position: int) -> list[list[Pending]]:
        """Return the entries after a position as they are now, in pieces."""
        pieces: list[list[Pending]] = []
        for flush in self._after(position):
            if flush.joined is not None:
                pieces.append(list(map(copy_entry, flush.joined.all())))
            pieces += map(list, flush.parts)
        return pieces

    def after(self, position: int, since_join: int) -> PendingKeys:
        """Return everything after a position that began after a join, put together."""
        found = PendingKeys(self._lane_id)
        for piece in self._pieces(position):
            found.absorb(piece, since_join)
        return found

    def is_next(self, position: int, since_join: int) -> bool:
        """Return True if one flush alone follows a position, and it held nothing at a join."""
        newest = self._flushes[-1] if self._flushes else None
        if newest is None or newest.position != position + 1:
            return False
        entries = chain.from_iterable(newest.pieces())
        return all(entry.joins_at_open >= since_join for entry in entries)

    def drop_suppressed(self, members: Collection[Member]) -> None:
        """Drop suppressed entries of flushes that no member needs a row of any more."""
        for flush in self._flushes:
            since, position = flush.suppressed_since, flush.position
            if since is not None and not any(
                member.position < position and member.joins > since for member in members
            ):
                flush.drop_suppressed()

    def drop(self, positions: set[int]) -> None:
        """Drop what all members have, and join neighbours with no member in between."""
        oldest = min(positions, default=None)
        kept: list[Flush] = []
        for flush in self._flushes:
            if oldest is None or flush.position <= oldest:
                continue
            is_next = bool(kept) and kept[-1].position not in positions
            if is_next and _may_join(kept[-1], flush):
                older = kept[-1]
                older.parts += flush.cut()
                older.position = flush.position
                older.is_mixed |= older.group != flush.group
                older.group = flush.group
                older.suppressed_since = _earlier(older.suppressed_since, flush.suppressed_since)
                continue
            kept.append(flush)
        self._flushes = kept
        room = MADE_AT_ONCE
        for flush in kept:
            while flush.is_joinable and room > 0:
                room -= len(flush.parts[0])
                self._join_part(flush)

    def _join_part(self, flush: Flush) -> None:
        if flush.joined is None:
            flush.joined = PendingKeys(self._lane_id)
        flush.joined.absorb(flush.parts.pop(0))


def _may_join(older: Flush, newer: Flush) -> bool:
    """Return True for parts of one flush, and where no entry is suppressed.

    Members that joined while such an entry was held need its row, and joining would lose it.
    """
    has_suppressed = any(flush.suppressed_since is not None for flush in (older, newer))
    return older.group == newer.group or not has_suppressed


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((joins for joins in (one, other) if joins is not None), default=None)


Groups = list[tuple[int, list[Pending]]]
"""Entries that were let go together, with the number of the group."""


def _joined_at_once() -> int:
    # Beside the rows of a flush, which are made in the same call.
    return max(1, MADE_AT_ONCE // 2)


def _whole_keys(entries: Sequence[Pending], end: int) -> int:
    """Return where a piece may end, so that entries of one key that follow stay together."""
    while end < len(entries) and entries[end].board_key == entries[end - 1].board_key:
        end += 1
    return end


def first_rows(groups: Groups) -> tuple[Groups, Groups]:
    """Split groups of entries: those that are flushed now, and those that follow at once."""
    now: Groups = []
    later: Groups = []
    room = MADE_AT_ONCE
    for group, entries in groups:
        end = min(max(room, 0), len(entries))
        # As their deltas are decided together.
        end = _whole_keys(entries, end) if end else end
        now.append((group, entries[:end]))
        if end < len(entries):
            later.append((group, entries[end:]))
        room -= len(entries)
    return now, later
