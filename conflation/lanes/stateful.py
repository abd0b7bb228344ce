"""The stateful lane: an interval for all keys or each, with pending entries."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import chain

from tidegate.conflation.boards.board import Board, Pair
from tidegate.conflation.frame import MADE_AT_ONCE, Batch, Frame, Receipt, Tombstone
from tidegate.conflation.lanes.accumulate import Merges, Unreported, accumulator_of
from tidegate.conflation.lanes.catch_up import CatchUpRows
from tidegate.conflation.lanes.delta import ChangeSuppression, DeltaWriter
from tidegate.conflation.lanes.flushes import Flushes, split_groups
from tidegate.conflation.lanes.lane import COMBINING_COST, HeldRow, Lane, Undelivered, grouped
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.lanes.missed import MissedRows, in_send_order, rows_counted
from tidegate.conflation.lanes.part import PendingPart
from tidegate.conflation.lanes.pending import Pending, PendingKeys, copy_entry
from tidegate.conflation.operators.filter import Change, matcher
from tidegate.conflation.steps import finished
from tidegate.conflation.subscription import LaneId
from tidegate.keys.text.duration import MILLISECOND, Instant

TICK_NS_MAX = 50 * MILLISECOND
"""With `pace=key`, keys that are due within a tick are sent together, in one write."""


class StatefulLane(Lane):
    """Keeps what a board does not: receipts, deltas, reducers, exemptions, due times of keys.

    Held messages are pending entries. A flush sends those that are due; a member that is behind
    gets the flushes that it missed, put together. Positions count flushes: with `pace=key` keys
    are not sent in publication order, so an offset cannot say what was sent.
    """

    counts_offsets = False

    def __init__(self, lane_id: LaneId, board: Board) -> None:
        super().__init__(lane_id, board, position=0)
        # CONTRACT 5.1: a twentieth of the interval, at most 50 ms.
        self._tick_ns = max(1, min(lane_id.interval_ns // 20, TICK_NS_MAX))
        # A queue that is always conflated is merged for each member, so equal merges repeat.
        self._merges = Merges.of(lane_id.merge) if lane_id.always else None
        self._accumulate = accumulator_of(lane_id.merge, self._merges)
        self._delta = DeltaWriter(lane_id) if lane_id.delta else None
        self._never = matcher(lane_id.never, "")
        self._flush_on = matcher(lane_id.flush_on, "")
        self._joins = 0
        self._held = PendingKeys(lane_id)
        self._since: Instant | None = None  # when the first deferred message came
        self._heap: list[tuple[Instant, int, Pending]] = []
        self._armed = 0  # entries ever put into the heap; breaks ties there
        # Entries that were released and are not flushed yet, with the number of the group.
        self._released: list[tuple[int, list[Pending]]] = []
        self._groups = 0
        self._group = 0
        self._has_more_parts = False  # the last part of a large flush is not flushed yet
        self._flushes = Flushes(lane_id)
        self._last_flush: dict[str, Instant] = {}
        self._batch_joins = self._batch_low = self._sent_through = 0
        self._suppression = ChangeSuppression(self._delta if lane_id.no_empties else None)

    @property
    def message_cost(self) -> int:
        return COMBINING_COST  # a part for each message, and mostly a join of two

    def accept(self, changes: Sequence[Change], now: Instant) -> None:
        if not changes and self._since is None and self.id.defers_messages:
            self._since = now
        for change in changes:
            frame = change.frame
            if isinstance(frame, Tombstone):
                # Without `oof` no removal is sent, but what is held of the key still is.
                if self.id.oof:
                    self._hold(
                        PendingPart(self._joins, frame, None, is_new=False, gone=frame), change, now
                    )
                continue
            # Before the message is held: it flushes earlier messages, and is held itself.
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
        if not self._has_more_parts:
            self._group = self._next_group()
        due = self._group, self._due(now)
        groups, self._released = split_groups([*self._released, due])
        self.examined = sum(len(entries) for _, entries in groups)
        since, rows, joins = self.position, list[Frame](), [self._joins]
        # What `flush_on` has released is a separate flush: a key may be in it and in the next.
        for group, entries in groups:
            ordered = in_send_order(entries, self.id)
            sending = [
                entry for entry in ordered if self._suppression.lets_pass(entry, self._payload)
            ]
            if self.id.leading:  # `_due_of` needs it only there
                self._note_flushed(sending, now)
            if sending:
                # Only a flush with rows counts: another position would wake every member.
                self.position += 1
                rows += self._rows(sending, entries)
                newest = max(entry.newest.frame.offset for entry in sending)
                self._sent_through = max(self._sent_through, newest)
                # A member that joined after an entry was opened has its first messages in its
                # snapshot, so the shared row would count them twice.
                joins += [entry.oldest.joins for entry in sending]
                self._flushes.add(self.position, sending, group)
        self._batch_joins = min(joins)
        self._arm(now)
        self._batch_low = self.low_water()
        self._has_more_parts = self.deadline is not None and self.deadline <= now
        low_water = self._resumable_id(self._batch_low)
        self.batch = Batch(rows, since, self.position, low_water, has_more=self._has_more_parts)
        self._flushes.drop_suppressed(self.members.values())
        # The batch serves members that took the flush before; only those further back need entries.
        self._flushes.drop({member.position for member in self.members.values()})
        if self._merges is not None:
            self._merges.forget()
        return self.position > since

    def join(self, member: Member) -> None:
        self._joins += 1
        member.position, member.joins = self.position, self._joins

    def in_step(self, member: Member, batch: Batch) -> bool:
        """Return True once nothing from before the member's join was held at the flush.

        Otherwise it would be sent a row twice, or an id from before its join.
        """
        fresh = self._batch_low >= member.cut
        started = self._batch_joins >= member.joins
        return fresh and started and batch.since == member.position

    def may_join_cohort(self, member: Member) -> bool:
        # What is held from before its join is sent only to the others, and so is the count of
        # suppressed messages.
        is_fresh = self.low_water() >= member.cut and self._suppression.is_empty
        return is_fresh and super().may_join_cohort(member)

    def _own_answer(self, member: Member, bytes_max: int) -> Batch:
        rows = finished(self._missed([member]).rows())
        low_water = self._resumable_id(max(self.low_water(), member.cut))
        return Batch(rows, member.position, self.position, low_water, has_more=self._has_more_parts)

    def begin_catch_up(self, members: Collection[Member]) -> CatchUpRows | None:
        first = next(iter(members))
        # The rows of a queue are bounded by its session's limits.
        is_behind = first.position < self.position and not self.id.queues
        if not (is_behind and self._flushes.has_many(first.position)):
            return None
        low_water = self._resumable_id(max(self.low_water(), first.cut))
        build = self._missed(list(members)).build()
        for member in members:
            member.position = self.position
        return CatchUpRows(build, low_water)

    def _missed(self, members: Sequence[Member]) -> MissedRows:
        """Return the rows that members with equal progress are behind; the cut is taken now."""
        first = members[0]
        make = partial(self._rows_in, has_base=self._has_base(first))
        pieces = self._flushes.copied_pieces(first.position)
        return MissedRows(self.id, members, pieces, make, self._unseen)

    def _has_base(self, member: Member) -> bool:
        """Return True if a member that needs its own rows still holds the base of deltas."""
        is_fresh = self._batch_low >= member.cut
        return is_fresh and self._flushes.is_next(member.position, member.joins)

    def pending(self, member: Member) -> list[Pair]:
        return self._answer_rows(self._missing(member))

    def waiting(self, member: Member) -> int:
        flushes = self._flushes.entries_after(member.position)
        entries = chain(flushes, self._released_entries(), self._held.all())
        counted = rows_counted(entries, self.id, member.joins)
        return super().waiting(member) if counted is None else counted

    def unreported(self, member: Member) -> list[tuple[str, Unreported]]:
        kept = (part for part in self._suppression.kept() if part.joins >= member.joins)
        found = [(part.frame.key, part.unreported(self.id)) for part in kept]
        if not self.id.oof:
            return found  # removals are not held
        return [*found, *self._unseen(self._missing(member).all())]

    def undelivered(self, member: Member) -> Undelivered:
        kept = (part for part in self._suppression.kept() if part.joins >= member.joins)
        empty = [(part.frame.key, part.unreported(self.id)) for part in kept if part.gone is None]
        # Keys that came and went belong between what was flushed of them and what is held.
        unseen, flushed = self._suppression.unseen(), self._flushes.copied_pieces(member.position)
        # Copies, as the lane changes its entries.
        held = [list(map(copy_entry, piece)) for piece in (unseen, *self._unflushed())]
        cut = [*flushed, *held]
        missed = MissedRows(self.id, [member], cut, self._rows_in, self._unseen)
        return Undelivered(missed.left(empty), missed.count)

    def _unflushed(self) -> Iterator[Iterable[Pending]]:
        yield from (group for _, group in self._released)
        yield self._held.all()

    def _missing(self, member: Member) -> PendingKeys:
        """Return all entries that the member was not sent."""
        entries = self._flushes.after(member.position, member.joins)
        for flush in self._unflushed():
            entries.absorb(flush, member.joins)
        return entries

    def _unseen(self, entries: Iterable[Pending]) -> list[tuple[str, Unreported]]:
        """Return the messages of keys that came and went, of which no row is sent."""
        gone = (entry for entry in entries if entry.newest.gone is not None)
        parts = [part for entry in gone if (part := entry.whole()) is not None]
        return [(part.frame.key, part.unreported(self.id)) for part in parts if part.is_unseen]

    def by_backlog(self) -> Iterable[Sequence[Member]]:
        if len(self.members) == 1:
            return [list(self.members.values())]
        # Members that joined between the same two parts of all entries get equal rows of them.
        entries = [*self._held.all(), *self._released_entries(), *self._flushes.all()]
        joins = sorted({part.joins for entry in entries for part in entry.parts})
        is_plain = not any(entry.suppressed for entry in entries)

        def kin(member: Member) -> Hashable:
            if not is_plain:
                return member.place
            return member.position, bisect_left(joins, member.joins)

        return grouped(self.members.values(), kin)

    def held(self, board_key: str | None = None) -> list[HeldRow]:
        entries = self._held.all() if board_key is None else self._held.of_key(board_key)
        return [self._held_in(entry) for entry in entries]

    def needs_board_since(self) -> int | None:
        return None  # entries have their frames, tombstones included

    def _resumable_id(self, low_water: int) -> int | None:
        """Return the id of a batch; None if a resume from there would combine messages twice.

        A part of what was combined and sent may lie after this offset, and would be sent again.
        """
        is_apart = self._accumulate is not None and low_water < self._sent_through
        return None if is_apart else low_water

    def low_water(self) -> int:
        opened = [entry.first_offset for _, entries in self._released for entry in entries[:1]]
        first = self._held.first()
        opened += [] if first is None else [first.first_offset]
        return min(opened) - 1 if opened else self.board.head

    def _held_in(self, entry: Pending) -> HeldRow:
        part = entry.whole()
        assert part is not None
        messages = 0 if part.count is None else part.count.messages
        return HeldRow(
            entry.board_key, entry.first_offset, part.frame.offset, entry.due, self._payload(part),
            messages, removed=part.gone is not None,
        )  # fmt: skip

    def _hold(self, part: PendingPart, change: Change, now: Instant) -> None:
        if self._held.is_full(change.board_key, part):
            self._release()
        frame = part.frame
        never = self._never is not None and self._never(frame.payload, frame.key)
        sealed = not frame.removed and (frame.exempt or never)
        if self._held.merge(change.board_key, part, sealed=sealed) is not None:
            return
        if not self._held.of_key(change.board_key):
            self._suppression.record_base(change)
        entry = self._held.open(change.board_key, part, sealed=sealed)
        if not sealed and not self._released:  # else a released entry may be suppressed first
            entry.stand_for(self._suppression.pop_unreported(change.board_key))
        entry.due = self._due_of(entry, now)
        if self.id.pace == "key":
            heappush(self._heap, (entry.due, self._armed, entry))
            self._armed += 1

    def _due_of(self, entry: Pending, now: Instant) -> Instant:
        """Return when an entry is due: with those of its key; with `pace=batch`, with all."""
        elder = self._held.elder(entry, same_key=self.id.pace == "key")
        if elder is not None:
            return elder.due
        due = (now if self._since is None else self._since) + self.id.interval_ns
        if self.id.leading:
            last = self._last_flush.get(entry.board_key)
            if last is None or now - last >= self.id.interval_ns:
                return now
            due = last + self.id.interval_ns
        if self.id.pace == "key":
            # Rounded up to the tick: keys are sent together, and none before its interval ends.
            return -(-due // self._tick_ns) * self._tick_ns
        return due

    def _release(self) -> None:
        """Release what is held, before the next message (`flush_on`, or a bound is reached)."""
        entries = self._held.pop_all()
        if entries:
            self._released.append((self._next_group(), entries))

    def _next_group(self) -> int:
        # No `itertools.count`: from Python 3.14 on it cannot be copied, as a trace needs.
        self._groups += 1
        return self._groups

    def _released_entries(self) -> Iterator[Pending]:
        return chain.from_iterable(entries for _, entries in self._released)

    def _due(self, now: Instant) -> list[Pending]:
        if self.id.pace != "key":
            first = self._held.first()
            if first is None or first.due > now:
                return []
            self._since = None
            return self._held.pop_all()
        entries: list[Pending] = []
        while self._heap and self._heap[0][0] <= now and len(entries) < MADE_AT_ONCE:
            entry = heappop(self._heap)[2]
            if self._held.remove(entry):
                entries.append(entry)
        return entries

    def _note_flushed(self, entries: Sequence[Pending], now: Instant) -> None:
        for entry in entries:
            self._last_flush.pop(entry.board_key, None)
            self._last_flush[entry.board_key] = now
        # In order of time: the first that is younger than an interval ends the search.
        while self._last_flush:
            board_key, last = next(iter(self._last_flush.items()))
            if now - last < self.id.interval_ns:
                return
            del self._last_flush[board_key]

    def _arm(self, now: Instant) -> None:
        if self._released:
            self.deadline = now
        elif self.id.pace == "key":
            # Released entries stay in the heap until they reach its top.
            while self._heap and not self._heap[0][2].is_held:
                heappop(self._heap)
            self.deadline = self._heap[0][0] if self._heap else None
        else:
            first, since = self._held.first(), self._since
            of_deferred = None if since is None else since + self.id.interval_ns
            self.deadline = of_deferred if first is None else first.due

    def _rows(self, sending: Sequence[Pending], due: Sequence[Pending]) -> list[Frame]:
        """Return the shared rows; deltas where a key has one entry: their base is what was sent."""
        times = Counter(entry.board_key for entry in due)
        news = [entry for entry in sending if not entry.suppressed]
        rows = [self._row(entry, as_delta=times[entry.board_key] == 1) for entry in news]
        return [row for row in rows if row is not None]

    def _answer_rows(self, entries: PendingKeys, *, has_base: bool = False) -> list[Pair]:
        """Return rows for one member, by board key, in the order of sending."""
        ordered = in_send_order(entries.all(), self.id)
        return self._rows_in(entries, ordered, has_base=has_base)

    def _rows_in(
        self, entries: PendingKeys, ordered: Iterable[Pending], *, has_base: bool = False
    ) -> list[Pair]:
        """Return the rows of some of these entries.

        They are full values where a member is behind, or may not hold the base of deltas.
        """
        rows: list[Pair] = []
        for entry in ordered:
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
