"""The lane that looks at every message: slots beside the board, an interval for all or for each."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, count

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.frame import Batch, Frame, Receipt, Tombstone
from tidegate.conflation.lane_id import LaneId
from tidegate.conflation.lanes.accumulate import Merges, PendingPart, Unreported, fold_of
from tidegate.conflation.lanes.delta import ChangeSuppression, DeltaWriter
from tidegate.conflation.lanes.lane import Held, Lane, Member, grouped
from tidegate.conflation.lanes.pending import Pending, PendingKeys
from tidegate.conflation.operators.filter import Change, matcher
from tidegate.keys.text.duration import MILLISECOND, Instant

TICK_NS_MAX = 50 * MILLISECOND


@dataclass(slots=True)
class Flush:
    """Slots that were flushed between the position before and this one."""

    position: int
    slots: list[Pending]


class Flushes:
    """As many as members stand at different positions: between them, flushes become one."""

    def __init__(self, lane_id: LaneId) -> None:
        self._lane_id = lane_id
        self._segments: list[Flush] = []

    def __len__(self) -> int:
        return len(self._segments)

    def add(self, position: int, slots: Sequence[Pending]) -> None:
        """A flush."""
        self._segments.append(Flush(position, list(slots)))

    def all(self) -> Iterator[Pending]:
        """The slots of all flushes that somebody is behind."""
        return (slot for segment in self._segments for slot in segment.slots)

    def after(self, position: int, since_join: int) -> PendingKeys:
        """Everything behind a position put together, as far as it began after a join."""
        found = PendingKeys(self._lane_id)
        for segment in self._segments:
            if segment.position > position:
                found.absorb(segment.slots, since_join)
        return found

    def is_next(self, position: int, since_join: int) -> bool:
        """Whether one flush alone is behind a position, and nothing in it was held at a join."""
        newest = self._segments[-1] if self._segments else None
        if newest is None or newest.position != position + 1:
            return False
        return all(slot.began >= since_join for slot in newest.slots)

    def drop(self, positions: set[int]) -> None:
        """Forget what everybody has; make one of neighbours that nobody stands between."""
        oldest = min(positions, default=None)
        kept: list[Flush] = []
        for segment in self._segments:
            if oldest is None or segment.position <= oldest:
                continue
            if kept and kept[-1].position not in positions and not _unseen(kept[-1], segment):
                segment = Flush(segment.position, self._joined(kept.pop(), segment))
            kept.append(segment)
        self._segments = kept

    def _joined(self, older: Flush, newer: Flush) -> list[Pending]:
        both = PendingKeys(self._lane_id)
        both.absorb(older.slots)
        both.absorb(newer.slots)
        return list(both.all())


def _unseen(*segments: Flush) -> bool:
    """Whether some member may have to be told what for others is nothing; such stay apart."""
    return any(slot.unseen for segment in segments for slot in segment.slots)


class StatefulLane(Lane):
    """For whatever a board does not know: how many messages, deltas, reducers, a key's own time.

    Held messages stand in slots. A flush moves the slots that are due into a segment; whoever is
    behind gets its segments put together. Positions count segments.
    """

    def __init__(self, lane_id: LaneId, board: Board) -> None:
        super().__init__(lane_id, board, position=0)
        self._tick_ns = max(1, min(lane_id.interval_ns // 20, TICK_NS_MAX))
        # A full queue is looked at for each member; what an interval holds is for none.
        self._merges = Merges.of(lane_id.merge) if lane_id.always else None
        self._fold = fold_of(lane_id.merge, self._merges)
        self._delta = DeltaWriter(lane_id) if lane_id.delta else None
        self._never = matcher(lane_id.never, "")
        self._flush_on = matcher(lane_id.flush_on, "")
        self._joins = 0
        self._held = PendingKeys(lane_id)
        self._heap: list[tuple[Instant, int, Pending]] = []
        self._order = count()
        self._released: list[list[Pending]] = []
        self._segments = Flushes(lane_id)
        self._last_flush: dict[str, Instant] = {}
        self._batch_joins = self._batch_low = self._told_through = 0
        self._news = ChangeSuppression(self._delta if lane_id.no_empties else None)

    def accept(self, changes: Sequence[Change], now: Instant) -> None:
        for change in changes:
            frame = change.frame
            if isinstance(frame, Tombstone):
                if self.id.oof:
                    self._hold(
                        PendingPart(self._joins, frame, None, is_new=False, gone=frame), change, now
                    )
                continue
            if self._flush_on is not None and self._flush_on(frame.payload, frame.key):
                self._release()
            part = PendingPart(
                self._joins,
                frame,
                Receipt(1, frame.offset, frame.timestamp_ms),
                is_new=change.replaced is None,
                patch=None if self._delta is None else self._delta.change_of(change),
                fold=None if self._fold is None else self._fold(frame.payload),
            )
            self._hold(part, change, now)
        self._arm(now)

    def flush(self, now: Instant) -> bool:
        groups = [*self._released, self._due(now)]
        self._released = []
        since, rows, joins = self.position, list[Frame](), [self._joins]
        for slots in groups:
            slots.sort(key=lambda slot: slot.order)
            told = [slot for slot in slots if self._news.is_news(slot, self._payload)]
            if self.id.leading:
                self._note_flushed(told, now)
            if told:
                self.position += 1
                rows += self._rows(told, slots)
                newest = max(slot.newest.frame.offset for slot in told)
                self._told_through = max(self._told_through, newest)
                joins += [slot.parts[0].joins for slot in told]
                self._segments.add(self.position, told)
        self._batch_joins = min(joins)
        self._arm(now)
        self._batch_low = self.low_water()
        self.batch = Batch(rows, since, self.position, self._placed(self._batch_low))
        self._segments.drop({member.position for member in self.members.values()})
        if self._merges is not None:
            self._merges.forget()
        return self.position > since

    def join(self, member: Member) -> None:
        self._joins += 1
        member.position, member.joins = self.position, self._joins

    def in_step(self, member: Member, batch: Batch) -> bool:
        """Only once nothing is held that a member joined with: no row twice, no id back."""
        fresh = self._batch_low >= member.cut
        started = self._batch_joins >= member.joins
        return fresh and started and batch.since == member.position

    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        behind = self._segments.after(member.position, member.joins)
        has_base = self._has_base(member)
        rows = [row for _, row in self._answer_rows(behind, has_base=has_base)]
        low_water = self._placed(max(self.low_water(), member.cut))
        batch = Batch(rows, member.position, self.position, low_water)
        for row_key, unreported in self._unseen(behind.all()):  # older than any row of their key
            member.miss(row_key, unreported)
        return batch if member.knows(rows) else self._own_terms(member, batch)

    def _has_base(self, member: Member) -> bool:
        """Whether it holds what deltas are against, though not in step with what others count."""
        is_fresh = self._batch_low >= member.cut
        return is_fresh and self._segments.is_next(member.position, member.joins)

    def pending(self, member: Member) -> list[Pair]:
        return self._answer_rows(self._ahead(member))

    def unreported(self, member: Member) -> list[tuple[str, Unreported]]:
        kept = (part for part in self._news.kept() if part.joins >= member.joins)
        found = [(part.frame.key, _unreported(part, self.id)) for part in kept]
        return [*found, *self._unseen(self._ahead(member).all())]

    def left_behind(self, member: Member) -> tuple[list[Pair], list[tuple[str, Unreported]]]:
        """What came and went stands between what was flushed and what is held of its key."""
        slots = self._ahead(member, self._news.unseen())
        kept = (part for part in self._news.kept() if part.joins >= member.joins)
        empty = [(part.frame.key, _unreported(part, self.id)) for part in kept if part.gone is None]
        return self._answer_rows(slots), [*empty, *self._unseen(slots.all())]

    def _ahead(self, member: Member, unseen: Iterable[Pending] = ()) -> PendingKeys:
        """All that the member has not got."""
        slots = self._segments.after(member.position, member.joins)
        for flush in (unseen, *self._released, self._held.all()):
            slots.absorb(flush, member.joins)
        return slots

    def _unseen(self, slots: Iterable[Pending]) -> list[tuple[str, Unreported]]:
        """What of these nobody is told of."""
        parts = [part for slot in slots if (part := slot.whole()) is not None]
        return [(part.frame.key, _unreported(part, self.id)) for part in parts if part.is_unseen]

    def alike(self) -> Iterable[Sequence[Member]]:
        """Who joined between the same parts of what is held or kept is told the same of it."""
        slots = [*self._held.all(), *chain(*self._released), *self._segments.all()]
        joins = sorted({part.joins for slot in slots for part in slot.parts})
        is_plain = not any(slot.unseen for slot in slots)

        def kin(member: Member) -> Hashable:
            if not is_plain:
                return member.place
            return member.position, bisect_left(joins, member.joins)

        return grouped(self.members.values(), kin)

    def held(self, board_key: str | None = None) -> list[Held]:
        slots = self._held.all() if board_key is None else self._held.of_key(board_key)
        return [self._held_in(slot) for slot in slots]

    def needs_board_since(self) -> int | None:
        return None

    def _placed(self, low_water: int) -> int | None:
        """A place to come back to: not one behind which a part of what was combined comes again."""
        is_apart = self._fold is not None and low_water < self._told_through
        return None if is_apart else low_water

    def low_water(self) -> int:
        opened = [slot.opened for slots in self._released for slot in slots[:1]]
        first = self._held.first()
        opened += [] if first is None else [first.opened]
        return min(opened) - 1 if opened else self.board.head

    def _held_in(self, slot: Pending) -> Held:
        part = slot.whole()
        assert part is not None
        messages = 0 if part.count is None else part.count.messages
        return Held(
            slot.board_key, slot.opened, part.frame.offset, slot.due, self._payload(part),
            messages, removed=part.gone is not None,
        )  # fmt: skip

    def _hold(self, part: PendingPart, change: Change, now: Instant) -> None:
        frame = part.frame
        never = self._never is not None and self._never(frame.payload, frame.key)
        sealed = not frame.removed and (frame.exempt or never)
        if self._held.merge(change.board_key, part, sealed=sealed) is not None:
            return
        if not self._held.of_key(change.board_key):
            self._news.note_base(change)
        slot = self._held.open(change.board_key, part, sealed=sealed)
        if not sealed and not self._released:  # else a slot before it may have more to add
            slot.stand_for(self._news.unreported(change.board_key))
        slot.due = self._due_of(slot, now)
        if self.id.pace == "key":
            heappush(self._heap, (slot.due, next(self._order), slot))

    def _due_of(self, slot: Pending, now: Instant) -> Instant:
        """A key's slots leave together, and with `pace=batch` all slots do."""
        elder = self._held.elder(slot, same_key=self.id.pace == "key")
        if elder is not None:
            return elder.due
        due = now + self.id.interval_ns
        if self.id.leading:
            last = self._last_flush.get(slot.board_key)
            if last is None or now - last >= self.id.interval_ns:
                return now
            due = last + self.id.interval_ns
        if self.id.pace == "key":
            return -(-due // self._tick_ns) * self._tick_ns
        return due

    def _release(self) -> None:
        """What is held goes now, before what is about to come."""
        slots = self._held.take_all()
        if slots:
            self._released.append(slots)

    def _due(self, now: Instant) -> list[Pending]:
        if self.id.pace != "key":
            first = self._held.first()
            return self._held.take_all() if first is not None and first.due <= now else []
        slots: list[Pending] = []
        while self._heap and self._heap[0][0] <= now:
            slot = heappop(self._heap)[2]
            if self._held.take(slot):
                slots.append(slot)
        return slots

    def _note_flushed(self, slots: Sequence[Pending], now: Instant) -> None:
        for slot in slots:
            self._last_flush.pop(slot.board_key, None)
            self._last_flush[slot.board_key] = now
        while self._last_flush:
            board_key, last = next(iter(self._last_flush.items()))
            if now - last < self.id.interval_ns:
                return
            del self._last_flush[board_key]

    def _arm(self, now: Instant) -> None:
        if self._released:
            self.deadline = now
        elif self.id.pace == "key":
            while self._heap and not self._held.has(self._heap[0][2]):
                heappop(self._heap)
            self.deadline = self._heap[0][0] if self._heap else None
        else:
            first = self._held.first()
            self.deadline = None if first is None else first.due

    def _rows(self, told: Sequence[Pending], due: Sequence[Pending]) -> list[Frame]:
        """The shared rows: deltas where a key has one slot, so that the base is what was sent."""
        times = Counter(slot.board_key for slot in due)
        rows = [self._row(slot, as_delta=times[slot.board_key] == 1) for slot in told]
        return [row for row in rows if row is not None]

    def _answer_rows(self, slots: PendingKeys, *, has_base: bool = False) -> list[Pair]:
        """What a member is told of its own.

        In full values where it is behind, or may hold something else than what deltas are against.
        """
        rows: list[Pair] = []
        for slot in sorted(slots.all(), key=lambda slot: slot.order):
            is_alone = len(slots.of_key(slot.board_key)) == 1
            row = self._row(slot, as_delta=has_base and is_alone)
            if row is not None:
                rows.append((slot.board_key, row))
        return rows

    def _row(self, slot: Pending, *, as_delta: bool) -> Frame | None:
        part = slot.whole()
        assert part is not None
        payload = self._payload(part)
        patch = None
        if as_delta and self._delta is not None:
            patch = self._delta.finished(part.patch, payload, part.frame.payload)
        row = part.row(payload, patch, self.id, exempt=slot.sealed)
        return row if row is None or not row.removed or self._shown is None else self._shown(row)

    def _payload(self, part: PendingPart) -> bytes:
        payload = part.frame.payload if part.fold is None else part.fold.payload()
        return payload if self.id.select is None else self.id.select.apply(payload)


def _unreported(part: PendingPart, rules: LaneId) -> Unreported:
    """A part that nobody is told of; a removal of nothing counts nothing."""
    count = part.count or Receipt(0, part.frame.offset, part.frame.timestamp_ms)
    return Unreported(count, rules.merge, None if part.fold is None else part.fold.unreported())
