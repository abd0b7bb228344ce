"""What a row stands for."""

from __future__ import annotations

from conflation.count import Count, count_of
from conflation.frame import Frame, Row

FRAME = Frame(7, b"v", "k", 70)


def test_a_message_stands_for_itself() -> None:
    assert count_of(FRAME) == Count(1, 7, 70)
    assert count_of(FRAME).on(FRAME) is FRAME


def test_what_came_before_is_added_and_its_first_stays() -> None:
    """Rule 212."""
    count = Count(2, 3, 30).then(count_of(FRAME))
    row = count.on(FRAME)
    assert row == Row(7, b"v", "k", 70, first=3, first_ms=30, messages=3)
    assert count_of(row) == count
