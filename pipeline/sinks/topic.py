"""Writes the rows of a micro-batch to a topic: once, in order, in one step.

A task on an executor sends them to the gateway, which keeps them aside in *stages*: the gateway's,
not Spark's. The driver then commits the stages of the attempt that Spark took. The number of a
commit is the batch's, so a batch that is run again, by whichever attempt or driver, publishes
nothing more. Rows that an older run of the stream still sends are refused.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.clients.gateway import Gateway
from tidegate.pipeline.columns.rows import shuffle_partitions
from tidegate.pipeline.connection import Stages, gateway_at, removal
from tidegate.pipeline.errors import CheckpointUnusable, GatewayRefused, KeyMismatch
from tidegate.pipeline.sinks.dead_letters import DeadLetterFile
from tidegate.pipeline.sinks.sink import Batch, BatchResult, wait_until
from tidegate.pipeline.sinks.tasks import Report, reports_of, result_of, task_attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# --- the records that a topic has when a stream begins from the records of its source


# Digests and not values: the task holds one for each record of the topic.
DIGEST_BYTES = 16


class _Record(msgspec.Struct, gc=False):
    key: msgspec.Raw
    value: msgspec.Raw


_records = msgspec.json.Decoder(_Record).decode_lines


class ExistingRecords:
    """The records of a topic, by the JSON text of their key; values as digests."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        """Read NDJSON envelopes of the topic's state of the world, whole lines in each piece."""
        self._left = {
            bytes(record.key).decode(): _digest(bytes(record.value))
            for piece in pieces
            for record in _records(piece)
        }

    @classmethod
    def of(cls, gateway: Gateway, topic: str) -> ExistingRecords:
        """Read the topic's records as they are now.

        Raises:
            GatewayRefused: there is no such topic, or it keeps no records.
        """
        return cls(gateway.records(topic))

    def take_difference(self, record: str, value: bytes | None) -> bool:
        """Take a record out; return whether it differs from `value` (None: removed)."""
        known = self._left.pop(record, None)
        return known != (None if value is None else _digest(value))

    def left(self) -> Iterator[str]:
        """Yield the keys of records not taken out, in the order of their last change."""
        yield from self._left


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=DIGEST_BYTES).digest()


PRODUCER_PREFIX = "tidegate.pipeline."
# One task reads so few partitions, one after the other, faster than Spark starts another stage.
COALESCE_PARTITIONS_MAX = 4
STAGED_AHEAD_S_MAX = 600.0  # far below the hour for which a gateway keeps a stage


