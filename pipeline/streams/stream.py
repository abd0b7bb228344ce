"""One definition put together as a running query: source, conflation, sink, trigger."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from tidegate.pipeline.definitions.stream import ParquetSink, StreamDefinition, TopicSink
from tidegate.pipeline.errors import from_spark
from tidegate.pipeline.operations.spark_run import QueryStream
from tidegate.pipeline.sinks.parquet import ParquetWriter
from tidegate.pipeline.sinks.sink import Batch, BatchResult, Sink
from tidegate.pipeline.sinks.topic import TopicWriter
from tidegate.pipeline.streams.batches import ConflatedBatches
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.views import ViewBatches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# --- pacing: batches go out an interval apart, with what was published until just before
#
# A batch that is ready early would wait for the end of its interval, while its rows grow old. So
# the wait comes before its read: the previous batch stays open until only the expected time of the
# next one is left of the interval. No margin is added to that time: a batch that ends late makes
# its rows as old as one that began too early.

BATCHES_KEPT = 5
BETWEEN_S_MAX = 0.3
"""Spark needs less between two batches; a longer time was a wait for messages."""
INTERVAL_S_MAX = 10.0
"""Longer batches are not held open: a kill would repeat all their work."""


class Pacing:
    """Decides when the batches of one stream begin; times are monotonic seconds.

    Args:
        interval_s: between two commits; 0 for a stream that is not paced.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._sent_at_s = 0.0
        self._left_at_s = 0.0
        self._between_s: deque[float] = deque(maxlen=BATCHES_KEPT)
        self._work_s: deque[float] = deque(maxlen=BATCHES_KEPT)

    @property
    def holds(self) -> bool:
        """True if batches stay open; then the next may be begun at any time."""
        return 0 < self._interval_s <= INTERVAL_S_MAX

    @property
    def not_before_s(self) -> float:
        """When the interval since the last commit is over; 0 if nothing was sent."""
        return self._sent_at_s + self._interval_s if self._sent_at_s else 0.0

    def begun(self, now_s: float) -> None:
        """Note that Spark has begun the next batch."""
        if self._left_at_s:
            self._between_s.append(min(now_s - self._left_at_s, BETWEEN_S_MAX))
        self._left_at_s = 0.0

    def worked(self, work_s: float, sent_at_s: float) -> None:
        """Note a batch: how long until it could be sent, and when it was sent, 0 if it was not."""
        self._work_s.append(work_s)
        self._sent_at_s = sent_at_s or self._sent_at_s

    def slack_s(self, now_s: float) -> float:
        """Return how long the batch that was just sent is to stay open."""
        # One slow batch does not make the next ones early. Of what Spark does between two batches
        # the least counts, for the others may have waited for messages.
        work_s = sorted(self._work_s)[-2:][0] + min(self._between_s, default=0.0)
        ends_s = self.not_before_s - work_s if self.holds and self._sent_at_s else 0.0
        self._left_at_s = max(now_s, ends_s)
        return self._left_at_s - now_s


QUERY_ID = "sql.streaming.queryId"
POLL_EVERY_MS = 100


