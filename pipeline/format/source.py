"""`format("tidegate")`: a topic's journal as a stream and as a batch, and a topic as a sink.

Reading takes the options `gateway` (the address of a gateway, or of the Redis that gateways share,
there with `prefix`), `topic`, `from` (`epoch`, `now` or a bookmark), `rows_per_batch` and `shards`;
writing takes `gateway`, `topic`, `key` and `run`. Offsets are bookmarks,
`{"bookmark": "<epoch>-<position>"}`, so a checkpoint names the epoch of the topic that it
belongs to. Planning takes one small request; messages are fetched only by the executors.
"""

from __future__ import annotations

import time

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.format.envelope import SCHEMA
from tidegate.pipeline.format.executor_check import SentToExecutors
from tidegate.pipeline.format.options import ReadOptions, WriteOptions
from tidegate.pipeline.format.reader import JournalReader, JournalStreamReader
from tidegate.pipeline.format.writer import TopicBatchWriter, TopicStreamWriter, make_ready


class TidegateSource(SentToExecutors, DataSource):
    """A topic; read with the columns of `rows.SCHEMA`, written as `writer` says."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Spark makes one of these as a stream starts, and asks it for each commit.
        self._started_ms = time.time_ns() // 1_000_000

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        # Spark looks for a module `pyspark_<name>` with a class `DefaultSource`.
        return "tidegate"

    def schema(self) -> str:
        """Return the columns, always the same."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch: all that the journal holds now, from `from` on."""
        _require_own(schema)
        return JournalReader(ReadOptions.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream that follows the journal."""
        _require_own(schema)
        return JournalStreamReader(ReadOptions.of(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of one batch of messages, published in one step."""
        options = WriteOptions.of(self.options)
        make_ready(options, schema, overwrite=overwrite)
        return TopicBatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a writer of a stream, which publishes each batch in one step, once."""
        options = WriteOptions.of(self.options)
        make_ready(options, schema, overwrite=overwrite)
        # By time, so that the newest start wins: what an older driver still commits is refused.
        return TopicStreamWriter(options, options.run or self._started_ms)


def _require_own(schema: StructType) -> None:
    """Refuse a schema given by the user: the columns are fixed.

    Raises:
        DefinitionInvalid: there are others.
    """
    asked = ", ".join(f"{each.name} {each.dataType.typeName()}" for each in schema.fields)
    if asked != SCHEMA:
        raise DefinitionInvalid(
            f"format tidegate has columns of its own ({SCHEMA}): leave .schema(...) out, and take "
            "fields by from_json(value, ...)"
        )
