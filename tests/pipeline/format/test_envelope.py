"""Pages of envelopes become rows, and a page that does not continue is refused."""

from __future__ import annotations

import pytest

from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.format.envelope import (
    ROWS,
    SCHEMA,
    column_batch,
    envelope_batch,
    of_shard,
)

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


def test_rows_follow_one_another() -> None:
    columns = [b'["a"]'] * 2, [b"1", None], [7, None], [None, "deleted"]
    assert column_batch(columns, "e1", [5, 6]).to_pylist() == [
        {
            "offset": 5, "key": '["a"]', "value": "1", "timestamp_ms": 7, "bookmark": "e1-5",
            "removed": None,
        },
        {
            "offset": 6, "key": '["a"]', "value": None, "timestamp_ms": None,
            "bookmark": "e1-6", "removed": "deleted",
        },
    ]  # fmt: skip


def test_no_rows_are_a_batch_too() -> None:
    found = column_batch(([], [], [], []), "e", [])
    assert (found.num_rows, found.schema) == (0, ROWS)
    assert [column.split(" ")[0] for column in SCHEMA.split(", ")] == ROWS.names


def test_a_key_is_of_one_shard_in_every_process() -> None:
    keys = (b'["a"]', b'["b"]', b'["c"]', None)
    batch = column_batch((keys, [b"1"] * 4, [7] * 4, [None] * 4), "e", range(1, 5))
    assert [of_shard(batch, shard, 4)["offset"].to_pylist() for shard in range(4)] == [
        [1, 4], [2], [3], [],
    ]  # fmt: skip
