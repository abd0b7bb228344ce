"""Parts: messages of one key as one, put together in any grouping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.rules import rule
from tidegate.conflation.frame import Frame, Receipt, Tombstone
from tidegate.conflation.lane_id import FeedId, LaneId
from tidegate.conflation.lanes.pending import Pending, PendingPart
from tidegate.keys import patch as patches
from tidegate.keys.spec import KeySpec

RULES = LaneId(FeedId(KeySpec.of(["/k"])))


def message(offset: int, *, is_new: bool = False, patch: bytes | None = None) -> PendingPart:
    frame = Frame(offset, b'{"v":%d}' % offset, "k", offset)
    return PendingPart(0, frame, Receipt(1, offset, offset), is_new=is_new, patch=patch)


def removal(offset: int) -> PendingPart:
    gone = Tombstone(offset, b'{"v":0}', "k")
    return PendingPart(0, gone, None, is_new=False, gone=gone)


def joined(parts: list[PendingPart]) -> PendingPart:
    whole = parts[0]
    for part in parts[1:]:
        together = whole.then(part)
        assert together is not None
        whole = together
    return whole


@rule("delta-6")
@given(st.lists(st.booleans(), min_size=2, max_size=8), st.data())
def test_it_makes_no_difference_where_parts_are_put_together_first(
    values: list[bool], draw: st.DataObject
) -> None:
    """Whoever missed several flushes gets what one would have been."""
    parts = [message(at) if is_value else removal(at) for at, is_value in enumerate(values, 1)]
    cut = draw.draw(st.integers(1, len(parts) - 1))
    assert joined([joined(parts[:cut]), joined(parts[cut:])]) == joined(parts)


@rule("delta-6")
def test_counts_add_up_and_the_first_stays_the_first() -> None:
    assert joined([message(3), message(5), message(9)]).count == Receipt(3, 3, 3)


@rule("removal-2")
def test_a_key_that_came_and_went_is_no_row() -> None:
    unseen = joined([message(1, is_new=True), removal(2)])
    assert unseen.row(b"", None, RULES) is None
    left = joined([message(1), removal(2)]).row(b"", None, RULES)
    assert left == Tombstone(2, b'{"v":0}', "k", first=1, first_ms=1, messages=1)


@rule("removal-2", "delta-3")
def test_out_and_back_is_a_full_value() -> None:
    back = joined([removal(1), message(2, is_new=True)])
    assert (back.gone, back.patch, back.is_new) == (None, None, False)


@rule("delta-1")
def test_patches_compose_and_one_that_is_missing_asks_for_the_value() -> None:
    first, second = message(1, patch=b'{"a":1,"b":1}'), message(2, patch=b'{"b":2}')
    whole = joined([first, second])
    assert whole.patch == patches.compose(b'{"a":1,"b":1}', b'{"b":2}')
    assert joined([first, message(3)]).patch is None


@rule("delta-6")
def test_a_slot_tells_who_joined_later_only_what_came_later() -> None:
    """Nothing from before its cut."""
    early, late = message(1), message(2)
    slot = Pending("k", [early, PendingPart(1, late.frame, late.count, is_new=False)], 0, 2, 1)
    whole, own = slot.whole(), slot.whole(1)
    assert whole is not None
    assert own is not None
    assert (whole.count, own.count) == (Receipt(2, 1, 1), Receipt(1, 2, 2))
    assert slot.whole(2) is None
