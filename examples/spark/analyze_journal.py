"""What a topic's journal holds, as a frame: how often each symbol moved, and how far.

PYSPARK_PYTHON=$PWD/.venv/bin/python .venv/bin/spark-submit \\
    examples/spark/analyze_journal.py http://127.0.0.1:8080 prices
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn


def moves(spark: SparkSession, gateway: str, topic: str) -> DataFrame:
    rows = spark.read.format("tidegate").option("gateway", gateway).option("topic", topic).load()
    prices = rows.select(fn.from_json("value", "symbol string, price double").alias("it"))
    return (
        prices.where("it.symbol IS NOT NULL")
        .groupBy("it.symbol")
        .agg(fn.count("*"), fn.min("it.price"), fn.max("it.price"))
        .toDF("symbol", "messages", "lowest", "highest")
        .orderBy("symbol")
    )


if __name__ == "__main__":
    moves(SparkSession.builder.appName("analyze").getOrCreate(), *sys.argv[1:]).show()
