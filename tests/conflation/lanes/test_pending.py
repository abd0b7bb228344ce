"""Slots by key: which of them a message may join, and in what order they stand."""

from __future__ import annotations

from typing import Any

from tests.support.rules import rule
from tests.support.world import make_frames, token
from tidegate.conflation.frame import Receipt
from tidegate.conflation.lane_id import FeedId, LaneId
from tidegate.conflation.lanes.pending import PendingKeys, PendingPart
from tidegate.keys.merging import Matcher
from tidegate.keys.spec import KeySpec

KEY = KeySpec.parse("[/k]")


def held(text: str, **rules: Any) -> PendingKeys:
    """The slots of an interval in which these messages came; `!a1` is one that is sealed."""
    slots = PendingKeys(LaneId(FeedId(KEY), 1_000_000_000, "key", **rules))
    frames = make_frames(text.replace("!", ""))
    for word, frame in zip(text.split(), frames, strict=True):
        part = PendingPart(0, frame, Receipt(1, frame.offset, 0), is_new=True)
        sealed = word.startswith("!")
        if not slots.merge(frame.key, part, sealed=sealed):
            slots.open(frame.key, part, sealed=sealed)
    return slots


def flushed(slots: PendingKeys) -> str:
    """Rows in the order of a flush, each with the messages that it stands for."""
    rows = []
    for slot in sorted(slots.all(), key=lambda slot: slot.order):
        part = slot.whole()
        assert part is not None
        assert part.count is not None
        rows.append(f"{token(part.frame)}*{part.count.messages}")
    return " ".join(rows)


@rule("merge-4")
def test_append_puts_the_survivor_at_the_end() -> None:
    """Rule merge-4, and the figure of simple append conflation."""
    assert flushed(held("a1 b1 c1 a2 c2")) == "b1*1 a2*2 c2*2"


@rule("merge-4")
def test_replace_gives_the_survivor_the_slot_of_the_first() -> None:
    """Rule merge-4, and the figure of simple replace conflation."""
    assert flushed(held("a1 b1 c1 a2 c2", replaces=True)) == "a2*2 b1*1 c2*2"


@rule("merge-1")
def test_a_sealed_message_neither_replaces_nor_is_replaced() -> None:
    assert flushed(held("a1 !a2 a3 !a4")) == "a2*1 a3*2 a4*1"


@rule("merge-5")
def test_only_messages_that_match_replace_one_another() -> None:
    """Fields of the message."""
    by_group = held("aX1 aY2 aX3 aY4 aX5", match=KeySpec.parse("[/g]"))
    assert flushed(by_group) == "aY4*2 aX5*3"


@rule("merge-5")
def test_a_registered_matcher_looks_from_the_newest_slot_to_the_oldest() -> None:
    """As Diffusion's scan of a queue."""
    parity = Matcher("m:parity", lambda held, new: held["v"] % 2 == new["v"] % 2)
    assert flushed(held("a1 a2 a3 a4", match=parity)) == "a3*2 a4*2"


def test_a_slot_is_taken_once() -> None:
    slots = held("a1 b1")
    first = slots.first()
    assert first is not None
    assert slots.take(first)
    assert not slots.take(first)
    assert [slot.board_key for slot in slots.take_all()] == ['["b"]']
    assert slots.first() is None
