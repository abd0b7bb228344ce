"""Decisions: what was decided for a message or a row of one subscription, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from conflation.count import count_of
from conflation.duration import Instant
from conflation.frame import Frame, Row, Tombstone
from conflation.lane_id import LaneId, Window
from conflation.lanes.lane import Held
from keys.merging import Merger


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


def counted(slot: Held, known: Held | None) -> Held:
    """With its messages where the lane does not count them, if they were seen from the first."""
    earlier = 0 if known is None else known.messages
    if slot.messages is not None or earlier is None:
        return slot
    return slot._replace(messages=earlier + (not slot.removed))


def of_slot(what: What, slot: Held, now: Instant, *, why: str = "") -> Decision:
    """Something about a row that is held, or was."""
    due = slot.due if what is What.HELD else None
    messages = slot.messages or None
    return Decision(now, what, slot.board_key, slot.offset, messages=messages, due=due, why=why)


def joined(lane_id: LaneId, known: Held, slot: Held, row: Frame, now: Instant) -> Decision:
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


def delivered(row: Frame, now: Instant) -> Decision:
    """A row was handed to the stream."""
    count = count_of(row)
    why = "delta" if isinstance(row, Row) and row.patch is not None else ""
    if isinstance(row, Tombstone):
        why = row.reason
    first = count.first if count.messages > 1 else None
    messages = count.messages or None
    return Decision(now, What.DELIVERED, row.key, row.offset, first, messages, why=why)


def why_filtered(lane_id: LaneId, frame: Frame) -> str:
    """Why a message did nothing to the board."""
    if isinstance(lane_id.feed.shape, Window):
        return "outside the window"
    return "filter" if lane_id.feed.filter is not None and not frame.removed else "no row"


def why_untold(lane_id: LaneId, row: Frame) -> str:
    """Why nothing is held of a row that is on the board."""
    if not row.removed:
        return "no change"
    return "came and went" if lane_id.oof else "no oof"
