"""Frames and batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflation.frame import Batch, Frame, prefix_within
from tests.support.world import make_frames


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


def test_a_batch_counts_its_bytes_and_names_first_messages() -> None:
    frames = make_frames("a1 b1", first=4)
    batch = Batch(frames, 3, 5, 5)
    assert (batch.payload_bytes, list(batch.firsts)) == (
        sum(len(f.payload) for f in frames),
        [4, 5],
    )
    assert list(Batch(frames, 3, 5, 5, [1, 5]).firsts) == [1, 5]


def test_a_batch_without_its_id_has_the_same_rows_and_bytes_of_its_own() -> None:
    batch = Batch(make_frames("a1"), 0, 1, 1, [1])
    batch.encoded["value"] = b"id: 1"
    other = batch.without_id()
    assert (other.frames, other.low_water, other.encoded) == (batch.frames, None, {})
