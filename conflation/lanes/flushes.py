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

    `group` is the number of the large flush of which this is a part: no key is in two of its parts.
    A later flush may be appended as more `parts` (`is_mixed`), which are then moved one by one into
    `joined`. At every moment the entries are those in `joined`, followed by those of `parts`.
    Joining changes entries in `joined`, and none in `parts`. `suppressed_since` is the lane's count
    of joins when the first suppressed entry was opened, None without one.
    """

    position: int
    group: int
    parts: list[list[Pending]]
    suppressed_since: int | None
    is_mixed: bool = False
    joined: PendingKeys | None = None

    def pieces(self) -> Iterator[list[Pending]]:
        """Yield the entries in pieces, in the order in which they are put together."""
        if self.joined is not None:
            yield self.joined.listed()
        yield from self.parts

    def split(self) -> list[list[Pending]]:
        """Return the entries in pieces that are joined at once; each key is in one piece."""
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
        """True if there is a part that may be joined."""
        return self.is_mixed and bool(self.parts) and self.suppressed_since is None

    def drop_suppressed(self) -> None:
        """Drop the suppressed entries."""
        parts = ([entry for entry in part if not entry.suppressed] for part in self.parts)
        self.parts = [part for part in parts if part]
        self.suppressed_since = None


class Flushes:
    """Flushes that some member is behind.

    There are as many as there are different positions of members: flushes between two positions are
    joined. So a member that never reads again costs one entry for each key, however long it stays.
    Joining takes time for each entry of the newer flush, so one flush joins a bounded number.
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
        """Return True if more entries follow a position than are put together in one step."""
        return sum(map(len, self._after(position))) > MADE_AT_ONCE

    def copied_pieces(self, position: int) -> list[list[Pending]]:
        """Return the entries after a position in pieces; later changes do not alter them."""
        pieces: list[list[Pending]] = []
        for flush in self._after(position):
            if flush.joined is not None:
                pieces.append(list(map(copy_entry, flush.joined.all())))
            pieces += map(list, flush.parts)
        return pieces

    def after(self, position: int, since_join: int) -> PendingKeys:
        """Return the entries after a position that began after a join, put together."""
        found = PendingKeys(self._lane_id)
        for piece in self._pieces(position):
            found.absorb(piece, since_join)
        return found

    def is_next(self, position: int, since_join: int) -> bool:
        """Return True if exactly one flush follows a position, all opened after a join."""
        newest = self._flushes[-1] if self._flushes else None
        if newest is None or newest.position != position + 1:
            return False
        entries = chain.from_iterable(newest.pieces())
        return all(entry.joins_at_open >= since_join for entry in entries)

    def drop_suppressed(self, members: Collection[Member]) -> None:
        """Drop suppressed entries of which no member will be sent a row."""
        for flush in self._flushes:
            since, position = flush.suppressed_since, flush.position
            if since is not None and not any(
                member.position < position and member.joins > since for member in members
            ):
                flush.drop_suppressed()

    def drop(self, positions: set[int]) -> None:
        """Drop what all members have, and join flushes between two positions of members."""
        oldest = min(positions, default=None)
        kept: list[Flush] = []
        for flush in self._flushes:
            if oldest is None or flush.position <= oldest:
                continue
            is_next = bool(kept) and kept[-1].position not in positions
            if is_next and _may_join(kept[-1], flush):
                older = kept[-1]
                older.parts += flush.split()
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
"""Entries that were released together, with the number of the group."""


def _joined_at_once() -> int:
    # The other half is for the rows of a flush, which are made in the same call.
    return max(1, MADE_AT_ONCE // 2)


def _whole_keys(entries: Sequence[Pending], end: int) -> int:
    """Return where a piece has to end so that successive entries of one key stay together."""
    while end < len(entries) and entries[end].board_key == entries[end - 1].board_key:
        end += 1
    return end


def split_groups(groups: Groups) -> tuple[Groups, Groups]:
    """Split groups into the entries that one flush sends, and those of the next flush."""
    now: Groups = []
    later: Groups = []
    room = MADE_AT_ONCE
    for group, entries in groups:
        end = min(max(room, 0), len(entries))
        # Whether a key's row is a delta depends on all entries of the key.
        end = _whole_keys(entries, end) if end else end
        now.append((group, entries[:end]))
        if end < len(entries):
            later.append((group, entries[end:]))
        room -= len(entries)
    return now, later
