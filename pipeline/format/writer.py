"""A topic as Spark writes it: tasks stage, the driver commits a batch in one step, once.

A commit has the number of its batch, and its producer the id of the checkpoint: so a batch that is
repeated, after a retry, in other partitions or from another driver, publishes nothing more. The run
is the time at which the stream was started: what an older driver still sends is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from tidegate.keys.errors import KeysError
from tidegate.keys.jsontext import check_json, one_line
from tidegate.keys.spec import canonical_key
from tidegate.pipeline.connection import Line, Stages, gateway_at, removal
from tidegate.pipeline.errors import DefinitionInvalid, GatewayRefused, KeyMismatch, StreamFailed
from tidegate.pipeline.format.executor_check import SentToExecutors
from tidegate.pipeline.format.options import WriteOptions

# --- rows of a frame as lines: checked here, where the row is still known

REASONS = ("deleted", "expired", "match")


def lines_of(batch: pa.RecordBatch) -> Iterator[Line]:
    """Yield the lines of rows with a column `value`, and perhaps `key` and `removed`.

    A row without a value, or with a reason in `removed`, removes the record of its key. A key
    beside a value goes along: only the gateway knows whether it is the one that the value says.

    Raises:
        StreamFailed: a value is no JSON, a key is none, a removal has no key; the text says why.
    """
    for value, key_text, reason in zip(
        _texts(batch, "value"), _texts(batch, "key"), _texts(batch, "removed"), strict=True
    ):
        record_key = None if key_text is None else _key(key_text)
        if value is None or reason is not None:
            yield _removal(record_key, (reason or b"deleted").decode())
        elif record_key is not None:
            envelope = b'{"key":%s,"value":%s}' % (record_key, _message(value))
            yield Line(envelope, is_envelope=True)
        else:
            yield Line(_message(value))


def _texts(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    texts: list[bytes | None] = batch.column(name).cast(pa.binary()).to_pylist()
    return texts


def _message(value: bytes) -> bytes:
    try:
        check_json(value)
    except KeysError as error:
        raise StreamFailed(
            f"a value is not JSON ({error.detail}): write to_json(struct(...)) AS value"
        ) from None
    return one_line(value)


def _removal(record_key: bytes | None, reason: str) -> Line:
    if record_key is None:
        raise StreamFailed("a row without value removes a record, and needs the record's key")
    if reason not in REASONS:
        raise StreamFailed(f"removed is null or one of {', '.join(REASONS)}")
    return removal(record_key, reason)


def _key(text: bytes) -> bytes:
    try:
        check_json(text)
        return canonical_key(text).encode()
    except KeysError as error:
        raise StreamFailed(f"the key of a row is none: {error.detail}") from None


# --- the stages of one task: kept at the gateway until the driver commits them


@dataclass
class Staged(WriterCommitMessage):
    """The stages of one task in their order, their producer, and how many messages they have."""

    producer: str
    messages: int = 0
    stages: list[str] = field(default_factory=list)


def stage_rows(options: WriteOptions, producer: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Keep a task's rows aside, in their order.

    Raises:
        StreamFailed: a row is no message.
        GatewayRefused, GatewayUnreachable: it could not be done.
    """
    with gateway_at(options.gateway) as gateway:
        # Random: Spark may run two attempts of a task at once, and takes the stages of one only.
        stages = Stages(gateway, options.topic, producer, f"{producer}.{uuid.uuid4().hex}")
        for batch in batches:
            for text, is_envelope in lines_of(batch):
                stages.add(text, is_envelope=is_envelope)
        stages.end()
    return Staged(producer, stages.messages, stages.names)


PRODUCER_PREFIX = "tidegate.spark."
QUERY_ID = "sql.streaming.queryId"
COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "value": (StringType, BinaryType),
    "key": (StringType,),
    "removed": (StringType,),
}
STAGES_MAX = 10_000


