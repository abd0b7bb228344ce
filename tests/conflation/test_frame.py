"""Frames and batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.manual_driver import make_frames
from tests.support.rules import rule
from tidegate.conflation.frame import (
    Batch,
    Frame,
    Receipt,
    Row,
    Tombstone,
    prefix_within,
    receipt_of,
)


def test_a_frame_is_immutable() -> None:
    (frame,) = make_frames("a1")
    with pytest.raises(AttributeError):
        frame.offset = 2  # type: ignore[misc]  # frozen, as is shown


@given(st.lists(st.integers(0, 30)), st.integers(0, 100))
def test_a_prefix_is_as_long_as_fits_and_at_least_one_row(sizes: list[int], room: int) -> None:
    frames = [Frame(offset, b"x" * size) for offset, size in enumerate(sizes, 1)]
    count = prefix_within(frames, room)
    assert count >= min(1, len(frames))
    assert count == 1 or sum(sizes[:count]) <= room
    assert count == len(frames) or sum(sizes[: count + 1]) > room


def test_a_batch_counts_its_bytes_and_its_values() -> None:
    frames = [*make_frames("a1 b1", first=4), Tombstone(6, b"gone", "k")]
    batch = Batch(frames, 3, 6, 6)
    assert batch.payload_bytes == sum(len(frame.payload) for frame in frames)
    assert batch.messages() == 2


def test_rows_of_one_offset_are_never_cut_apart() -> None:
    """A board of groups or of a window may change several keys by one message.

    So a prefix holds all rows of its last offset.
    """
    frames = [Frame(offset, b"xxxx", str(n)) for n, offset in enumerate((1, 2, 2, 2, 3))]
    assert [prefix_within(frames, room) for room in (0, 4, 8, 12, 16, 20)] == [1, 1, 4, 4, 4, 5]


@rule("removal-2")
def test_a_tombstone_knows_at_which_positions_its_record_is_held() -> None:
    gone = Tombstone(9, b"v", "k", spans=((1, 3), (5, 9)), put_offset=7)
    assert [position for position in range(11) if gone.held_at(position)] == [1, 2, 5, 6, 7, 8]
    assert gone.as_put() == Frame(7, b"v", "k")


def test_a_row_without_its_patch_is_whole() -> None:
    row = Row(4, b"v", "k", first=2, messages=3, patch=b"{}")
    assert row.whole() == Row(4, b"v", "k", first=2, messages=3)
    assert row.whole().whole() == row.whole()


# What a row stands for.

FRAME = Frame(7, b"v", "k", 70)


def test_a_message_stands_for_itself() -> None:
    assert receipt_of(FRAME) == Receipt(1, 7, 70)
    assert receipt_of(FRAME).on(FRAME) is FRAME


@rule("delta-6")
def test_receipts_add_up_and_keep_the_first_offset() -> None:
    receipt = Receipt(2, 3, 30).then(receipt_of(FRAME))
    row = receipt.on(FRAME)
    assert row == Row(7, b"v", "k", 70, first=3, first_ms=30, messages=3)
    assert receipt_of(row) == receipt
