"""Rows as JSON objects: their times, and the numbers that JSON has not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.support.rules import rule
from tidegate.pipeline.columns.history import as_json, beyond_json, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAN, ENDLESS = float("nan"), float("inf")


@rule("pipeline-7")
def test_times_keep_their_microseconds(spark: SparkSession) -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 - one of no zone is meant
    values = (moment.replace(tzinfo=UTC), moment, None)
    rows = spark.createDataFrame([values], "utc timestamp, `a.``b` timestamp_ntz, n int")
    [(text,)] = rows.select(as_json([rows[quoted(name)] for name in rows.columns])).collect()
    assert text == '{"utc":"2024-01-02T03:04:05.678901Z","a.`b":"2024-01-02T03:04:05.678901"}'


@rule("pipeline-7")
def test_the_first_column_with_a_number_beyond_json_is_named(spark: SparkSession) -> None:
    kinds = "n int, d double, f float, a array<float>, m map<string, struct<x: array<double>>>"
    cases: list[tuple[tuple[object, ...], str | None]] = [
        ((1, 1.5, None, [1.0, None], {"k": ([0.0],)}), None),
        ((1, NAN, ENDLESS, None, None), "d is NaN or infinite"),
        ((1, None, -ENDLESS, None, None), "f is NaN or infinite"),
        ((1, None, None, [1.0, NAN], None), "a is NaN or infinite"),
        ((1, 0.0, 0.0, [], {"j": None, "k": ([ENDLESS],)}), "m is NaN or infinite"),
    ]
    rows = spark.createDataFrame([values for values, _ in cases], kinds).coalesce(1)
    found = rows.select(beyond_json(rows.schema, [rows[name] for name in rows.columns])).collect()
    assert [why for (why,) in found] == [why for _, why in cases]
