"""The one stream of a definition file, run until all that was there is read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def run_to_its_end(spark: SparkSession, path: Path) -> Stream:
    [definition] = read_definitions(path)
    stream = Stream(definition)
    with Checkpoint(definition) as checkpoint:
        stream.start(spark, checkpoint, available_now=True)
        assert stream.query is not None
        while stream.query.isActive:
            time.sleep(0.02)
    return stream