@dataclass(frozen=True, slots=True)
class TopicWriter:
    """Writes a stream to a topic (a `Sink`); also sent to the executors, which stage.

    `stream` is its name; `definition` is the topic's, as `PUT /v1/topics/{topic}` takes it. A topic
    that is `declared` is never created here. With `restates` the first batch of a checkpoint has
    all records of the source: what the topic lacks is published, and what the batch lacks is
    removed. Such a batch may differ when it is repeated, so its commit has the number of the run.
    `dead_letters` is a folder that all nodes share.
    """

    gateway: str
    topic: str
    stream: str
    definition: dict[str, Any]
    dead_letters: str
    declared: bool = False
    restates: bool = False

    def prepare(self) -> Sequence[str]:
        """Create the topic unless it is there with the same key.

        Returns its epoch and those that it continues.

        Raises:
            KeyMismatch: it exists with another key.
            GatewayRefused: the gateway refuses it, or it is missing although it was declared.
        """
        with gateway_at(self.gateway) as gateway:
            found = gateway.find_topic(self.topic)
            if found is None and self.declared:
                raise GatewayRefused(
                    f"{self.stream}: {self.gateway} no longer has topic {self.topic}"
                )
            if found is None:
                gateway.put_topic(self.topic, self.definition)
                found = gateway.find_topic(self.topic) or {}
            # Messages would be refused one by one, or replace records of another key.
            elif found.get("key") != self.definition["key"]:
                raise KeyMismatch(
                    f"topic {self.topic} exists with key {found.get('key')}, "
                    f"the stream's is {self.definition['key']}"
                )
        return [found["epoch"], *found.get("continues", ())] if found.get("epoch") else ()

    def write(self, rows: DataFrame, batch: Batch) -> BatchResult:
        """Publish a batch's rows; counts and names of stages come to the driver, no messages.

        Waits for `not_before_s`, so that two batches do not send a key twice within an interval.

        Raises:
            CheckpointUnusable: the topic already has a batch that is only now being planned.
            GatewayRefused: as `commit`.
        """

        def stage_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with gateway_at(self.gateway) as gateway:
                existing = (
                    ExistingRecords.of(gateway, self.topic) if self._restated(batch) else None
                )
                staging = Staging(self, gateway, batch, task_attempt(), existing)
                for each in batches:
                    staging.take(each)
                staging.end()
            yield staging.report().rows()

        if batch.is_first and not self._restated(batch):
            self._require_unknown(batch)
        # Stages expire after an hour: with long intervals do not stage too early.
        waited_s = wait_until(batch.not_before_s - STAGED_AHEAD_S_MAX)
        # The topic gets rows in the order in which the task stages them.
        reports = reports_of(_in_one_task(rows), stage_task)
        ready_at_s = time.monotonic()
        waited_s += wait_until(batch.not_before_s)
        return replace(self.commit(reports, batch), ready_at_s=ready_at_s, waited_s=waited_s)

    def commit(self, reports: Sequence[Report], batch: Batch) -> BatchResult:
        """Publish what tasks have staged, in the order of their reports, unless it has been.

        Raises:
            GatewayRefused: a newer run of the stream has committed, or stages are gone.
        """
        # Only the stages of attempts that Spark took: what others staged expires at the gateway.
        stages = [name for report in reports for name in report.names]
        is_new, sent_at_s = False, 0.0
        if stages:
            producer = self.producer(batch)
            # A batch that compares with the topic finds less to do when it is repeated, so its
            # rows differ: under the batch's own number they would pass for a repetition.
            number = batch.run if self._restated(batch) else batch.number
            with gateway_at(self.gateway) as gateway:
                done = gateway.commit(self.topic, producer, batch.run, number, stages)
                is_new = not done.duplicate
            sent_at_s = time.monotonic()
        return result_of(reports, is_new=is_new, sent_at_s=sent_at_s)

    def _require_unknown(self, batch: Batch) -> None:
        """Refuse a checkpoint that is older than the topic: its new batches would count as sent."""
        with gateway_at(self.gateway) as gateway:
            highest = gateway.highest_sequence(self.topic, self.producer(batch), batch.run)
            if highest is not None and highest >= batch.number:
                raise CheckpointUnusable(
                    f"topic {self.topic} has batch {batch.number} already, which the checkpoint "
                    "has not begun: it is older than what was published, or not whole; remove it "
                    "to begin again"
                )

    def producer(self, batch: Batch) -> str:
        """Return the producer that commits a batch.

        Its name has the query's id, which is in the checkpoint. Without it, a stream with a new
        checkpoint would count from 0 again, and each of its batches would pass for a repeated one.
        """
        part = ".end" if batch.is_end else ".begin" if self._restated(batch) else ""
        return f"{PRODUCER_PREFIX}{self.stream}.{batch.query[:8]}{part}"

    def _restated(self, batch: Batch) -> bool:
        return self.restates and batch.number == 0 and not batch.is_end


class Staging:
    """One task's part of a micro-batch on its way out, on an executor.

    `attempt` is the task attempt's own number: no two attempts, batches or runs share a stage.
    """

    def __init__(
        self,
        writer: TopicWriter,
        gateway: Gateway,
        batch: Batch,
        attempt: int,
        existing: ExistingRecords | None = None,
    ) -> None:
        self.messages = 0
        producer = writer.producer(batch)
        name = f"{producer}.{batch.run}.{batch.number}.{attempt}"
        self._stages = Stages(gateway, writer.topic, producer, name)
        self._existing = existing
        self._refused_lines = DeadLetterFile(writer.dead_letters, batch, attempt)

    def take(self, rows: pa.RecordBatch) -> None:
        """Add rows, which come in the order in which they are to be published."""
        self.messages += pc.sum(rows.column("messages")).as_py() or 0
        self._refused_lines.take(rows)
        sent = rows.filter(pc.is_null(rows.column("refused")))
        columns = (sent.column(name).to_pylist() for name in ("key", "value", "removed"))
        for record, value, removed in zip(*columns, strict=True):
            # Otherwise a restarted stream would send every record to every subscriber again.
            if self._existing is not None and not self._existing.take_difference(record, value):
                continue
            if removed is None:
                self._stages.add(value)
            else:
                self._remove(record, removed)

    def end(self) -> None:
        """Stage what is left, then give the dead letters their name."""
        for record in self._existing.left() if self._existing is not None else ():
            self._remove(record)
        self._stages.end()
        self._refused_lines.end()

    def report(self) -> Report:
        """Return what was done so far."""
        stages = self._stages
        return Report(self.messages, stages.messages, self._refused_lines.count, stages.names)

    def _remove(self, record: str, reason: str = "deleted") -> None:
        text, is_envelope = removal(record.encode(), reason)
        self._stages.add(text, is_envelope=is_envelope)


def _in_one_task(rows: DataFrame) -> DataFrame:
    """Gather the rows in one task, as a topic has one order.

    `coalesce` saves one of Spark's stages, about 0.1 s. Many partitions gain more from their own
    tasks.
    """
    partitions = shuffle_partitions(rows.sparkSession)
    # coalesce runs the few partitions one by one in that task; repartition keeps their own tasks.
    return rows.coalesce(1) if partitions <= COALESCE_PARTITIONS_MAX else rows.repartition(1)
