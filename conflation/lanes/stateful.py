"""The stateful lane: an interval for all keys or each, with pending entries beside the board."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, count

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.frame import Batch, Frame, Receipt, Tombstone
from tidegate.conflation.lanes.accumulate import Merges, Unreported, accumulator_of
from tidegate.conflation.lanes.delta import ChangeSuppression, DeltaWriter
from tidegate.conflation.lanes.lane import Held, Lane, grouped
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.lanes.pending import Pending, PendingKeys, PendingPart
from tidegate.conflation.operators.filter import Change, matcher
from tidegate.conflation.subscription import LaneId
from tidegate.keys.text.duration import MILLISECOND, Instant

TICK_NS_MAX = 50 * MILLISECOND
"""With `pace=key`, keys due within a tick leave together: one write in place of many."""


@dataclass(slots=True)
class Flush:
    """The entries flushed after the position before, up to this one."""

    position: int
    entries: list[Pending]


class Flushes:
    """Flushes that some member is behind.

    There are as many as members stand at different positions: flushes between two of them are
    joined, so a member that never comes back costs its keys, however long it is away.
    """

    def __init__(self, lane_id: LaneId) -> None:
        self._lane_id = lane_id
        self._flushes: list[Flush] = []

    def __len__(self) -> int:
        return len(self._flushes)

    def add(self, position: int, entries: Sequence[Pending]) -> None:
        """Add a flush."""
        self._flushes.append(Flush(position, list(entries)))

    def all(self) -> Iterator[Pending]:
        """Return the entries of all flushes."""
        return (entry for flush in self._flushes for entry in flush.entries)

    def after(self, position: int, since_join: int) -> PendingKeys:
        """Return everything after a position that began after a join, put together."""
        found = PendingKeys(self._lane_id)
        for flush in self._flushes:
            if flush.position > position:
                found.absorb(flush.entries, since_join)
        return found

    def is_next(self, position: int, since_join: int) -> bool:
        """Return True if one flush alone follows a position, and it held nothing at a join."""
        newest = self._flushes[-1] if self._flushes else None
        if newest is None or newest.position != position + 1:
            return False
        return all(entry.joins_at_open >= since_join for entry in newest.entries)

    def drop(self, positions: set[int]) -> None:
        """Drop what all members have; join neighbours that no member stands between."""
        oldest = min(positions, default=None)
        kept: list[Flush] = []
        for flush in self._flushes:
            if oldest is None or flush.position <= oldest:
                continue
            if kept and kept[-1].position not in positions and not _unseen(kept[-1], flush):
                flush = Flush(flush.position, self._joined(kept.pop(), flush))
            kept.append(flush)
        self._flushes = kept

    def _joined(self, older: Flush, newer: Flush) -> list[Pending]:
        both = PendingKeys(self._lane_id)
        both.absorb(older.entries)
        both.absorb(newer.entries)
        return list(both.all())


def _unseen(*flushes: Flush) -> bool:
    """Return True if some members need rows that are no news to others: such stay apart."""
    return any(entry.unseen for flush in flushes for entry in flush.entries)


class StatefulLane(Lane):
    """Keeps what a board does not know: receipts, deltas, reducers, exemptions, a key's own time.

    Held messages are pending entries. A flush takes those that are due; a member that is behind
    gets the flushes that it missed, put together. Positions count flushes: with `pace=key` keys
    leave publication order, so an offset cannot say what was sent.
    """

    counts_offsets = False

    def __init__(self, lane_id: LaneId, board: Board) -> None:
        super().__init__(lane_id, board, position=0)
        # CONTRACT 5.1: a twentieth of the interval, at most 50 ms.
        self._tick_ns = max(1, min(lane_id.interval_ns // 20, TICK_NS_MAX))
        # A conflated queue is merged for each member, so its merges repeat; an interval's do not.
        self._merges = Merges.of(lane_id.merge) if lane_id.always else None
        self._accumulate = accumulator_of(lane_id.merge, self._merges)
        self._delta = DeltaWriter(lane_id) if lane_id.delta else None
        self._never = matcher(lane_id.never, "")
        self._flush_on = matcher(lane_id.flush_on, "")
        self._joins = 0
        self._held = PendingKeys(lane_id)
        self._heap: list[tuple[Instant, int, Pending]] = []
        self._order = count()
        self._released: list[list[Pending]] = []
        self._flushes = Flushes(lane_id)
        self._last_flush: dict[str, Instant] = {}
        self._batch_joins = self._batch_low = self._sent_through = 0
        self._suppression = ChangeSuppression(self._delta if lane_id.no_empties else None)

    def accept(self, changes: Sequence[Change], now: Instant) -> None:
        for change in changes:
            frame = change.frame
            if isinstance(frame, Tombstone):
                # Without `oof` no removal is sent; what is held of the key is sent all the same.
                if self.id.oof:
                    self._hold(
                        PendingPart(self._joins, frame, None, is_new=False, gone=frame), change, now
                    )
                continue
            # Before the message is held: it flushes what came before it, and waits itself.
            if self._flush_on is not None and self._flush_on(frame.payload, frame.key):
                self._release()
            part = PendingPart(
                self._joins,
                frame,
                Receipt(1, frame.offset, frame.timestamp_ms),
                is_new=change.replaced is None,
                patch=None if self._delta is None else self._delta.change_of(change),
                accumulator=None if self._accumulate is None else self._accumulate(frame.payload),
            )
            self._hold(part, change, now)
        self._arm(now)

    def flush(self, now: Instant) -> bool:
        groups = [*self._released, self._due(now)]
        self._released = []
        since, rows, joins = self.position, list[Frame](), [self._joins]
        # What `flush_on` let go is a flush of its own: a key may be in it and in the next.
        for entries in groups:
            entries.sort(key=lambda entry: entry.send_order)
            sending = [
                entry for entry in entries if self._suppression.lets_pass(entry, self._payload)
            ]
            if self.id.leading:  # only there a new entry asks when its key was last sent
                self._note_flushed(sending, now)
            if sending:
                # Only a flush with rows counts: a position that moved without any would wake every
                # member.
                self.position += 1
                rows += self._rows(sending, entries)
                newest = max(entry.newest.frame.offset for entry in sending)
                self._sent_through = max(self._sent_through, newest)
                # A member that joined after an entry began has its first messages in the snapshot
                # already, so the shared row is not its row.
                joins += [entry.parts[0].joins for entry in sending]
                self._flushes.add(self.position, sending)
        self._batch_joins = min(joins)
        self._arm(now)
        self._batch_low = self.low_water()
        self.batch = Batch(rows, since, self.position, self._placed(self._batch_low))
        # Members that took the flush before are served by the batch; only those further back need
        # it kept.
        self._flushes.drop({member.position for member in self.members.values()})
        if self._merges is not None:
            self._merges.forget()
        return self.position > since

    def join(self, member: Member) -> None:
        self._joins += 1
        member.position, member.joins = self.position, self._joins

    def in_step(self, member: Member, batch: Batch) -> bool:
        """Return True once nothing is held that a member joined with: no row twice, no id back."""
        fresh = self._batch_low >= member.cut
        started = self._batch_joins >= member.joins
        return fresh and started and batch.since == member.position

    def is_like_others(self, member: Member) -> bool:
        # What is held from before its join goes to the others alone, and so do the messages that
        # the next row of a key will stand for.
        is_fresh = self.low_water() >= member.cut and self._suppression.is_empty
        return is_fresh and super().is_like_others(member)

    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        behind = self._flushes.after(member.position, member.joins)
        has_base = self._has_base(member)
        rows = [row for _, row in self._answer_rows(behind, has_base=has_base)]
        low_water = self._placed(max(self.low_water(), member.cut))
        batch = Batch(rows, member.position, self.position, low_water)
        # They are older than any row of their key, so that row can stand for them.
        for row_key, unreported in self._unseen(behind.all()):
            member.miss(row_key, unreported)
        return batch if member.knows(rows) else self._own_terms(member, batch)

    def _has_base(self, member: Member) -> bool:
        """Return True if a member holds the base of deltas, though its receipts are its own."""
        is_fresh = self._batch_low >= member.cut
        return is_fresh and self._flushes.is_next(member.position, member.joins)

    def pending(self, member: Member) -> list[Pair]:
        return self._answer_rows(self._ahead(member))

    def unreported(self, member: Member) -> list[tuple[str, Unreported]]:
        kept = (part for part in self._suppression.kept() if part.joins >= member.joins)
        found = [(part.frame.key, _unreported(part, self.id)) for part in kept]
        return [*found, *self._unseen(self._ahead(member).all())]

    def left_behind(self, member: Member) -> tuple[list[Pair], list[tuple[str, Unreported]]]:
        # What came and went is between what was flushed of its key and what is held.
        entries = self._ahead(member, self._suppression.unseen())
        kept = (part for part in self._suppression.kept() if part.joins >= member.joins)
        empty = [(part.frame.key, _unreported(part, self.id)) for part in kept if part.gone is None]
        return self._answer_rows(entries), [*empty, *self._unseen(entries.all())]

    def _ahead(self, member: Member, unseen: Iterable[Pending] = ()) -> PendingKeys:
        """Return all that the member has not got."""
        entries = self._flushes.after(member.position, member.joins)
        for flush in (unseen, *self._released, self._held.all()):
            entries.absorb(flush, member.joins)
        return entries

    def _unseen(self, entries: Iterable[Pending]) -> list[tuple[str, Unreported]]:
        """Return the messages of keys that came and went, of which no row is sent."""
        parts = [part for entry in entries if (part := entry.whole()) is not None]
        return [(part.frame.key, _unreported(part, self.id)) for part in parts if part.is_unseen]

    def alike(self) -> Iterable[Sequence[Member]]:
        # Members that joined between the same two parts of all entries get equal rows of them.
        entries = [*self._held.all(), *chain(*self._released), *self._flushes.all()]
        joins = sorted({part.joins for entry in entries for part in entry.parts})
        is_plain = not any(entry.unseen for entry in entries)

        def kin(member: Member) -> Hashable:
            if not is_plain:
                return member.place
            return member.position, bisect_left(joins, member.joins)

        return grouped(self.members.values(), kin)

    def held(self, board_key: str | None = None) -> list[Held]:
        entries = self._held.all() if board_key is None else self._held.of_key(board_key)
        return [self._held_in(entry) for entry in entries]

    def needs_board_since(self) -> int | None:
        # Entries hold their frames themselves, tombstones included.
        return None

    def _placed(self, low_water: int) -> int | None:
        """Return the id that a batch carries; None if a resume there would combine twice.

        Of what was combined and sent, a part may lie after this place, and would come again.
        """
        is_apart = self._accumulate is not None and low_water < self._sent_through
        return None if is_apart else low_water

    def low_water(self) -> int:
        opened = [entry.first_offset for entries in self._released for entry in entries[:1]]
        first = self._held.first()
        opened += [] if first is None else [first.first_offset]
        return min(opened) - 1 if opened else self.board.head

    def _held_in(self, entry: Pending) -> Held:
        part = entry.whole()
        assert part is not None
        messages = 0 if part.count is None else part.count.messages
        return Held(
            entry.board_key, entry.first_offset, part.frame.offset, entry.due, self._payload(part),
            messages, removed=part.gone is not None,
        )  # fmt: skip

    def _hold(self, part: PendingPart, change: Change, now: Instant) -> None:
        frame = part.frame
        never = self._never is not None and self._never(frame.payload, frame.key)
        sealed = not frame.removed and (frame.exempt or never)
        if self._held.merge(change.board_key, part, sealed=sealed) is not None:
            return
        if not self._held.of_key(change.board_key):
            self._suppression.note_base(change)
        entry = self._held.open(change.board_key, part, sealed=sealed)
        if not sealed and not self._released:  # else an entry before it may have more to add
            entry.stand_for(self._suppression.take_unreported(change.board_key))
        entry.due = self._due_of(entry, now)
        if self.id.pace == "key":
            heappush(self._heap, (entry.due, next(self._order), entry))

    def _due_of(self, entry: Pending, now: Instant) -> Instant:
        """Return when an entry is due: with those of its key; with `pace=batch`, with all."""
        elder = self._held.elder(entry, same_key=self.id.pace == "key")
        if elder is not None:
            return elder.due
        due = now + self.id.interval_ns
        if self.id.leading:
            last = self._last_flush.get(entry.board_key)
            if last is None or now - last >= self.id.interval_ns:
                return now
            due = last + self.id.interval_ns
        if self.id.pace == "key":
            # The tick's end, rounded up: keys leave together, and none before its interval.
            return -(-due // self._tick_ns) * self._tick_ns
        return due

    def _release(self) -> None:
        """Let what is held go now, before the message that is about to come (`flush_on`)."""
        entries = self._held.take_all()
        if entries:
            self._released.append(entries)

    def _due(self, now: Instant) -> list[Pending]:
        if self.id.pace != "key":
            first = self._held.first()
            return self._held.take_all() if first is not None and first.due <= now else []
        entries: list[Pending] = []
        while self._heap and self._heap[0][0] <= now:
            entry = heappop(self._heap)[2]
            if self._held.take(entry):
                entries.append(entry)
        return entries

    def _note_flushed(self, entries: Sequence[Pending], now: Instant) -> None:
        for entry in entries:
            self._last_flush.pop(entry.board_key, None)
            self._last_flush[entry.board_key] = now
        # In the order of flushing: the first that still counts ends the search.
        while self._last_flush:
            board_key, last = next(iter(self._last_flush.items()))
            if now - last < self.id.interval_ns:
                return
            del self._last_flush[board_key]

    def _arm(self, now: Instant) -> None:
        if self._released:
            self.deadline = now
        elif self.id.pace == "key":
            # Entries that `flush_on` let go stay in the heap until they come to its top.
            while self._heap and not self._heap[0][2].is_held:
                heappop(self._heap)
            self.deadline = self._heap[0][0] if self._heap else None
        else:
            first = self._held.first()
            self.deadline = None if first is None else first.due

    def _rows(self, sending: Sequence[Pending], due: Sequence[Pending]) -> list[Frame]:
        """Return the shared rows; deltas where a key has one entry: their base is what was sent."""
        times = Counter(entry.board_key for entry in due)
        rows = [self._row(entry, as_delta=times[entry.board_key] == 1) for entry in sending]
        return [row for row in rows if row is not None]

    def _answer_rows(self, entries: PendingKeys, *, has_base: bool = False) -> list[Pair]:
        """Return rows for one member, by board key.

        They are full values where it is behind, or may not hold the base of deltas.
        """
        rows: list[Pair] = []
        for entry in sorted(entries.all(), key=lambda entry: entry.send_order):
            is_alone = len(entries.of_key(entry.board_key)) == 1
            row = self._row(entry, as_delta=has_base and is_alone)
            if row is not None:
                rows.append((entry.board_key, row))
        return rows

    def _row(self, entry: Pending, *, as_delta: bool) -> Frame | None:
        part = entry.whole()
        assert part is not None
        payload = self._payload(part)
        patch = None
        if as_delta and self._delta is not None:
            patch = self._delta.finished(part.patch, payload, part.frame.payload)
        row = part.row(payload, patch, self.id, exempt=entry.sealed)
        return row if row is None or not row.removed or self._shown is None else self._shown(row)

    def _payload(self, part: PendingPart) -> bytes:
        payload = part.frame.payload if part.accumulator is None else part.accumulator.payload()
        return payload if self.id.select is None else self.id.select.apply(payload)


def _unreported(part: PendingPart, rules: LaneId) -> Unreported:
    """Return a part of which no row is sent; a removal of nothing counts nothing."""
    count = part.count or Receipt(0, part.frame.offset, part.frame.timestamp_ms)
    return Unreported(
        count, rules.merge, None if part.accumulator is None else part.accumulator.unreported()
    )
