"""What a topic's journal holds, as a frame: how often each ticker moved, and how far.

PYSPARK_PYTHON=$PWD/.venv/bin/python .venv/bin/spark-submit \\
    examples/spark/analyse_journal.py http://127.0.0.1:8080 ticks
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn


def moves(spark: SparkSession, gateway: str, topic: str) -> DataFrame:
    rows = spark.read.format("tidegate").option("gateway", gateway).option("topic", topic).load()
    ticks = rows.select(fn.from_json("value", "tickerId string, price double").alias("tick"))
    return (
        ticks.where("tick.tickerId IS NOT NULL")
        .groupBy("tick.tickerId")
        .agg(fn.count("*"), fn.min("tick.price"), fn.max("tick.price"))
        .toDF("tickerId", "messages", "lowest", "highest")
        .orderBy("tickerId")
    )


if __name__ == "__main__":
    moves(SparkSession.builder.appName("analyse").getOrCreate(), *sys.argv[1:]).show()
