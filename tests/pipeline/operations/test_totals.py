"""Counts of a stream, batch by batch."""

from __future__ import annotations

from tidegate.pipeline.operations.status import Totals


def test_a_batch_adds_to_what_was_there() -> None:
    once = Totals().with_batch(messages=5, published=3)
    assert once == Totals(1, 5, 3, 0, 0)
    assert once.with_batch(messages=4, published=0, repeated=2, refused=1) == Totals(2, 9, 3, 2, 1)
