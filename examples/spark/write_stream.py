"""A stream into a topic: JSON files that land in a folder, each line once, whatever is killed.

PYSPARK_PYTHON=$PWD/.venv/bin/python .venv/bin/spark-submit \\
    examples/spark/write_stream.py http://127.0.0.1:8080 prices /tmp/landing /tmp/done
"""

import sys

from pyspark.sql import SparkSession


def main(gateway: str, topic: str, landing: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("write a topic").getOrCreate()
    prices = (
        spark.readStream.schema("symbol string, price double")
        .option("maxFilesPerTrigger", 1)
        .json(landing)
    )
    query = (
        prices.selectExpr("to_json(struct(symbol, price)) AS value")
        .writeStream.format("tidegate")
        .option("gateway", gateway)
        .option("topic", topic)
        .option("key", "/symbol")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