class Stream(QueryStream):
    """A definition and, once started, its query; `sink` replaces the definition's sink."""

    def __init__(self, definition: StreamDefinition, sink: Sink | None = None) -> None:
        super().__init__(definition.name)
        self.definition = definition
        self._sink = sink or open_sink(definition)
        view = definition.view
        self._batches = ViewBatches(definition, view) if view else ConflatedBatches(definition)
        self._pacing = Pacing(definition.interval_ms / 1_000)
        self._run = 0
        self._first = 0
        self._leaving = threading.Event()
        self._spark: SparkSession | None = None

    @property
    def held_keys(self) -> int | None:
        """How many keys wait for the end of their interval; None where none can."""
        return self._batches.held_keys

    @property
    def merger_failures(self) -> int | None:
        """How often its merger has failed since its checkpoint began; None where it has none."""
        return self._batches.merger_failures

    def start(self, spark: SparkSession, checkpoint: Checkpoint, *, available_now: bool) -> None:
        """Make the sink ready and start the query.

        The interval, or a part of it, is the trigger. With `available_now` recorded input is
        read as fast as possible, and the query ends with what was there at its start.
        """
        definition = self.definition
        # Before the query starts: a sink that was created again lacks what the checkpoint counts as
        # sent.
        checkpoint.require_sink(self._sink.prepare())
        self._spark = spark
        is_paced = not available_now and self._batches.is_paced
        self._pacing = self._pacing if is_paced else Pacing(0.0)
        self._leaving.clear()
        self._run = checkpoint.run
        if isinstance(self._batches, ConflatedBatches) and self._batches.is_ending:
            self._end(self._batches, spark, checkpoint.query)
        self._first = checkpoint.newest_planned() + 1
        writer = (
            self._batches.open(spark)
            .writeStream.queryName(definition.name)
            .option("checkpointLocation", str(checkpoint.spark_folder))
            .foreachBatch(self._write_batch)
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._trigger_ms} milliseconds")
        self.query = writer.start()

    def stop_holding(self) -> None:
        """Stop holding batches open, because the query is about to be stopped."""
        self._leaving.set()

    def end(self) -> None:
        """Send what is still held, once a query of recorded input has read all there was.

        Raises:
            PipelineError: it cannot be sent; the next start will try again.
        """
        query, batches = self.query, self._batches
        if query is None or query.exception() is not None:
            return
        if isinstance(batches, ConflatedBatches) and batches.unended is not None:
            self._end(batches, self._spark, query.id)

    def _end(self, batches: ConflatedBatches, spark: SparkSession | None, query: str) -> None:
        from pyspark.errors import PySparkException

        assert spark is not None, "it was started"
        batch = Batch(batches.unended or 0, self._run, query, is_end=True)
        # Outside of any query: Spark has no batch for what is held when its input has ended. A kill
        # between the write and the note repeats it, under the same number.
        begun_s = time.monotonic()
        try:
            self._count(self._sink.write(batches.ended(spark, batch), batch), begun_s)
        except PySparkException as error:
            raise from_spark(self.name, str(error)) from error
        batches.note_end(batch)

    def _write_batch(self, messages: DataFrame, number: int) -> None:
        query = messages.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
        # Only a batch that no earlier start has planned may be checked against the topic.
        is_first = number == self._first
        with self._timed_batch() as begun_s:
            batch = Batch(number, self._run, query, self._pacing.not_before_s, is_first=is_first)
            self._pacing.begun(begun_s)
            result = self._sink.write(self._batches.rows(messages, batch), batch)
        self._count(result, begun_s)
        self._batches.forget(batch)
        self._pacing.worked(result.ready_at_s - begun_s, result.sent_at_s)
        # An Event instead of a sleep: the end of the stream must not wait for an interval.
        if result.sent_at_s:
            self._leaving.wait(self._pacing.slack_s(time.monotonic()))

    @property
    def _trigger_ms(self) -> int:
        """How often a batch may begin; while one is held open, its end decides about the next."""
        trigger_ms = self._batches.trigger_ms
        return min(trigger_ms, POLL_EVERY_MS) if self._pacing.holds else trigger_ms

    def _count(self, result: BatchResult, begun_s: float) -> None:
        took_s = time.monotonic() - begun_s - result.waited_s
        self.totals = self.totals.with_batch(result, took_s)


def sink_definition(definition: StreamDefinition) -> dict[str, Any]:
    """Return the sink topic as `PUT /v1/topics/{topic}` takes it.

    With a source topic it is a conflated topic, read-only but for this pipeline; files, and a topic
    of another gateway, fill a plain keyed topic.
    """
    fields: dict[str, Any] = {
        "key": [str(path) for path in definition.key.paths],
        "description": definition.description,
    }
    topic = definition.own_topic(definition.source)
    if topic is not None:
        fields["source"] = {
            "topic": topic,
            "interval": definition.interval_text,
            "engine": "spark",
            **_shape(definition),
        }
    return fields


def _shape(definition: StreamDefinition) -> dict[str, Any]:
    """Return the fields of the topic's source that describe the stream, as far as there are any."""
    view = definition.view
    wanted = view.filter if view else definition.conflation.filter
    shape: dict[str, Any] = {} if wanted is None else {"filter": str(wanted)}
    if view is None or view.projection is None or view.join is not None or view.record_key:
        return shape
    projection = view.projection
    return shape | {
        "grouping": [str(path) for path in projection.grouping.paths],
        "projection": [str(column) for column in projection.columns],
    }


def open_sink(definition: StreamDefinition) -> Sink:
    """Return the sink of a definition, without creating its topic or folder yet."""
    dead_letters = str(definition.dead_letters)
    match definition.sink:
        case ParquetSink(folder):
            return ParquetWriter(str(folder), definition.name, dead_letters)
        case TopicSink(topic, declared):
            return TopicWriter(
                gateway=definition.gateway,
                topic=topic,
                stream=definition.name,
                definition=sink_definition(definition),
                dead_letters=dead_letters,
                declared=declared,
                restates=definition.begins_with_records,
            )
