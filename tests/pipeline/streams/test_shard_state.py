"""The state of shards survives restarts, and lost or damaged state is an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.keys.path import FieldPath
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns import shard as shards_module
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.intake import conflate_blocks, cut_messages
from tidegate.pipeline.columns.rows import (
    ARROW_ROWS,
    ORDER,
    PUBLISHED,
    arrow_schema,
    packed,
    shard_of,
)
from tidegate.pipeline.columns.saving import FAILURES
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.errors import CheckpointUnusable
from tidegate.pipeline.intervals import Interval, Pace
from tidegate.pipeline.sinks.sink import Batch
from tidegate.pipeline.streams.shard_state import NONE, NOTHING, SHARDS, ShardBatch, ShardState


def batch(number: int, *, is_end: bool = False) -> Batch:
    return Batch(number, 1, "q", is_end=is_end)


def table(value: int, shards: int = 2) -> pa.Table:
    found = pa.table({"value": [value]})
    return found.replace_schema_metadata({SHARDS: str(shards)})


def filled(folder: Path, *labels: str) -> ShardState:
    held = ShardState(folder / "held")
    for label in labels:
        for shard in range(2):
            held.write(label, shard, table(shard), attempt=7)
    return held


def test_the_last_write_is_read(tmp_path: Path) -> None:
    held = filled(tmp_path, "000000000")
    held.write("000000000", 1, table(1), attempt=8)
    assert held.read("000000000", 1).to_pylist() == [{"value": 1}]
    assert [path.name for path in sorted((tmp_path / "held/000000000").iterdir())] == [
        "0000.arrow",
        "0001.arrow",
    ]


def test_a_batch_continues_from_the_one_before_or_from_its_end(tmp_path: Path) -> None:
    held = filled(tmp_path, "000000006")
    assert held.before(batch(0)) is None
    assert held.before(batch(7)) == "000000006"
    assert held.before(batch(6, is_end=True)) == "000000006"
    filled(tmp_path, "000000006_end")
    assert held.before(batch(7)) == "000000006"  # the end was begun, not finished
    held.end(6)
    assert held.before(batch(7)) == "000000006_end"
    assert held.before(batch(8)) == "000000007"


def test_shards_are_as_many_as_there_were(tmp_path: Path) -> None:
    held = filled(tmp_path, "000000006")
    assert held.shards(None, 5) == 5
    assert held.shards("000000006", 5) == 2


def test_lost_entries_are_an_error_and_not_skipped(tmp_path: Path) -> None:
    held = filled(tmp_path, "000000006")
    with pytest.raises(CheckpointUnusable, match=r"000000005/0000.arrow is missing or damaged"):
        held.shards("000000005", 2)
    held.path("000000006", 0).write_bytes(b"ARROW1")
    with pytest.raises(CheckpointUnusable, match=r"000000006/0000.arrow is missing or damaged"):
        held.read("000000006", 0)
    filled(tmp_path, "000000006").path("000000006", 1).unlink()
    with pytest.raises(CheckpointUnusable, match=r"000000006/0001.arrow is missing or damaged"):
        held.shards("000000006", 2)


def test_notes_of_the_newest_tables_are_summed_up(tmp_path: Path) -> None:
    held = filled(tmp_path, "000000005", "000000006")
    assert held.total(SHARDS) == 4
    assert held.total(b"unheard of") == 0
    held.path("000000006", 1).write_bytes(b"ARROW1")
    assert held.total(SHARDS) == 2
    assert ShardState(tmp_path / "none").total(SHARDS) == 0


def test_what_no_batch_needs_is_forgotten(tmp_path: Path) -> None:
    labels = ["000000004", "000000005", "000000005_end", "000000006"]
    held = filled(tmp_path, *labels)
    assert held.last is not None
    assert (held.last.name, held.last_number) == ("000000006", 6)
    held.forget(7)
    assert sorted(path.name for path in held.folder.iterdir()) == ["000000006"]
    assert ShardState(tmp_path / "none").last_number is None


SECOND = 1_000_000_000
ASKED = Conflation(
    KeySpec.of(["/k"]), Interval(SECOND, Pace.KEY), TimeField(FieldPath.parse("/t")),
    sets_aside=True,
)  # fmt: skip


def conflated(
    folder: Path, number: int, *bodies: bytes, is_end: bool = False, asked: Conflation = ASKED
) -> list[object]:
    """What all shards send in a batch, of which there is one at first; pages have four messages."""
    batch, held = Batch(number, 1, "q", is_end=is_end), ShardState(folder)
    before = held.before(batch)
    shards = held.shards(before, 1)
    shard_batch = ShardBatch(asked, held, batch, before, shards, now_ms=None)
    rows = [{"file": f"{number}", "block": 0, "body": body} for body in bodies]
    published = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(PUBLISHED))
    pages = (published.slice(at, 4) for at in range(0, max(1, len(rows)), 4))
    cut = pa.Table.from_batches(
        [*cut_messages(pages, asked, shards), *empty_blocks(shards)], ARROW_ROWS
    )
    blocks = iter(cut.sort_by([(name, "ascending") for name in ORDER]).to_batches())
    found = [
        row
        for page in conflate_blocks(blocks, shard_batch.open_shard, shard_batch.end_shard)
        for row in page.to_pylist()
    ]
    return [row["refused"] or (row["key"], row["messages"]) for row in found]


def empty_blocks(shards: int) -> list[pa.RecordBatch]:
    return [packed([NOTHING.block(number, NONE, [], NONE)]) for number in range(shards)]


def test_held_rows_continue_with_the_next_batch(tmp_path: Path) -> None:
    line = b'{"k":%d,"t":%d}'
    assert conflated(tmp_path, 0, line % (1, 1_000), line % (2, 1_500)) == []
    assert conflated(tmp_path, 1, line % (1, 1_900), b"{}", line % (2, 2_400)) == [
        "key-missing: the message has no field /k",
        ("[1]", 2),
    ]
    assert conflated(tmp_path, 1, line % (1, 1_900), line % (2, 2_400)) == [("[1]", 2)]
    assert conflated(tmp_path, 1, line % (2, 0), is_end=True) == [("[2]", 3)]


def test_a_damaged_table_is_an_error(tmp_path: Path) -> None:
    conflated(tmp_path, 0, b'{"k":1,"t":1}')
    ShardState(tmp_path).path("000000000", 0).write_bytes(b"")
    with pytest.raises(Exception, match="missing or damaged"):
        conflated(tmp_path, 1, b'{"k":1,"t":1}')


LINES = [b'{"k":%d,"t":%d,"n":%d}' % (n * 7 % 41, 1_000 + 10 * n, n) for n in range(160)]
SUMS = Reduce.parse("[/n:sum,/n:first@of]")


@pytest.mark.parametrize(
    ("pace", "reduce"),
    [
        (Pace.KEY, SUMS),
        (Pace.BATCH, None),
        pytest.param(Pace.KEY, None, marks=pytest.mark.nightly),
        pytest.param(Pace.BATCH, SUMS, marks=pytest.mark.nightly),
    ],
)
def test_a_large_shard_is_split_and_sends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: Pace, reduce: Reduce | None
) -> None:
    asked = replace(ASKED, interval=Interval(SECOND, pace), reduce=reduce, lateness_ns=SECOND // 10)

    def sent(folder: Path) -> list[list[object]]:
        batches = [LINES[at : at + 80] for at in range(0, len(LINES), 80)]
        found = [conflated(folder, at, *each, asked=asked) for at, each in enumerate(batches)]
        found.append(conflated(folder, len(batches) - 1, is_end=True, asked=asked))
        return [sorted(each, key=str) for each in found]

    expected = sent(tmp_path / "whole")
    monkeypatch.setattr(shards_module, "BYTES_MAX", 3_000)
    assert sent(tmp_path / "split") == expected
    tables = len([*(tmp_path / "split/000000001").iterdir()])
    # In event time with pace=batch all keys share the openings of intervals.
    assert tables == 1 if pace is Pace.BATCH else tables > 4


def test_a_shard_of_one_key_is_not_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "BYTES_MAX", 3_000)
    late = replace(ASKED, lateness_ns=1_000 * SECOND)
    conflated(tmp_path, 0, *(b'{"k":1,"t":%d}' % n for n in range(200)), asked=late)
    assert len([*(tmp_path / "000000000").iterdir()]) == 1


def test_shards_that_were_not_split_are_parts_of_their_tables(tmp_path: Path) -> None:
    held = ShardState(tmp_path)
    keys = [f"[{n}]" for n in range(40)]
    for number, shards in ((0, 8), (1, 2), (2, 8), (4, 8), (6, 8)):
        own = pa.table({"key": [key for key in keys if shard_of(key, shards) == number]})
        notes = {SHARDS: str(shards), FAILURES: "3"}
        held.write("000000000", number, own.replace_schema_metadata(notes), 1)
    assert held.shards("000000000", 2) == 8
    for number in range(8):
        found = held.read("000000000", number, 8)
        assert found.column("key").to_pylist() == [k for k in keys if shard_of(k, 8) == number]
        failures = {1: b"3"}.get(number, b"0") if number % 2 else b"3"
        assert found.schema.metadata[FAILURES] == failures
    held.path("000000000", 4).unlink()
    with pytest.raises(CheckpointUnusable, match=r"000000000/0004.arrow is missing or damaged"):
        held.shards("000000000", 2)
