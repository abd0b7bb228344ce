"""Decisions: what became of each message and row of one subscription, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidegate.conflation.frame import Frame, Row, Tombstone, receipt_of
from tidegate.conflation.lanes.lane import HeldRow, Lane
from tidegate.conflation.outputs import Output, Rows
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.subscription import Command, LaneId, Window
from tidegate.keys.merging import Merger
from tidegate.keys.text.duration import Instant


class DecisionKind(StrEnum):
    """Kinds of decisions."""

    ACCEPTED = "accepted"
    FILTERED = "filtered"
    HELD = "held"
    REPLACED = "replaced"
    MERGED = "merged"
    FLUSHED = "flushed"
    SUPPRESSED = "suppressed"
    CONFLATED = "conflated"
    TAKEN = "taken"
    DELIVERED = "delivered"
    CHANGED = "changed"
    MOVED = "moved"
    UNSUBSCRIBED = "unsubscribed"


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision.

    Attributes:
        offset: that of the message; of a flush or a take its low-water mark.
        earlier: the message that it replaces or is merged with; of a delivered row the first
            message that it stands for.
        messages: how many it stands for now.
        rows: how many rows the decision is about.
    """

    now: Instant
    what: DecisionKind
    board_key: str | None = None
    offset: int | None = None
    earlier: int | None = None
    messages: int | None = None
    rows: int | None = None
    due: Instant | None = None
    why: str = ""


def counted(entry: HeldRow, known: HeldRow | None) -> HeldRow:
    """Add the count of messages where the lane has none, if all were seen from the first on."""
    # Unknown stays unknown: a count from the middle on would be too low.
    earlier = 0 if known is None else known.messages
    if entry.messages is not None or earlier is None:
        return entry
    return entry._replace(messages=earlier + (not entry.removed))


def of_entry(what: DecisionKind, entry: HeldRow, now: Instant, *, why: str = "") -> Decision:
    """Return a decision about a row that is or was held."""
    due = entry.due if what is DecisionKind.HELD else None
    messages = entry.messages or None
    return Decision(now, what, entry.board_key, entry.offset, messages=messages, due=due, why=why)


def joined(lane_id: LaneId, known: HeldRow, entry: HeldRow, row: Frame, now: Instant) -> Decision:
    """Return what a message did to a held row: replaced it, or was merged with it."""
    what, why = DecisionKind.REPLACED, ""
    if not entry.removed and lane_id.merge is not None:
        what, why = DecisionKind.MERGED, "reduced"
        if isinstance(lane_id.merge, Merger):
            why = _verdict(known, entry, row)
    elif not entry.removed and lane_id.delta:
        what, why = DecisionKind.MERGED, "delta"
    return Decision(
        now,
        what,
        entry.board_key,
        entry.offset,
        known.offset,
        entry.messages,
        due=entry.due,
        why=why,
    )


def _verdict(known: HeldRow, entry: HeldRow, row: Frame) -> str:
    """Return what a merger answered, as far as the result shows it."""
    if entry.payload == known.payload:
        return "keep current"
    return "keep new" if entry.payload == row.payload else "merged"


def delivered(row: Frame, now: Instant) -> Decision:
    """Return the decision that a row was handed to the stream."""
    count = receipt_of(row)
    why = "delta" if isinstance(row, Row) and row.patch is not None else ""
    if isinstance(row, Tombstone):
        why = row.reason
    first = count.first if count.messages > 1 else None
    messages = count.messages or None
    return Decision(now, DecisionKind.DELIVERED, row.key, row.offset, first, messages, why=why)


def why_filtered(lane_id: LaneId, frame: Frame) -> str:
    """Return why a message did nothing to the board."""
    if isinstance(lane_id.feed.shape, Window):
        return "outside the window"
    return "filter" if lane_id.feed.filter is not None and not frame.removed else "no row"


def why_not_held(lane_id: LaneId, row: Frame) -> str:
    """Return why nothing is held of a row that is on the board."""
    if not row.removed:
        return "no change"
    return "came and went" if lane_id.oof else "no oof"


# --- The observer: what becomes of each message for one subscription, seen from outside its lane


SENT_BEFORE = "sent before"


