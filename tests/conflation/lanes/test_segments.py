"""Segments: flushes that somebody is still behind, and no more of them than that."""

from __future__ import annotations

from tests.support.rules import rule
from tests.support.world import make_frames, token
from tidegate.conflation.frame import Receipt
from tidegate.conflation.lane_id import FeedId, LaneId
from tidegate.conflation.lanes.pending import Flushes, Pending, PendingPart
from tidegate.keys.spec import KeySpec

LANE = LaneId(FeedId(KeySpec.parse("[/k]")), 1_000_000_000, "key")


def flush(text: str, first: int) -> list[Pending]:
    return [
        Pending(
            frame.key,
            [PendingPart(0, frame, Receipt(1, frame.offset, 0), is_new=False)],
            0,
            frame.offset,
            frame.offset,
        )
        for frame in make_frames(text, first)
    ]


def behind(segments: Flushes, position: int) -> str:
    slots = segments.after(position, 0).all()
    return " ".join(token(slot.newest.frame) for slot in sorted(slots, key=lambda s: s.order))


@rule("delta-6")
def test_who_is_behind_gets_what_it_missed_put_together() -> None:
    segments = Flushes(LANE)
    segments.add(1, flush("a1 b1", 1))
    segments.add(2, flush("a2", 3))
    segments.add(3, flush("c1", 4))
    assert [behind(segments, position) for position in range(4)] == ["b1 a2 c1", "a2 c1", "c1", ""]


def test_neighbours_become_one_where_nobody_stands_between() -> None:
    """Law 3: a slow member costs its changed keys, not the flushes that it missed."""
    segments = Flushes(LANE)
    for position in range(1, 50):
        segments.add(position, flush(f"a{position}", position))
        segments.drop({0, position})
    assert len(segments) == 1
    assert behind(segments, 0) == "a49"


def test_what_everybody_has_is_forgotten() -> None:
    segments = Flushes(LANE)
    segments.add(1, flush("a1", 1))
    segments.add(2, flush("a2", 2))
    segments.drop({1, 2})
    assert len(segments) == 1
    segments.drop({2})
    assert len(segments) == 0
    segments.add(3, flush("a3", 3))
    segments.drop(set())
    assert len(segments) == 0
