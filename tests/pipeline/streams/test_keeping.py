from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.deliveries import cut_messages
from tidegate.pipeline.columns.intervals import Interval, Pace
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.sinks.sink import Batch
from tidegate.pipeline.streams.shard_state import Keeping, ShardState, conflate_shards

SECOND = 1_000_000_000
ASKED = Conflation(
    KeySpec.of(["/k"]), Interval(SECOND, Pace.KEY), TimeField(FieldPath.parse("/t")),
    sets_aside=True,
)  # fmt: skip


def conflated(folder: Path, number: int, *bodies: bytes, is_end: bool = False) -> list[object]:
    """What the only shard sends in a batch."""
    batch, held = Batch(number, 1, "q", is_end=is_end), ShardState(folder)
    before = held.before(batch)
    keeping = Keeping(ASKED, held, batch, before, held.shards(before, 1), now_ms=None)
    rows = [{"file": f"{number}", "block": 0, "body": body} for body in bodies]
    published = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(PUBLISHED))
    blocks = cut_messages(iter([published]), ASKED, 1)
    found = [row for told in conflate_shards(blocks, keeping) for row in told.to_pylist()]
    return [row["refused"] or (row["key"], row["messages"]) for row in found]


def test_what_is_held_goes_on_with_the_next_batch(tmp_path: Path) -> None:
    line = b'{"k":%d,"t":%d}'
    assert conflated(tmp_path, 0, line % (1, 1_000), line % (2, 1_500)) == []
    assert conflated(tmp_path, 1, line % (1, 1_900), b"{}", line % (2, 2_400)) == [
        "key-missing: the message has no field /k",
        ("[1]", 2),
    ]
    assert conflated(tmp_path, 1, line % (1, 1_900), line % (2, 2_400)) == [("[1]", 2)]
    assert conflated(tmp_path, 1, line % (2, 0), is_end=True) == [("[2]", 3)]


def test_a_shard_does_not_begin_anew_where_it_has_held_something(tmp_path: Path) -> None:
    conflated(tmp_path, 0, b'{"k":1,"t":1}')
    ShardState(tmp_path).path("000000000", 0).write_bytes(b"")
    with pytest.raises(Exception, match="missing or damaged"):
        conflated(tmp_path, 1, b'{"k":1,"t":1}')
