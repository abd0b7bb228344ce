from __future__ import annotations

import pytest

from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.format.envelope import envelope_batch

FIRST = b'{"topic":"t","op":"publish","key":["IBM",7],"bookmark":"e1-5","value":{"px" : 1.0e0}}\n'
SECOND = b'{"value":"\xc3\xa9","bookmark":"e1-6","key":null,"timestamp":"2026-01-01T00:00:01.5Z"}\n'
THIRD = b'{"bookmark":"e1-7","value":null,"timestamp":1500}\n'


def test_rows_hold_the_json_text_as_published() -> None:
    rows = envelope_batch(FIRST + SECOND + THIRD, "e1", 4).to_pylist()
    assert [row["value"] for row in rows] == ['{"px" : 1.0e0}', '"é"', "null"]
    assert [row["key"] for row in rows] == ['["IBM",7]', None, None]
    assert [row["offset"] for row in rows] == [5, 6, 7]
    assert [row["bookmark"] for row in rows] == ["e1-5", "e1-6", "e1-7"]
    assert [row["timestamp_ms"] for row in rows] == [None, 1767225601500, 1500]


def test_an_empty_page_has_no_rows() -> None:
    assert envelope_batch(b"", "e", 0).num_rows == 0


@pytest.mark.parametrize(
    ("body", "epoch", "after"),
    [(FIRST, "e1", 3), (FIRST + THIRD, "e1", 4), (FIRST, "e2", 4), (FIRST + FIRST, "e1", 4)],
    ids=["trimmed", "gap", "another epoch", "repeated"],
)
def test_a_page_that_does_not_continue_is_refused(body: bytes, epoch: str, after: int) -> None:
    with pytest.raises(SourceLost, match="expected position"):
        envelope_batch(body, epoch, after)
