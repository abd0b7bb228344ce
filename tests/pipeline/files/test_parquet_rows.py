"""Each row group is read by the block in which it begins; columns have the kinds asked for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.rules import rule
from tidegate.pipeline.files.block_format import BlockFormat
from tidegate.pipeline.files.objects import Field
from tidegate.pipeline.files.parquet_rows import parquet_rows

FIELDS = (Field("k", "long"), Field("Price", "double"))


def bodies(
    path: Path, block_format: BlockFormat, start: int = 0, end: int = 2**40
) -> list[bytes | None]:
    found = parquet_rows(str(path), block_format, start, end, "")
    return [body for columns in found for body in columns["body"].to_pylist()]


def test_blocks_share_the_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(1_000)}), path, row_group_size=90)
    block_format = BlockFormat("parquet", FIELDS[:1])
    size = path.stat().st_size
    for step in (size, size // 2, 700, 61):
        cut = [bodies(path, block_format, at, at + step) for at in range(0, size, step)]
        assert [body for block in cut for body in block] == [b'{"k":%d}' % n for n in range(1_000)]
        assert sum(map(bool, cut)) == min(12, len([block for block in cut if block]))
    assert len([block for block in cut if block]) == 12


def test_columns_are_found_in_any_case_and_may_be_missing_or_more(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": ["no"], "PRICE": pa.array([1.5], pa.float32())}), path)
    assert bodies(path, BlockFormat("parquet", FIELDS)) == [b'{"Price":1.5}']
    pq.write_table(pa.table({"PRICE": [1.0], "price": [2.0]}), path)
    with pytest.raises(ValueError, match="PRICE, price, which differ in case alone"):
        bodies(path, BlockFormat("parquet", FIELDS))


@rule("pipeline-7")
@pytest.mark.parametrize("wrong", [pa.array(["1"]), pa.array([1.5]), pa.array([[1]])])
def test_a_column_of_another_kind_is_an_error(tmp_path: Path, wrong: pa.Array) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": wrong}), path)
    with pytest.raises(ValueError, match=r"column k is .*, expected long"):
        bodies(path, BlockFormat("parquet", FIELDS))


def test_a_history_has_messages_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = {"value": ["1", None, None], "timestamp_ms": [7, 8, 9], "reason": [None, "gone", None]}
    pq.write_table(pa.table(rows), path)
    fields = (Field("value", "string"), Field("timestamp_ms", "long"), Field("reason", "string"))
    [columns] = parquet_rows(str(path), BlockFormat("parquet", fields, is_history=True), 0, 999, "")
    assert columns["body"].to_pylist() == [b"1", None]
    assert columns["time_ms"].to_pylist() == [7, 9]
    pq.write_table(pa.table({"k": [1.0, float("nan")]}), path)
    block_format = BlockFormat("parquet", (Field("k", "double"),), is_history=True)
    assert bodies(path, block_format) == [b'{"k":1.0}', b'{"k":"NaN"}']
