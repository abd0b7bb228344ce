"""Files of NDJSON, CSV and Parquet are read in order, and bad lines are refused."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from tests.pipeline.read_out import bodies, drained, names
from tests.support.rules import rule
from tidegate.pipeline.definitions.source import FileFormat, FilesSource
from tidegate.pipeline.errors import (
    DefinitionInvalid,
    HistoryUnreadable,
    from_spark,
)
from tidegate.pipeline.sources.files import read_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def came_at(path: Path, second: int) -> None:
    os.utime(path, (1_700_000_000 + second, 1_700_000_000 + second))


def csv(folder: Path, **more: object) -> FilesSource:
    return FilesSource(str(folder / "*.csv*"), format=FileFormat.CSV, **more)  # type: ignore[arg-type]  # fields of all types


def parquet(folder: Path) -> FilesSource:
    return FilesSource(str(folder / "*.parquet"), format=FileFormat.PARQUET)


@pytest.mark.nightly
@pytest.mark.spark
@rule("pipeline-6")
def test_files_sort_by_time_then_name(spark: SparkSession, tmp_path: Path) -> None:
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


@pytest.mark.spark
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


@pytest.mark.nightly
@pytest.mark.spark
@rule("pipeline-7")
def test_a_schema_gives_the_columns_of_csv_their_types(spark: SparkSession, tmp_path: Path) -> None:
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


@pytest.mark.nightly
@pytest.mark.spark
@rule("pipeline-7")
def test_a_bad_line_of_csv_is_refused_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    lines = {
        b'{"symbol":"FROMJSON"}': "does not match the columns symbol, price, note",
        b"A,1,x,y": "does not match the columns symbol, price, note",
        b"A,dear,x": "price is not of type double",
        b"A,1e400,x": "price is NaN or infinite",
        b"A,NaN,x": "price is NaN or infinite",
        b"A,1,\xff": "not valid UTF-8",
        b" \t": None,
        b"A,,x": None,
        "é,1,\ufffd".encode(): None,
    }
    (tmp_path / "a.csv").write_bytes(b"\n".join([b"", b"Symbol,price,note", *lines]))
    schema = (("symbol", "string"), ("price", "double"), ("note", "string"))
    rows = drained(read_files(spark, csv(tmp_path, schema=schema)))
    assert {bytes(row.body): row.refused for row in rows if row.refused} == {
        line: f"message-invalid: {why}" for line, why in lines.items() if why
    }
    assert [(row.position, bytes(row.body).decode()) for row in rows if not row.refused] == [
        (9, " \t"),
        (10, '{"symbol":"A","note":"x"}'),
        (11, '{"symbol":"é","price":1.0,"note":"\ufffd"}'),
    ]


@pytest.mark.nightly
@pytest.mark.spark
@rule("pipeline-7")
def test_a_file_with_another_header_ends_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("symbol,price\nA,1\n")
    frame = read_files(spark, csv(tmp_path))
    (tmp_path / "b.csv").write_text("price,symbol\n1,A\n")
    with pytest.raises(StreamingQueryException) as caught:
        drained(frame)
    failure = from_spark("s", str(caught.value))
    assert str(failure) == "s: b.csv, line 1: the header is price,symbol, expected symbol,price"
    assert not failure.may_pass


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("name", ["l.ndjson", "l.csv.gz", "l (1).parquet"])
def test_a_path_may_be_that_of_one_file(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    source = FilesSource(str(path), format=FileFormat.of_name(name))
    texts = {FileFormat.NDJSON: b'{"k":"1"}\n', FileFormat.CSV: b"k\n1\n"}
    if source.format is FileFormat.PARQUET:
        pq.write_table(pa.table({"k": ["1"]}), path)
    else:
        text = texts[source.format]
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    path.with_name(f"other {name}").write_bytes(b"is not read")
    assert bodies(drained(read_files(spark, source))) == ['{"k":"1"}']


@pytest.mark.nightly
@pytest.mark.spark
def test_folders_may_name_columns(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "day=7").mkdir()
    (tmp_path / "day=7" / "a.csv").write_text("k\n1\n")
    source = FilesSource(str(tmp_path), format=FileFormat.CSV)
    assert bodies(drained(read_files(spark, source))) == ['{"k":"1","day":7}']


@pytest.mark.spark
def test_columns_that_nothing_shows_are_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DefinitionInvalid, match=r"no file shows the columns yet: .* source.schema"):
        read_files(spark, csv(tmp_path))
    (tmp_path / "a.parquet").write_bytes(b"none of it")
    with pytest.raises(HistoryUnreadable, match="Spark cannot read it"):
        read_files(spark, parquet(tmp_path))
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), tmp_path / "a.parquet")
    with pytest.raises(HistoryUnreadable, match=r"cannot read it: .*TIMESTAMP.NANOS"):
        read_files(spark, parquet(tmp_path))


@pytest.mark.spark
def test_a_row_of_parquet_is_its_value_or_an_object_of_its_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = {
        "value": ['{"k":1}', None, None],
        "key": [None, "[1]", None],
        "timestamp_ms": [5, 6, 7],
        "reason": [None, "expired", None],
    }
    pq.write_table(pa.table(values), tmp_path / "values.parquet")
    rows = drained(read_files(spark, parquet(tmp_path)))
    assert bodies(rows) == ['{"k":1}', None, "null"]
    assert [(row.key, row.time_ms, row.removed) for row in rows] == [
        (None, 5, None),
        ("[1]", 6, "expired"),
        (None, 7, None),
    ]
    (tmp_path / "columns").mkdir()
    pq.write_table(
        pa.table({"k": [1, 2], "price": [0.5, None]}), tmp_path / "columns" / "a.parquet"
    )
    rows = drained(read_files(spark, parquet(tmp_path / "columns")))
    assert bodies(rows) == ['{"k":1,"price":0.5}', '{"k":2}']


@pytest.mark.nightly
@pytest.mark.spark
@rule("pipeline-7")
def test_a_number_that_json_has_not_refuses_its_row(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"k": [1, 2, 3], "price": [0.5, float("nan"), None], "l": [[1.0], [], [-math.inf]]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    rows = drained(read_files(spark, parquet(tmp_path)))
    assert [(bytes(row.body).decode(), row.refused) for row in rows] == [
        ('{"k":1,"price":0.5,"l":[1.0]}', None),
        ('{"k":2,"price":"NaN","l":[]}', "message-invalid: price is NaN or infinite"),
        ('{"k":3,"l":["-Infinity"]}', "message-invalid: l is NaN or infinite"),
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    "file_format",
    [
        FileFormat.CSV,
        pytest.param(FileFormat.NDJSON, marks=pytest.mark.nightly),
        pytest.param(FileFormat.PARQUET, marks=pytest.mark.nightly),
    ],
)
def test_spark_hands_on_what_only_it_can_reach(
    spark: SparkSession, tmp_path: Path, file_format: FileFormat
) -> None:
    # Another address of the same folder, which Arrow does not know.
    java = spark.sparkContext
    configuration = java._jsc.hadoopConfiguration()
    name = f"fs.viewfs.mounttable.here-{file_format}.link./in"
    configuration.set(name, tmp_path.as_uri())
    (tmp_path / "day=7").mkdir()
    path = tmp_path / "day=7" / f"a.{file_format}"
    match file_format:
        case FileFormat.NDJSON:
            path.write_bytes(b'{"k":1}\n{"k":"\xff"}\n')
        case FileFormat.CSV:
            path.write_bytes(b"k\n1\n\xff\n")
        case FileFormat.PARQUET:
            pq.write_table(pa.table({"k": [1.0, math.nan]}), path, row_group_size=1)
    columns = () if file_format is FileFormat.NDJSON else (("k", "double"),)
    here = FilesSource(str(tmp_path), format=file_format, schema=columns)
    there = FilesSource(f"viewfs://here-{file_format}/in", format=file_format, schema=columns)
    found = [drained(read_files(spark, source)) for source in (here, there)]
    ours, theirs = [
        [(bytes(row.body).rstrip(b"\n"), row.refused, row.position, row.block) for row in rows]
        for rows in found
    ]
    assert ours == theirs
    assert len(ours) == 2
    if columns:
        assert ours[0][0] == b'{"k":1.0,"day":7}'
