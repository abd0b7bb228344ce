"""A topic of Kafka, read by the offsets of its partitions.

All partitions are assigned at once: a consumer group would hold back the partitions of a process
that was killed until its session expires. Offsets are committed for monitoring only.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import DefinitionInvalid, EndpointRefused, SourceLost
from tidegate.pipeline.ingest.connector import (
    BYTES_MAX,
    SourceBatch,
    SourceRecord,
    Through,
)
from tidegate.pipeline.ingest.sources.shared import EPOCH, NOW, read_skips_gaps, read_start
from tidegate.pipeline.kafka_cluster import ANSWER_SECONDS_MAX, ClientFailure, KafkaCluster

GROUP = re.compile(r"\S{1,255}")
PARTITIONS_SECONDS = 60.0
"""How often the topic is asked for partitions that were added."""
CONNECT_SECONDS = 1.0
"""How long the brokers are waited for before their first answer, until errors are checked."""
MESSAGES_MAX = 20_000
"""Messages of all partitions that are read at once: each partition is published by itself."""
OWN_OPTIONS = {
    "enable.auto.commit": False,
    # Never skipped in silence.
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": BYTES_MAX // 1024,
    # Without it the client fetches 100,000 messages ahead.
    "queued.min.messages": MESSAGES_MAX,
    # By default it fetches nothing for a second after that many are there.
    "fetch.queue.backoff.ms": 5,
}
# ruff: noqa: SLF001 - librdkafka's names of the client's own codes begin with an underscore
NO_SUCH_OFFSET = KafkaError._AUTO_OFFSET_RESET


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """The table `source` of kind kafka; its fields are those of a pipeline's, and two more.

    `group` is None for one made of the definition's name.
    """

    cluster: KafkaCluster
    start: str
    group: str | None
    skips_gaps: bool
    kind: ClassVar[str] = "kafka"
    separator: ClassVar[str] = "."

    @property
    def label(self) -> str:
        """The topic without brokers; partitions name the cluster."""
        return self.cluster.label

    def connector(self, name: str) -> KafkaConnector:
        """Return a connector that is not connected yet."""
        return KafkaConnector(self, self.group or f"tidegate-{name}")


def read_source(table: TomlTable, folder: Path) -> KafkaTopic:
    """Read the table."""
    cluster = KafkaCluster.read(table, {*OWN_OPTIONS, "group.id"}, "an ingest")
    expected = "the name of a consumer group"
    return KafkaTopic(
        cluster=cluster,
        start=read_start(table),
        group=table.checked("group", GROUP.fullmatch, expected) if table.has("group") else None,
        skips_gaps=read_skips_gaps(table),
    )


class KafkaConnector:
    """Reads all partitions of a topic after the offsets that the gateway has (a `Connector`)."""

    def __init__(self, source: KafkaTopic, group: str) -> None:
        self._source = source
        self._topic = source.cluster.topic
        self._group = group
        self._consumer: Consumer | None = None
        self._through: Through = lambda _: None
        self._cluster_id = ""
        self._next: dict[int, int] = {}
        self._gaps: dict[int, int] = {}
        self._ready: deque[SourceBatch] = deque()
        self._failure = ClientFailure()
        self._look_at_s = 0.0

    def open(self, through: Through) -> None:
        """Connect, and assign all partitions.

        Raises:
            EndpointUnavailable: no broker answers.
            EndpointRefused: they refuse, or have no such topic.
            SourceLost: messages that were still to be read are gone.
            DefinitionInvalid: the client does not know an option.
        """
        self._through = through
        own = {**OWN_OPTIONS, "group.id": self._group, "error_cb": self._failure.note}
        try:
            self._consumer = Consumer(self._source.cluster.settings(own))
        except KafkaException as error:
            raise DefinitionInvalid(f"options of Kafka: {error.args[0].str()}") from None
        self._assign_new(self._source.start)

    def read(self, seconds: float) -> SourceBatch | None:
        """Return the next messages of one partition, once there are some.

        Raises:
            EndpointUnavailable: no broker answers.
            EndpointRefused: the brokers refuse.
            SourceLost: messages were deleted before they were read.
        """
        if not self._ready:
            if time.monotonic() >= self._look_at_s:
                # A partition that is added later is read as a whole, whatever `from` says.
                self._assign_new(EPOCH)
            first = self._client.poll(seconds)
            self._raise_failure()
            if first is not None:
                self._sort([first, *self._client.consume(MESSAGES_MAX - 1, 0)])
        return self._ready.popleft() if self._ready else None

    def acknowledge(self, batch: SourceBatch) -> None:
        """Commit the offset to the group, so that tools for Kafka see how far the ingest is."""
        number = batch.records[-1].number
        assert number is not None
        partition = int(batch.partition.rpartition("-")[2])
        self._client.commit(offsets=[self._at(partition, number + 1)], asynchronous=True)

    def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    @property
    def _client(self) -> Consumer:
        assert self._consumer is not None
        return self._consumer

    def _at(self, partition: int, offset: int) -> TopicPartition:
        return TopicPartition(self._topic, partition, offset)

    # Partitions

    def _assign_new(self, start: str) -> None:
        """Assign the partitions that are not yet assigned."""
        self._look_at_s = time.monotonic() + PARTITIONS_SECONDS
        topic = self._topic
        try:
            found = self._described_topic()
            described = found.topics[topic]
            if described.error is not None:
                raise EndpointRefused(f"Kafka topic {topic}: {described.error.str()}")
            self._cluster_id = found.cluster_id or ""
            added = sorted(set(described.partitions) - self._next.keys())
            offsets = {each: self._first_offset(each, start) for each in added}
            if offsets:
                self._client.incremental_assign([self._at(*each) for each in offsets.items()])
        except KafkaException as error:
            # If a broker refuses a password, the call only times out.
            self._raise_failure()
            raise _problem(error.args[0], self._source) from None
        self._next |= offsets

    def _described_topic(self) -> Any:  # the client does not export the type
        """Return what the brokers say of the topic.

        Raises:
            KafkaException: they do not answer in time.
            EndpointUnavailable: no address takes a connection; this is known at once.
        """
        if self._next:
            return self._client.list_topics(self._topic, ANSWER_SECONDS_MAX)
        give_up_s = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            try:
                return self._client.list_topics(self._topic, CONNECT_SECONDS)
            except KafkaException:
                # Only `poll` reports errors, and takes no message: no partition is assigned yet.
                self._client.poll(0)
                self._raise_failure()
                if time.monotonic() >= give_up_s:
                    raise

    def _first_offset(self, partition: int, start: str) -> int:
        asked = self._at(partition, 0)
        low, high = self._client.get_watermark_offsets(asked, timeout=ANSWER_SECONDS_MAX)
        through = self._through(self._name(partition))
        if through is None:
            return high if start == NOW else low
        following = through + 1
        if following < low and self._source.skips_gaps:
            self._gaps[partition] = following
            return low
        if not low <= following <= high:
            raise _lost(self._source, f"offset {following} of partition {partition}")
        return following

    def _name(self, partition: int) -> str:
        """Return the name of a partition's numbers, which are others in another cluster."""
        cluster = hashlib.blake2b(self._cluster_id.encode(), digest_size=4).hexdigest()
        return f"{cluster}-{partition}"

    # Messages

    def _sort(self, messages: Iterable[Message]) -> None:
        """Make a batch for each partition, as numbers are a partition's."""
        by_partition: dict[int, list[SourceRecord]] = {}
        for message in messages:
            error = message.error()
            if error is not None:
                raise _problem(error, self._source)
            partition, record = message.partition() or 0, _record(message)
            records = by_partition.setdefault(partition, [])
            if partition in self._gaps:
                records.append(_gap(record, partition, self._gaps.pop(partition)))
            records.append(record)
        for partition, records in by_partition.items():
            self._next[partition] = (records[-1].number or 0) + 1
        lag = self._lag()
        for partition, records in by_partition.items():
            self._ready.append(SourceBatch(records, self._name(partition), lag))

    def _lag(self) -> int:
        """Return how many messages all partitions have that were not received yet."""
        lag = 0
        for partition, offset in self._next.items():
            _, high = self._client.get_watermark_offsets(self._at(partition, 0), cached=True)
            lag += max(0, high - offset)
        return lag

    # Errors that belong to no message

    def _raise_failure(self) -> None:
        if self._failure.error is not None:
            raise _problem(self._failure.error, self._source)