class TopicStreamWriter(SentToExecutors, DataSourceStreamArrowWriter):
    """Writes the batches of a stream; `run` rises with each start of the stream."""

    def __init__(self, options: WriteOptions, run: int) -> None:
        self._options = options
        self._run = run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Keep a task's rows aside, on an executor."""
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context else None
        # Without the query's id every stream would share one producer, and one its numbers.
        if not query:
            raise StreamFailed("Spark does not say which query this is, so it cannot be numbered")
        return stage_rows(self._options, PRODUCER_PREFIX + query, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish a batch in one step, unless it has been."""
        # Spark calls this again with the same number if the driver dies before it has noted the
        # batch: a data source gets each batch at least once, and must make that once.
        commit_stages(self._options, messages, self._run, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: the gateway forgets uncommitted stages after an hour."""


class TopicBatchWriter(SentToExecutors, DataSourceArrowWriter):
    """Writes one frame, of whatever size a commit may have."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # A frame has no query whose id could number it, so a second job publishes again.
        self._producer = PRODUCER_PREFIX + str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Keep a task's rows aside, on an executor."""
        return stage_rows(self._options, self._producer, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish all of it in one step."""
        commit_stages(self._options, messages, run=0, number=0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: the gateway forgets uncommitted stages after an hour."""


def commit_stages(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], run: int, number: int
) -> bool:
    """Publish what tasks have staged in the order of partitions; False if it had been before.

    Raises:
        StreamFailed: more stages than a commit has.
        GatewayRefused: more messages than a commit has, or stages that are gone.
        RunFenced: a newer run has committed.
    """
    # Spark gives None for a task without an answer, and the messages in the order of partitions.
    reports = [report for report in messages if isinstance(report, Staged) and report.stages]
    stages = [name for report in reports for name in report.stages]
    if not stages:
        return False
    # Before the request: the gateway would refuse it, without a word about partitions.
    if len(stages) > STAGES_MAX:
        raise StreamFailed(
            f"a batch in {len(stages)} stages is more than one commit takes ({STAGES_MAX}): "
            "coalesce it into fewer partitions"
        )
    with gateway_at(options.gateway) as gateway:
        done = gateway.commit(options.topic, reports[0].producer, run, number, stages)
    return not done.duplicate


def make_ready(options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
    """Check columns and topic before a frame or a stream is written; create a missing topic.

    Raises:
        DefinitionInvalid: columns that make no message, or output mode complete.
        GatewayRefused, GatewayUnreachable: the topic is not there, or has another key.
    """
    if overwrite:
        raise DefinitionInvalid(
            "a topic is added to: use mode append (of a stream, output mode append or update)"
        )
    # On the driver and before the first batch: a task would fail once for each of its attempts.
    _check_columns(schema)
    with gateway_at(options.gateway) as gateway:
        found = gateway.find_topic(options.topic)
        if found is None and not options.fields:
            raise GatewayRefused(
                f"{options.gateway} has no topic {options.topic} (topic-unknown): create it, or "
                'give its key with .option("key", "/field,/field")'
            )
        if found is None:
            gateway.put_topic(options.topic, {"key": list(options.fields)})
        elif options.fields and found.get("key") != list(options.fields):
            raise KeyMismatch(
                f"topic {options.topic} exists with key {found.get('key')}, "
                f"the option says {list(options.fields)}"
            )


def _check_columns(schema: StructType) -> None:
    for column in schema.fields:
        taken = COLUMNS.get(column.name)
        if taken is None or not isinstance(column.dataType, taken):
            kind = column.dataType.simpleString()
            raise DefinitionInvalid(
                "format tidegate writes value (JSON text), and perhaps key and removed, not column "
                f"{column.name} ({kind}): write to_json(struct(...)) AS value"
            )
    if "value" not in schema.fieldNames():
        raise DefinitionInvalid("format tidegate writes a column value, which is JSON text")
