"""A history is found, and its lines keep their order, in whichever files they are."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.pipeline.columns.blocks import as_published, wrong_line
from tidegate.pipeline.columns.history import (
    check_history,
    is_parquet,
    read_history,
)
from tidegate.pipeline.errors import HistoryUnreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("file", "block", "said"),
    [
        ("", 0, "messages, line 7: no"),
        ("in/a.csv", 0, "a.csv, line 7: no"),
        ("0001\0file:///in/a.csv", 9, "a.csv, line 7 after byte 9: no"),
    ],
)
def test_a_wrong_line_has_a_place(file: str, block: int, said: str) -> None:
    assert str(wrong_line(f"{file}\0{block:019}", 7, "no")) == said


@pytest.mark.parametrize(
    ("files", "asked", "said"),
    [
        ([], "none", "no such file"),
        ([], ".", "no file in this folder"),
        (["_SUCCESS", ".crc"], ".", "no file in this folder"),
        (["a.parquet", "b.ndjson"], ".", "Parquet and other files"),
    ],
)
def test_an_unusable_history_is_an_error(
    tmp_path: Path, files: list[str], asked: str, said: str
) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(HistoryUnreadable, match=said):
        check_history(tmp_path / asked)


def test_parquet_is_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.parquet").touch()
    assert is_parquet(tmp_path)
    assert is_parquet(tmp_path / "deep" / "a.parquet")
    (tmp_path / "b.ndjson.gz").touch()
    assert not is_parquet(tmp_path / "b.ndjson.gz")


def lines_of(spark: SparkSession, path: Path) -> list[tuple[str, bytes, int | None]]:
    rows = as_published(read_history(spark, path)).collect()
    return sorted(
        (row.file.rpartition("/")[2], bytes(row.body).rstrip(b"\n"), row.time_ms) for row in rows
    )


@pytest.mark.spark
@pytest.mark.nightly
def test_text_and_parquet_come_as_lines(spark: SparkSession, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    (texts / "deep").mkdir(parents=True)
    (texts / "a.ndjson").write_bytes(b'{"n":1}\r\n{"n":"\xc3\xa9"}')
    (texts / "deep" / "b b.ndjson.gz").write_bytes(gzip.compress(b'{"n":3}\n'))
    assert lines_of(spark, texts) == [
        ("a.ndjson", b'{"n":"\xc3\xa9"}', None),
        ("a.ndjson", b'{"n":1}\r', None),
        ("b%20b.ndjson.gz", b'{"n":3}', None),
    ]
    archive = tmp_path / "archive.parquet"
    pq.write_table(pa.table({"value": ['{"n":1}'], "timestamp_ms": [7]}), archive)
    assert lines_of(spark, archive) == [("archive.parquet", b'{"n":1}', 7)]
    columns = tmp_path / "columns.parquet"
    pq.write_table(pa.table({"n": [1, None], "a.b": ["x", "y"]}), columns)
    assert lines_of(spark, columns) == [
        ("columns.parquet", b'{"a.b":"y"}', None),
        ("columns.parquet", b'{"n":1,"a.b":"x"}', None),
    ]
    (tmp_path / "not.parquet").write_text("{}")
    with pytest.raises(HistoryUnreadable, match="cannot read it as Parquet"):
        read_history(spark, tmp_path / "not.parquet")
