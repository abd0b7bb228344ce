"""A topic as Spark writes it: tasks stage, the driver commits a batch in one step, once.

The number of a commit is the batch's, its producer has the id that lives in the checkpoint: so a
batch that comes again, after a retry, in other partitions or from another driver, publishes nothing
more. The run is when the stream was started: what an older driver still sends is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from pipeline.datasource.options import WriteOptions
from pipeline.datasource.staging import Staged, stage_rows
from pipeline.datasource.travel import Traveller
from pipeline.errors import DefinitionInvalid, GatewayRefused, StreamFailed
from pipeline.gateway import Gateway

PRODUCER_PREFIX = "tidegate.spark."
QUERY_ID = "sql.streaming.queryId"
COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "value": (StringType, BinaryType),
    "key": (StringType,),
    "removed": (StringType,),
}
STAGES_MAX = 10_000


class TopicStreamWriter(Traveller, DataSourceStreamArrowWriter):
    """Writes the batches of a stream; `run` numbers the stream's lives."""

    def __init__(self, options: WriteOptions, run: int) -> None:
        self._options = options
        self._run = run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Keep a task's rows aside, on an executor."""
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context else None
        if not query:
            raise StreamFailed("Spark does not say which query this is, so it cannot be numbered")
        return stage_rows(self._options, PRODUCER_PREFIX + query, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish a batch in one step, unless it has been."""
        commit_stages(self._options, messages, self._run, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is to do: what nobody commits is forgotten after an hour."""


class TopicBatchWriter(Traveller, DataSourceArrowWriter):
    """Writes one frame, of whatever size a commit may have."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._producer = PRODUCER_PREFIX + str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Keep a task's rows aside, on an executor."""
        return stage_rows(self._options, self._producer, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish all of it in one step."""
        commit_stages(self._options, messages, run=0, number=0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is to do: what nobody commits is forgotten after an hour."""


def stream_writer(
    options: WriteOptions, schema: StructType, run: int, *, overwrite: bool
) -> TopicStreamWriter:
    """A writer for a topic that is there.

    Raises:
        DefinitionInvalid: columns that make no message, or output mode complete.
        GatewayRefused, GatewayUnreachable: the topic is not there, or has another key.
    """
    _check(options, schema, overwrite=overwrite)
    return TopicStreamWriter(options, run)


def batch_writer(options: WriteOptions, schema: StructType, *, overwrite: bool) -> TopicBatchWriter:
    """As `stream_writer`, for one frame."""
    _check(options, schema, overwrite=overwrite)
    return TopicBatchWriter(options)


def commit_stages(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], run: int, number: int
) -> bool:
    """Publish what tasks have staged in the order of partitions; False if it had been before.

    Raises:
        StreamFailed: more stages than a commit has.
        GatewayRefused: more messages than a commit has, or stages that are gone.
        RunFenced: a newer run has committed.
    """
    reports = [report for report in messages if isinstance(report, Staged) and report.stages]
    stages = [name for report in reports for name in report.stages]
    if not stages:
        return False
    if len(stages) > STAGES_MAX:
        raise StreamFailed(
            f"a batch in {len(stages)} stages is more than one commit takes ({STAGES_MAX}): "
            "coalesce it into fewer partitions"
        )
    with Gateway(options.gateway) as gateway:
        return gateway.commit(options.topic, reports[0].producer, run, number, stages)


def _check(options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
    if overwrite:
        raise DefinitionInvalid(
            "a topic is added to: use mode append (of a stream, output mode append or update)"
        )
    _check_columns(schema)
    with Gateway(options.gateway) as gateway:
        found = gateway.topic(options.topic)
        if found is None and not options.fields:
            raise GatewayRefused(
                f"{options.gateway} has no topic {options.topic} (topic-unknown): create it, or "
                'give its key with .option("key", "/field,/field")'
            )
        if found is None:
            gateway.create_topic(options.topic, {"key": list(options.fields)})
        elif options.fields and found.get("key") != list(options.fields):
            raise GatewayRefused(
                f"topic {options.topic} exists with key {found.get('key')}, "
                f"the option says {list(options.fields)}"
            )


def _check_columns(schema: StructType) -> None:
    for field in schema.fields:
        taken = COLUMNS.get(field.name)
        if taken is None or not isinstance(field.dataType, taken):
            kind = field.dataType.simpleString()
            raise DefinitionInvalid(
                "format tidegate writes value (JSON text), and perhaps key and removed, not column "
                f"{field.name} ({kind}): write to_json(struct(...)) AS value"
            )
    if "value" not in schema.fieldNames():
        raise DefinitionInvalid("format tidegate writes a column value, which is JSON text")
