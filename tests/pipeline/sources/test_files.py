from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.definitions.files import FileFormat, FilesSource
from pipeline.errors import DefinitionInvalid, HistoryUnreadable
from pipeline.sources.files import read_files
from tests.pipeline.drained import bodies, drained, names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def came_at(path: Path, second: int) -> None:
    os.utime(path, (1_700_000_000 + second, 1_700_000_000 + second))


def csv(folder: Path, **more: object) -> FilesSource:
    return FilesSource(str(folder / "*.csv*"), format=FileFormat.CSV, **more)  # type: ignore[arg-type]  # fields of all types


def parquet(folder: Path) -> FilesSource:
    return FilesSource(str(folder / "*.parquet"), format=FileFormat.PARQUET)


def test_files_sort_by_time_then_name(spark: SparkSession, tmp_path: Path) -> None:
    """Rule 530."""
    for second, name in [(9, "0"), (3, "b c"), (3, "a"), (3, "a0")]:
        path = tmp_path / f"{name}.ndjson"
        path.write_bytes(b'{"n":1}\n{"n":2}')
        came_at(path, second)
    rows = drained(read_files(spark, FilesSource(str(tmp_path / "*.ndjson"))))
    assert names(rows) == [
        f"{name}.ndjson" for name in ("a", "a", "a0", "a0", "b%20c", "b%20c", "0", "0")
    ]
    assert bodies(rows) == ['{"n":1}', '{"n":2}'] * 4
    assert {(row.block, row.position, row.time_ms, row.key) for row in rows} == {(0,) + (None,) * 3}


def test_rows_of_csv_are_objects_of_texts_named_by_the_header(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text('symbol,price,a.b\nA,1.50,"x, ""y"""\nB,,\n')
    with gzip.open(tmp_path / "b.csv.gz", "wt") as packed:
        packed.write("symbol,price,a.b\nC,2,3\n")
    came_at(tmp_path / "a.csv", 1)
    came_at(tmp_path / "b.csv.gz", 2)
    assert [
        json.loads(body or "") for body in bodies(drained(read_files(spark, csv(tmp_path))))
    ] == [
        {"symbol": "A", "price": "1.50", "a.b": 'x, "y"'},
        {"symbol": "B"},
        {"symbol": "C", "price": "2", "a.b": "3"},
    ]


def test_a_schema_gives_the_columns_of_csv_their_types(spark: SparkSession, tmp_path: Path) -> None:
    """Rule 534."""
    schema = (("symbol", "string"), ("price", "double"), ("size", "long"))
    source = csv(tmp_path, schema=schema, delimiter=";", has_header=False)
    (tmp_path / "a.csv").write_text("A;1.50;3\nA;dear;3\nonly one\n{};1;1;1\nB;2;4\n")
    assert bodies(drained(read_files(spark, source))) == [
        '{"symbol":"A","price":1.5,"size":3}',
        "A;dear;3",
        "only one",
        "{};1;1;1",
        '{"symbol":"B","price":2.0,"size":4}',
    ]


def test_a_file_with_another_header_is_not_misread(spark: SparkSession, tmp_path: Path) -> None:
    source = csv(tmp_path, schema=(("symbol", "string"), ("price", "double")))
    (tmp_path / "a.csv").write_text("price,symbol\n1,A\n")
    with pytest.raises(Exception, match="CSV header does not conform to the schema"):
        drained(read_files(spark, source))


def test_columns_that_nothing_tells_are_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DefinitionInvalid, match=r"no file yet .* source.schema"):
        read_files(spark, csv(tmp_path))
    (tmp_path / "a.parquet").write_bytes(b"none of it")
    with pytest.raises(HistoryUnreadable, match="Spark cannot read it"):
        read_files(spark, parquet(tmp_path))


def test_a_row_of_parquet_is_its_value_or_an_object_of_its_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = {
        "value": ['{"k":1}', None, None],
        "key": [None, "[1]", None],
        "timestamp_ms": [5, 6, 7],
    }
    pq.write_table(pa.table(values), tmp_path / "values.parquet")
    rows = drained(read_files(spark, parquet(tmp_path)))
    assert bodies(rows) == ['{"k":1}', None, "null"]
    assert [(row.key, row.time_ms) for row in rows] == [(None, 5), ("[1]", 6), (None, 7)]
    (tmp_path / "columns").mkdir()
    pq.write_table(
        pa.table({"k": [1, 2], "price": [0.5, None]}), tmp_path / "columns" / "a.parquet"
    )
    rows = drained(read_files(spark, parquet(tmp_path / "columns")))
    assert bodies(rows) == ['{"k":1,"price":0.5}', '{"k":2}']
