"""Recorded messages, conflated as the engine would have: the newest of each symbol and second.

spark-submit examples/spark/conflate_files.py landing
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.history import read_history
from tidegate.pipeline.columns.recorded import conflate_recorded
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.intervals import MILLISECOND_NS, Interval, Pace


def conflated(spark: SparkSession, folder: Path) -> DataFrame:
    """Return what would have been delivered."""
    interval = Interval(1_000 * MILLISECOND_NS, Pace.BATCH)
    asked = Conflation(KeySpec.parse("[/symbol]"), interval, TimeField(FieldPath.parse("/ts")))
    found = conflate_recorded(read_history(spark, folder), asked)
    return found.selectExpr("key", "CAST(value AS STRING) AS value", "messages", "due_ns")


def main(folder: str) -> None:
    """Show it."""
    spark = SparkSession.builder.appName("conflate files").getOrCreate()
    conflated(spark, Path(folder)).show()


if __name__ == "__main__":
    main(*sys.argv[1:])
