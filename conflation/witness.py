"""A witness: what becomes of each message for one subscription, seen at its lane from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from conflation.count import count_of
from conflation.duration import Instant
from conflation.frame import Frame, Row, Tombstone
from conflation.lane_id import LaneId, Window
from conflation.lanes.lane import Held, Lane
from conflation.lanes.list_lane import ListLane
from conflation.merging import Merger
from conflation.outputs import Output, Rows
from conflation.sessions.session import Seat
from conflation.subscription import Command


class What(StrEnum):
    """What was decided."""

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
    """One decision. `offset` is the message's, of a flush or a take its low-water mark.

    `earlier` is the message that it replaces, is merged with, or, delivered, the first that it
    stands for; `messages` how many it stands for now; `rows` how many rows it is about.
    """

    now: Instant
    what: What
    board_key: str | None = None
    offset: int | None = None
    earlier: int | None = None
    messages: int | None = None
    rows: int | None = None
    due: Instant | None = None
    why: str = ""


class Witness:
    """Looks at a seat after each call, and knows what it saw before.

    A look costs the keys that the call was about: one for a message, for a flush or a take its
    rows.
    """

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._held: dict[str, list[Held]] = {}
        self._released: list[Held] = []
        self._awaited: dict[str, Frame] = {}
        self._batch = None if seat.lane is None else seat.lane.batch
        self._look()

    @property
    def held(self) -> int:
        """Rows that are held now."""
        return sum(len(slots) for slots in self._held.values())

    def message(self, frame: Frame, now: Instant) -> Iterator[Decision]:
        """What became of a message that has just been published, alone."""
        lane, feed = self._seat.lane, self._seat.feed
        if lane is None or feed is None:
            yield self._without_lane(frame, now)
            return
        feed.settle()
        changed = feed.board.rows(frame.offset - 1, oof=True)
        if not changed:
            why = _why_filtered(lane.id, frame)
            yield Decision(now, What.FILTERED, frame.key, frame.offset, why=why)
        for board_key, row in changed:
            why = row.reason if isinstance(row, Tombstone) else ""
            yield Decision(now, What.ACCEPTED, board_key, frame.offset, why=why)
            yield from self._holding(lane, board_key, row, now)

    def flushed(self, now: Instant) -> Iterator[Decision]:
        """What the lane let go, and what of it nobody is told."""
        lane = self._seat.lane
        batch = None if lane is None else lane.batch
        if lane is None or batch is None or batch is self._batch:
            return
        self._batch = batch
        before = [*self._released, *(slot for slots in self._held.values() for slot in slots)]
        self._released = []
        self._look()
        yield Decision(now, What.FLUSHED, offset=batch.low_water, rows=len(batch.frames))
        told = {row.offset for row in batch.frames}
        for slot in before:
            if slot.offset not in told and not self._holds(slot):
                why = "came and went" if slot.removed or not lane.id.no_empties else "no change"
                yield _of_slot(What.SUPPRESSED, slot, now, why=why)
        for row in batch.frames:
            missed = self._awaited.get(row.key)
            if missed is not None and missed.offset not in told and not isinstance(lane, ListLane):
                at, earlier = row.offset, missed.offset
                yield Decision(now, What.REPLACED, row.key, at, earlier, why="behind")
            self._awaited[row.key] = row

    def conflated(self, before: int, now: Instant) -> Decision:
        """A queue of so many messages was put together by its policy."""
        self._released.clear()
        self._awaited.clear()
        self._held = {}
        after, _ = self._seat.queued()
        return Decision(now, What.CONFLATED, messages=before, rows=after)

    def place(self) -> str:
        """From where the next take will be served."""
        seat, lane = self._seat, self._seat.lane
        if seat.opening is not None:
            return "opening"
        if seat.owed is not None or lane is None:
            return "owed"
        shared = lane.batch
        in_step = shared is not None and lane.ready(seat.member)
        return "in step" if in_step and lane.in_step(seat.member, shared) else "behind"  # type: ignore[arg-type]  # in_step says it is there

    def took(self, place: str, outputs: Sequence[Output], now: Instant) -> Iterator[Decision]:
        """What the session was given, and what it was not, although the lane let it go."""
        batches = [output.batch for output in outputs if isinstance(output, Rows)]
        rows = [row for batch in batches for row in batch.frames]
        low_water = batches[-1].low_water if batches else None
        yield Decision(now, What.TAKEN, offset=low_water, rows=len(rows), why=place)
        for row in rows:
            yield _delivered(row, now)
            awaited = self._awaited.get(row.key)
            if awaited is not None and awaited.offset <= row.offset:
                del self._awaited[row.key]
        yield from self._passed_over(now)

    def _without_lane(self, frame: Frame, now: Instant) -> Decision:
        """A query has its rows already; a replay tells the message in its turn."""
        if self._seat.member.subscription.command is Command.SOW:
            return Decision(now, What.FILTERED, frame.key, frame.offset, why="after the query")
        return Decision(now, What.HELD, frame.key, frame.offset, why="replay")

    def _holding(self, lane: Lane, board_key: str, row: Frame, now: Instant) -> Iterator[Decision]:
        """How what is held of a key differs from what was."""
        if isinstance(lane, ListLane):
            yield from self._listed(lane, board_key, row, now)
            return
        before = {slot.opened: slot for slot in self._held.pop(board_key, ())}
        held: list[Held] = []
        is_told = False
        for slot in lane.held(board_key):
            known = before.pop(slot.opened, None)
            if known is not None and known.offset == slot.offset:
                held.append(known)
                continue
            slot = _counted(slot, known)
            held.append(slot)
            is_told = True
            if known is None:
                yield _of_slot(What.HELD, slot, now, why="apart" if len(held) > 1 else "")
            else:
                yield _joined(lane.id, known, slot, row, now)
        if held:
            self._held[board_key] = held
        if lane.id.flush_on is not None:
            self._released += before.values()
        elif before or not is_told:
            yield Decision(now, What.SUPPRESSED, board_key, row.offset, why=_why_untold(lane, row))

    def _listed(self, lane: Lane, board_key: str, row: Frame, now: Instant) -> Iterator[Decision]:
        """Of a list nothing is replaced: every message waits for its turn."""
        slots = [_counted(slot, None) for slot in lane.held(board_key)]
        self._held.setdefault(board_key, []).extend(slots)
        for slot in slots:
            yield _of_slot(What.HELD, slot, now)
        if not slots:
            yield Decision(now, What.SUPPRESSED, board_key, row.offset, why=_why_untold(lane, row))

    def _passed_over(self, now: Instant) -> Iterator[Decision]:
        """Once a member has all that its lane let go: what of that did not come its way."""
        seat, lane = self._seat, self._seat.lane
        if lane is None or seat.opening is not None or seat.owed is not None:
            return
        if lane.ready(seat.member):
            return
        for row in self._awaited.values():
            if row.offset <= seat.member.cut:
                why = "before its cut"
            elif row.removed:
                why = "never sent" if seat.member.sent is not None else "came and went"
            else:
                why = "superseded"
            yield Decision(now, What.SUPPRESSED, row.key, row.offset, why=why)
        self._awaited.clear()

    def _look(self) -> None:
        self._held = {}
        for slot in () if self._seat.lane is None else self._seat.lane.held():
            self._held.setdefault(slot.board_key, []).append(_counted(slot, None))

    def _holds(self, slot: Held) -> bool:
        held = self._held.get(slot.board_key, ())
        return any(other.opened == slot.opened and other.offset == slot.offset for other in held)


def _counted(slot: Held, known: Held | None) -> Held:
    """With its messages, where the lane does not count them."""
    if slot.messages is not None:
        return slot
    earlier = 0 if known is None or known.messages is None else known.messages
    return slot._replace(messages=earlier + (not slot.removed))


def _of_slot(what: What, slot: Held, now: Instant, *, why: str = "") -> Decision:
    due = slot.due if what is What.HELD else None
    messages = slot.messages or None
    return Decision(now, what, slot.board_key, slot.offset, messages=messages, due=due, why=why)


def _joined(lane_id: LaneId, known: Held, slot: Held, row: Frame, now: Instant) -> Decision:
    """One more message in a slot: in the place of what was there, or put together with it."""
    what, why = What.REPLACED, ""
    if not slot.removed and lane_id.merge is not None:
        what, why = What.MERGED, "reduced"
        if isinstance(lane_id.merge, Merger):
            why = _verdict(known, slot, row)
    elif not slot.removed and lane_id.delta:
        what, why = What.MERGED, "delta"
    return Decision(
        now, what, slot.board_key, slot.offset, known.offset, slot.messages, due=slot.due, why=why
    )


def _verdict(known: Held, slot: Held, row: Frame) -> str:
    """What a merger said, as far as the result shows it."""
    if slot.payload == known.payload:
        return "keep current"
    return "keep new" if slot.payload == row.payload else "merged"


def _delivered(row: Frame, now: Instant) -> Decision:
    count = count_of(row)
    why = "delta" if isinstance(row, Row) and row.patch is not None else ""
    if isinstance(row, Tombstone):
        why = row.reason
    first = count.first if count.messages > 1 else None
    messages = count.messages or None
    return Decision(now, What.DELIVERED, row.key, row.offset, first, messages, why=why)


def _why_filtered(lane_id: LaneId, frame: Frame) -> str:
    if isinstance(lane_id.feed.shape, Window):
        return "outside the window"
    return "filter" if lane_id.feed.filter is not None and not frame.removed else "no row"


def _why_untold(lane: Lane, row: Frame) -> str:
    if not row.removed:
        return "no change"
    return "came and went" if lane.id.oof else "no oof"
