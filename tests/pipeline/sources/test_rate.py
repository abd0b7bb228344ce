from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.drained import bodies
from tests.support.rules import rule
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema
from tidegate.pipeline.definitions.external import RateSource
from tidegate.pipeline.sources.source import made, read_rate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SOURCE = RateSource(rows_per_second=100, keys=3, seed=7)


def first_rows(spark: SparkSession, source: RateSource, count: int) -> list[str | None]:
    counted = spark.range(count).selectExpr("id AS value", "timestamp_millis(id * 10) AS timestamp")
    return bodies(made(counted, source).orderBy("position").collect())


@rule("pipeline-8")
def test_what_a_row_says_is_its_numbers_doing(spark: SparkSession) -> None:
    rows = first_rows(spark, SOURCE, 100)
    assert first_rows(spark, SOURCE, 50) == rows[:50]
    assert first_rows(spark, replace(SOURCE, rows_per_second=5), 50) == rows[:50]
    records = [json.loads(row or "") for row in rows]
    others = [json.loads(row or "") for row in first_rows(spark, replace(SOURCE, seed=8), 100)]
    for field in ("symbol", "price"):
        assert [record[field] for record in others] != [record[field] for record in records]
    assert {record["symbol"] for record in records} == {"S0", "S1", "S2"}
    assert [record["sequence"] for record in records] == list(range(100))
    assert [record["ts"] for record in records] == [10 * at for at in range(100)]
    assert all(100 <= record["price"] < 110 for record in records)


def test_rows_come_as_fast_as_the_source_says(spark: SparkSession) -> None:
    frame = read_rate(spark, SOURCE)
    assert frame.schema.names == arrow_schema(PUBLISHED).names
    query = frame.writeStream.format("memory").queryName("rate_rows").start()
    try:
        while spark.table("rate_rows").count() < 200:
            query.processAllAvailable()
    finally:
        query.stop()
    rows = sorted(spark.table("rate_rows").collect(), key=lambda row: row.position)
    assert [row.position for row in rows] == list(range(1, len(rows) + 1))
    times_ms = [row.time_ms for row in rows]
    assert times_ms == sorted(times_ms)
    # A hundred a second: the last of two hundred is made in the second second.
    assert 1_900 <= times_ms[199] - times_ms[0] <= 2_000
