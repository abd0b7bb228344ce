"""A topic as a stream: prices into Parquet files, up to what is there now.

PYSPARK_PYTHON=$PWD/.venv/bin/python .venv/bin/spark-submit \\
    examples/spark/read_stream.py http://127.0.0.1:8080 prices /tmp/prices
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
    prices = (
        rows.where("removed IS NULL")
        .select("offset", from_json("value", "symbol string, price double").alias("price"))
        .select("offset", "price.*")
    )
    query = (
        prices.writeStream.format("parquet")
        .option("path", f"{folder}/prices")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
