"""Made rows for trying out, as a stream of PUBLISHED rows: what a row says is its number's doing.

    {"symbol":"S7","sequence":1234,"price":103.41,"ts":1795000000000}

Spark's own `rate` counts them; a checkpoint knows when it began, and what was due in a pause comes
after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.definitions.feeds import RateSource


def read_rate(spark: SparkSession, source: RateSource) -> DataFrame:
    """Rows (`columns.rows.PUBLISHED`) as fast as the source says."""
    reader = spark.readStream.format("rate").option("rowsPerSecond", source.rows_per_second)
    return made(reader.load(), source)


def made(counted: DataFrame, source: RateSource) -> DataFrame:
    """Rows of a counter, columns `value` and `timestamp`; the same for the same source."""
    return counted.selectExpr(
        "'rate' AS file",
        "CAST(0 AS LONG) AS block",
        "value + 1 AS position",
        "unix_millis(timestamp) AS time_ms",
        "CAST(NULL AS STRING) AS key",
        f"""CAST(to_json(named_struct(
            'symbol', concat('S', pmod(xxhash64(value, {source.seed}L), {source.keys}L)),
            'sequence', value,
            'price', 100 + pmod(xxhash64({source.seed}L, value), 1000L) / 100,
            'ts', unix_millis(timestamp)
        )) AS BINARY) AS body""",
        "CAST(NULL AS STRING) AS removed",
        "CAST(NULL AS STRING) AS refused",
    )
