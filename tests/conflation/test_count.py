"""What a row stands for."""

from __future__ import annotations

from tests.support.rules import rule
from tidegate.conflation.frame import Frame, Receipt, Row, receipt_of

FRAME = Frame(7, b"v", "k", 70)


def test_a_message_stands_for_itself() -> None:
    assert receipt_of(FRAME) == Receipt(1, 7, 70)
    assert receipt_of(FRAME).on(FRAME) is FRAME


@rule("delta-6")
def test_what_came_before_is_added_and_its_first_stays() -> None:
    count = Receipt(2, 3, 30).then(receipt_of(FRAME))
    row = count.on(FRAME)
    assert row == Row(7, b"v", "k", 70, first=3, first_ms=30, messages=3)
    assert receipt_of(row) == count