def _problem(error: KafkaError, source: KafkaTopic) -> Exception:
    if error.code() == NO_SUCH_OFFSET and not source.skips_gaps:
        return _lost(source, "the message that follows")
    return source.cluster.problem(error)


def _lost(source: KafkaTopic, what: str) -> SourceLost:
    return SourceLost(
        f"Kafka no longer holds {what} in topic {source.cluster.topic}: it was deleted after its "
        "retention time, or the topic was recreated; another name of the ingest reads what is "
        'there, and gaps = "skip" continues after deleted messages'
    )


def _gap(following: SourceRecord, partition: int, offset: int) -> SourceRecord:
    """Return a dead letter for the messages that were deleted before this one."""
    fault = f"deleted before they were read: the messages of offsets {offset} to "
    return SourceRecord(
        payload=None,
        number=following.number,
        position=f"partition {partition}, offset {offset}",
        channel=following.channel,
        fault=f"{fault}{(following.number or 0) - 1}",
    )


def _record(message: Message) -> SourceRecord:
    kind, timestamp_ms = message.timestamp()
    offset = message.offset()
    return SourceRecord(
        payload=message.value(),
        number=offset,
        position=f"partition {message.partition()}, offset {offset}",
        broker_key=message.key(),
        channel=message.topic() or "",
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
    )
