"""Rows as columns, and the shards of their keys."""

from __future__ import annotations

from tidegate.pipeline.format.envelope import ROWS, SCHEMA, Row, of_shard, row_batch, shard_of


def test_a_row_stands_behind_the_one_before() -> None:
    rows = [Row(b'["a"]', b"1", 7, None), Row(b'["a"]', None, None, "deleted")]
    assert row_batch(rows, "e1", 4).to_pylist() == [
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
    assert (row_batch([], "e", 0).num_rows, row_batch([], "e", 0).schema) == (0, ROWS)
    assert [column.split(" ")[0] for column in SCHEMA.split(", ")] == ROWS.names


def test_a_key_is_of_one_shard_in_every_process() -> None:
    assert [shard_of(text, 4) for text in ('["a"]', '["b"]', '["c"]', None)] == [0, 1, 2, 0]
    rows = [Row(text, b"1", 7, None) for text in (b'["a"]', b'["b"]', b'["c"]', None)]
    batch = row_batch(rows, "e", 0)
    assert [of_shard(batch, shard, 4)["offset"].to_pylist() for shard in range(4)] == [
        [1, 4], [2], [3], [],
    ]  # fmt: skip