class DecisionObserver:
    """Looks at a subscriber after each call, and compares with what it saw before.

    A look costs the keys that the call was about: one for a message, its rows for a flush or a
    take.
    """

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self._held: dict[str, list[HeldRow]] = {}
        self._due: dict[Instant, dict[str, None]] = {}
        self._released: list[HeldRow] = []
        self._awaited: dict[str, Frame] = {}
        self._batch = None if subscriber.lane is None else subscriber.lane.batch
        if subscriber.lane is not None and not subscriber.lane.id.lists:
            self._look(subscriber.lane)

    def message(self, frame: Frame, now: Instant) -> Iterator[Decision]:
        """Yield what became of a message that has just been published, alone."""
        lane, feed = self._subscriber.lane, self._subscriber.feed
        if lane is None or feed is None:
            yield self._without_lane(frame, now)
            return
        # It was published alone, so what the board has since the offset before is its doing.
        changed = feed.board.rows(frame.offset - 1, oof=True)
        deferred_keys = feed.deferred_keys(frame.offset)
        if not changed and not deferred_keys:
            why = why_filtered(lane.id, frame)
            yield Decision(now, DecisionKind.FILTERED, frame.key, frame.offset, why=why)
        for board_key, row in changed:
            why = row.reason if isinstance(row, Tombstone) else ""
            yield Decision(now, DecisionKind.ACCEPTED, board_key, frame.offset, why=why)
            yield from self._holding(lane, board_key, row, now)
        for board_key in deferred_keys:
            yield Decision(now, DecisionKind.ACCEPTED, board_key, frame.offset)
            yield self._grouping(lane, board_key, frame, now)

    def flushed(self, now: Instant) -> Iterator[Decision]:
        """Yield what the lane flushed, and what of it is not sent."""
        lane = self._subscriber.lane
        batch = None if lane is None else lane.batch
        # Every flush makes a new batch, so the same object means that nothing was flushed.
        if lane is None or batch is None or batch is self._batch:
            return
        self._batch = batch
        yield Decision(now, DecisionKind.FLUSHED, offset=batch.low_water, rows=len(batch.frames))
        # A message is one row, but of a window or of groups it may be several.
        by_key = lane.id.feed.shape is not None
        flushed = {(row.offset, row.key if by_key else "") for row in batch.frames}
        silent = {
            place: entry
            for entry in self._released_rows(lane, now)
            if (place := (entry.offset, entry.board_key if by_key else "")) not in flushed
        }
        rows = [*batch.frames]
        # Rows that only this member is sent, as it joined while they were held, and those of other
        # parts of a large flush.
        for _, row in lane.pending(self._subscriber.member) if silent else ():
            if silent.pop((row.offset, row.key if by_key else ""), None) is not None:
                rows.append(row)
        for entry in silent.values():
            why = "came and went" if entry.removed or not lane.id.no_empties else "no change"
            yield of_entry(DecisionKind.SUPPRESSED, entry, now, why=why)
        yield from self._let_wait(lane, rows, now)

    def _let_wait(self, lane: Lane, rows: Sequence[Frame], now: Instant) -> Iterator[Decision]:
        """Yield which rows of earlier flushes the flushed ones replace; a list replaces none."""
        # Before any of these rows is noted: two rows of one key in a flush do not replace one
        # another.
        missed = {row.key: self._awaited.get(row.key) for row in rows}
        for row in rows:
            if lane.has_sent(self._subscriber.member, row):
                yield Decision(now, DecisionKind.SUPPRESSED, row.key, row.offset, why=SENT_BEFORE)
                continue
            self._awaited[row.key] = row
            older = missed.pop(row.key, None)
            # The same row was noted already where a large flush goes in parts.
            if older is not None and older.offset < row.offset and not lane.id.lists:
                yield Decision(
                    now, DecisionKind.REPLACED, row.key, row.offset, older.offset, why="behind"
                )

    def conflated(self, before: int, now: Instant) -> Decision:
        """Return the decision that a queue of `before` messages was conflated by its policy."""
        self._awaited.clear()
        after, _ = self._subscriber.queued()  # the queue was replaced: what was awaited is gone
        return Decision(now, DecisionKind.CONFLATED, messages=before, rows=after)

    def place(self) -> str:
        """Return where the next take will be served from."""
        subscriber, lane = self._subscriber, self._subscriber.lane
        if subscriber.backfill is not None:
            return "opening"
        if subscriber.catch_up is not None or lane is None:
            return "owed"
        shared = lane.batch
        in_step = shared is not None and lane.ready(subscriber.member)
        return "in step" if in_step and lane.in_step(subscriber.member, shared) else "behind"  # type: ignore[arg-type]  # in_step says it is there

    def took(self, place: str, outputs: Sequence[Output], now: Instant) -> Iterator[Decision]:
        """Yield what the session was sent, and what it was not although the lane flushed it."""
        batches = [output.batch for output in outputs if isinstance(output, Rows)]
        rows = [row for batch in batches for row in batch.frames]
        low_water = batches[-1].low_water if batches else None
        yield Decision(now, DecisionKind.TAKEN, offset=low_water, rows=len(rows), why=place)
        for row in rows:
            yield delivered(row, now)
            awaited = self._awaited.get(row.key)
            # A catch-up may send an older row of the key first: the flushed one is still to come
            # then.
            if awaited is not None and awaited.offset <= row.offset:
                del self._awaited[row.key]
        yield from self._not_sent(now)

    def _without_lane(self, frame: Frame, now: Instant) -> Decision:
        """Return what becomes of it without a lane: a query is over, a replay gets to it later."""
        if self._subscriber.member.subscription.command is Command.SOW:
            return Decision(
                now, DecisionKind.FILTERED, frame.key, frame.offset, why="after the query"
            )
        return Decision(now, DecisionKind.HELD, frame.key, frame.offset, why="replay")

    def _holding(self, lane: Lane, board_key: str, row: Frame, now: Instant) -> Iterator[Decision]:
        """Yield how what is held of a key differs from before."""
        if lane.id.lists:
            yield from self._listed(lane, board_key, row, now)
            return
        # What is held is known by its first message: that stays while others are merged into it.
        before = {entry.first_offset: entry for entry in self._held.pop(board_key, ())}
        held: list[HeldRow] = []
        is_told = False
        for entry in lane.held(board_key):
            known = before.pop(entry.first_offset, None)
            # The message went to another entry of its key.
            if known is not None and known.offset == entry.offset:
                held.append(known)
                continue
            entry = counted(entry, known)
            held.append(entry)
            self._note_due(entry)
            is_told = True
            if known is None:
                yield of_entry(DecisionKind.HELD, entry, now, why="apart" if len(held) > 1 else "")
            else:
                yield joined(lane.id, known, entry, row, now)
        if held:
            self._held[board_key] = held
        # With `flush_on` the message may have flushed what was held; `flushed` says so then.
        if lane.id.flush_on is not None:
            self._released += before.values()
            self._release(lane)
        elif before or not is_told:
            why = why_not_held(lane.id, row)
            yield Decision(now, DecisionKind.SUPPRESSED, board_key, row.offset, why=why)

    def _grouping(self, lane: Lane, board_key: str, frame: Frame, now: Instant) -> Decision:
        """Return what a message did to a group whose row is made when it is flushed."""
        known = next(iter(self._held.get(board_key, ())), None)
        entry = counted(HeldRow(board_key, 0, frame.offset, lane.deadline, b""), known)
        self._held[board_key] = [entry]
        self._note_due(entry)
        if known is None:
            return of_entry(DecisionKind.HELD, entry, now)
        return joined(lane.id, known, entry, frame, now)

    def _listed(self, lane: Lane, board_key: str, row: Frame, now: Instant) -> Iterator[Decision]:
        """Yield what a list holds of a message; it replaces nothing."""
        entries = lane.held(board_key)
        for entry in entries:
            yield of_entry(DecisionKind.HELD, counted(entry, None), now)
        if not entries:
            why = why_not_held(lane.id, row)
            yield Decision(now, DecisionKind.SUPPRESSED, board_key, row.offset, why=why)

    def _not_sent(self, now: Instant) -> Iterator[Decision]:
        """Yield the flushed rows that a member with everything was not sent, and why."""
        subscriber, lane = self._subscriber, self._subscriber.lane
        # While a cursor has rows, a row that is missing may be on its way.
        if lane is None or subscriber.backfill is not None or subscriber.catch_up is not None:
            return
        if lane.ready(subscriber.member):
            return
        for row in self._awaited.values():
            if row.offset <= subscriber.member.cut:
                why = "before its cut"
            elif row.removed:
                why = "never sent" if subscriber.member.sent is not None else "came and went"
            else:
                why = SENT_BEFORE
            yield Decision(now, DecisionKind.SUPPRESSED, row.key, row.offset, why=why)
        self._awaited.clear()

    def _look(self, lane: Lane) -> None:
        for entry in lane.held():
            self._held.setdefault(entry.board_key, []).append(entry)
            self._note_due(entry)

    def _note_due(self, entry: HeldRow) -> None:
        if entry.due is not None:
            self._due.setdefault(entry.due, {})[entry.board_key] = None

    def _released_rows(self, lane: Lane, now: Instant) -> list[HeldRow]:
        """Return what is not held any more of what was due."""
        gone, self._released = self._released, []
        # By due time: a flush costs the keys that were due, not all that are held.
        for due in [due for due in self._due if due <= now]:
            for board_key in self._due.pop(due):
                gone += self._not_held(lane, board_key)
        return gone

    def _not_held(self, lane: Lane, board_key: str) -> list[HeldRow]:
        """Return what was held of a key and is not any more."""
        before = self._held.pop(board_key, [])
        opened = {entry.first_offset: entry.offset for entry in lane.held(board_key)}
        kept = [entry for entry in before if opened.get(entry.first_offset) == entry.offset]
        if kept:
            self._held[board_key] = kept
        return [entry for entry in before if entry not in kept]

    def _release(self, lane: Lane) -> None:
        """Note that all is flushed if one key is: `flush_on` flushes everything that was held."""
        # Only one key is checked for each message; all of them are at a flush.
        oldest = next(iter(self._held), None)
        if oldest is not None and self._not_held(lane, oldest):
            for board_key in list(self._held):
                self._released += self._not_held(lane, board_key)
