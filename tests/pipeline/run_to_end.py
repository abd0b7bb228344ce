"""The one stream of a definition file, run until all that was there is read."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

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
        with suppress(StreamingQueryException):  # the caller asks the query
            stream.query.awaitTermination()
    return stream
