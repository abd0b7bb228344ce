"""Bars of a second from a topic of prices, by Spark's own windows, into another topic.

spark-submit examples/spark/bars.py http://127.0.0.1:8080 prices bars /tmp/bars
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn


def bars_of(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Return the open, high, low and close of each symbol and second."""
    bars = (
        rows.where("value IS NOT NULL")
        .withColumn("at", fn.timestamp_millis("timestamp_ms"))
        .select("at", "offset", fn.from_json("value", "symbol string, price double").alias("it"))
        .withWatermark("at", "1 second")
        .groupBy(fn.window("at", "1 second"), "it.symbol")
        .agg(
            fn.min_by("it.price", "offset").alias("open"),
            fn.max("it.price").alias("high"),
            fn.min("it.price").alias("low"),
            fn.max_by("it.price", "offset").alias("close"),
        )
        .selectExpr("to_json(struct(symbol, window.start, open, high, low, close)) AS value")
    )
    spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism)
    return bars


def main(gateway: str, source: str, target: str, checkpoint: str) -> None:
    """Follow the source until it is ended."""
    spark = SparkSession.builder.appName("bars").getOrCreate()
    rows = spark.readStream.format("tidegate").option("gateway", gateway).option("topic", source)
    options = {"gateway": gateway, "topic": target, "key": "/symbol,/start"}
    written = bars_of(spark, rows.load()).writeStream.format("tidegate").options(**options)
    written.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
