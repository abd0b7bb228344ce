from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.columns.rows import PUBLISHED, arrow_schema, file_name
from pipeline.definitions.source import FilesSource
from pipeline.sources.files import read_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_files_sort_by_time_then_name(spark: SparkSession, tmp_path: Path) -> None:
    for second, name in [(9, "0"), (3, "b c"), (3, "a"), (3, "a0")]:
        path = tmp_path / f"{name}.ndjson"
        path.write_bytes(b'{"n":1}\n{"n":2}')
        os.utime(path, (1_700_000_000 + second, 1_700_000_000 + second))
    frame = read_files(spark, FilesSource(str(tmp_path / "*.ndjson"), None, None))
    assert frame.schema.names == arrow_schema(PUBLISHED).names
    query = frame.writeStream.format("memory").queryName("files").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.sql("SELECT * FROM files ORDER BY file, body").collect()
    names = [file_name(row.file).rpartition("/")[2] for row in rows]
    assert names == [
        f"{name}.ndjson" for name in ("a", "a", "a0", "a0", "b%20c", "b%20c", "0", "0")
    ]
    assert [bytes(row.body) for row in rows] == [b'{"n":1}', b'{"n":2}'] * 4
    assert {(row.block, row.position, row.time_ms, row.key) for row in rows} == {(0,) + (None,) * 3}
