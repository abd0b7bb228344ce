"""A topic as a stream: ticks into Parquet files, up to what is there now.

PYSPARK_PYTHON=$PWD/.venv/bin/python .venv/bin/spark-submit \\
    examples/spark/read_stream.py http://127.0.0.1:8080 ticks /tmp/ticks
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import from_json


def main(gateway: str, topic: str, folder: str) -> None:
    spark = SparkSession.builder.appName("read a topic").getOrCreate()
    rows = (
        spark.readStream.format("tidegate")
        .option("gateway", gateway)
        .option("topic", topic)
        .option("rows_per_batch", 100_000)
        .load()
    )
    ticks = (
        rows.where("removed IS NULL")
        .select("offset", from_json("value", "tickerId string, price double").alias("tick"))
        .select("offset", "tick.*")
    )
    query = (
        ticks.writeStream.format("parquet")
        .option("path", f"{folder}/ticks")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
