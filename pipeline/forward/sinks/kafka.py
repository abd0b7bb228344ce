"""A topic of Kafka: a record for each row, exactly once.

The position is a record of a compacted topic, and is written in the transaction of its rows, as
source connectors of Kafka Connect do (KIP-618). So consumers that read committed records see both
or neither, and a start continues after what they see.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidegate.pipeline.definitions.source import KAFKA_TOPIC
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import (
    DefinitionInvalid,
    EndpointUnavailable,
    InUse,
    PipelineError,
)
from tidegate.pipeline.forward.sinks.shared import payload_of, read_is_whole
from tidegate.pipeline.forward.target import DELETE, RESET, Patience, Refusal, Row
from tidegate.pipeline.kafka_cluster import ANSWER_SECONDS_MAX, ClientFailure, KafkaCluster

TRANSACTIONAL_ID = re.compile(r"\S{1,255}")
POSITIONS = "tidegate.positions"
POSITIONS_SETTINGS = {
    "cleanup.policy": "compact",
    # A start reads the topic, and the newest segment is never compacted.
    "segment.bytes": str(4 * 1024 * 1024),
}
BY_THE_BROKER = -1  # how many replicas a topic has
# As Java's clients choose it: records of a key are in the partition where these look for them.
PARTITIONER = {"partitioner": "murmur2_random"}
FLUSH_SECONDS = 0.25
ABORT_SECONDS_MAX = 2.0
# Another forward's transaction may hide what is behind it, and lasts no longer by default.
POSITIONS_SECONDS_MAX = 90.0
# ruff: noqa: SLF001 - librdkafka's names of the client's own codes begin with an underscore
FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
ABOUT_ROWS = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD})
"""Refusals of a record that repeating it does not change."""
EXISTS = KafkaError.TOPIC_ALREADY_EXISTS
NO_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART
END_REACHED = KafkaError._PARTITION_EOF


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """The table `sink` of kind kafka.

    `positions` is the topic that positions are written to; `transactional_id` is None for one made
    of the definition's name; `is_whole` if a payload is the envelope, else its value.
    """

    cluster: KafkaCluster
    is_whole: bool
    positions: str
    transactional_id: str | None
    kind: ClassVar[str] = "kafka"
    keeps_position: ClassVar[bool] = True
    knows_message_ids: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The topic without brokers."""
        return self.cluster.label

    def target(self, name: str, patience: Patience) -> KafkaTarget:
        """Return a target that is not connected yet."""
        return KafkaTarget(self, self.transactional_id or f"tidegate-forward-{name}", patience)


def read_sink(table: TomlTable, folder: Path) -> KafkaSink:
    """Read the table."""
    cluster = KafkaCluster.read(table, {"transactional.id"}, "a forward")
    positions = POSITIONS
    field = "position_topic"
    if table.has(field):
        positions = table.checked(field, KAFKA_TOPIC.fullmatch, "the name of a Kafka topic")
    if positions == cluster.topic:
        raise table.wrong(field, "a topic other than that of the rows", positions)
    transactional_id = None
    if table.has("transactional_id"):
        expected = "an id of at most 255 characters"
        transactional_id = table.checked("transactional_id", TRANSACTIONAL_ID.fullmatch, expected)
    return KafkaSink(cluster, read_is_whole(table), positions, transactional_id)


Failed = tuple[Row | None, KafkaError]
"""A row that was not delivered, None for the position."""


class KafkaTarget:
    """Produces the rows of a batch and its position in one transaction (a `PositionedTarget`)."""

    def __init__(self, sink: KafkaSink, transactional_id: str, patience: Patience) -> None:
        self._sink = sink
        self._cluster = sink.cluster
        self._id = transactional_id
        self._patience = patience
        self._failure = ClientFailure()
        self._producer: Producer | None = None
        self._is_open = False
        self._is_one_by_one = False
        self._rows: list[Row] = []
        self._failed: list[Failed] = []
        self._key = b""
        self._after = ""

    def open(self) -> None:
        """Connect, and end what an earlier process of this transactional id has begun.

        Raises:
            EndpointUnavailable: no broker answers.
            EndpointRefused: they refuse.
            DefinitionInvalid: the client does not know an option.
        """
        own = {"transactional.id": self._id, "error_cb": self._failure.note}
        try:
            self._producer = Producer({**PARTITIONER, **self._cluster.settings(own)})
        except KafkaException as error:
            raise DefinitionInvalid(f"options of Kafka: {error.args[0].str()}") from None
        with self._problems():
            try:
                self._client.init_transactions(ANSWER_SECONDS_MAX)
            except KafkaException:
                self._client.poll(0)  # reports which address takes no connection, and why
                raise

    def resume(self, identity: str) -> str:
        """Return the newest committed position; create the topic of positions if there is none.

        Raises:
            EndpointUnavailable: no broker answers, or another forward does not end its transaction.
            EndpointRefused: they refuse.
        """
        self._key = f"{self._id} {identity}".encode()
        positions = self._sink.positions
        with self._problems(), self._consumer("read_uncommitted") as consumer:
            self._require(consumer, self._cluster.topic)
            try:
                self._require(consumer, positions)
            except KafkaException as error:
                if error.args[0].code() != NO_TOPIC:
                    raise
                self._create_positions()
            else:
                at = TopicPartition(positions, 0)
                low, high = consumer.get_watermark_offsets(at, ANSWER_SECONDS_MAX)
                self._after = self._newest_position(low, high)
        return self._after

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        """Produce a record for each row, in a transaction that `note` commits.

        Raises:
            EndpointUnavailable: the brokers do not answer.
            EndpointRefused: they refuse.
            InUse: a later process has taken over.
        """
        self._rows = [row for row in rows if row.op != RESET]
        self._is_one_by_one = False
        if not self._produce_all(self._rows):
            return []
        # Brokers refuse a request as a whole: only a record that is alone shows whether it is at
        # fault. Each one ends its transaction, and the client drops what follows it.
        self._is_one_by_one = True
        refused: list[Refusal] = []
        left = self._rows
        while left:
            self._reconnect()
            wrong = self._produce_all(left)
            refused += wrong
            at = [each is wrong[0].row for each in left].index(True) if wrong else len(left)
            left = left[at + 1 :]
        left_out = {id(each.row) for each in refused}
        self._rows = [row for row in self._rows if id(row) not in left_out]
        # Refused rows are stored elsewhere before `note`, which may take longer than a transaction.
        self._reconnect()
        return refused

    def note(self, after: str) -> None:
        """Commit the rows of the last `write` and the position in one step.

        Raises:
            EndpointUnavailable: the brokers do not answer.
            EndpointRefused: they refuse.
            InUse: a later process has taken over.
        """
        if after == self._after and not self._is_open and not self._rows:
            return
        with self._problems():
            if not self._is_open:
                self._produce_all(self._rows)
            self._client.produce(
                self._sink.positions,
                after.encode(),
                self._key,
                partition=0,
                on_delivery=partial(_on_delivery, self._failed, None),
            )
            self._flush()
            if self._failed:
                raise self._problem(self._failed[0][1])
            self._client.commit_transaction(ANSWER_SECONDS_MAX)
        self._is_open = False
        self._rows = []
        self._after = after

    def close(self) -> None:
        """Abort what was not committed, and close the connection."""
        if self._producer is not None:
            if self._is_open:
                # The brokers may be away. The next start aborts it, or its timeout.
                with suppress(KafkaException):
                    self._producer.abort_transaction(ABORT_SECONDS_MAX)
            self._is_open = False
            self._producer.purge()
            self._producer = None

    @property
    def _client(self) -> Producer:
        assert self._producer is not None, "it was opened"
        return self._producer

    # Transactions

    def _produce_all(self, rows: Sequence[Row]) -> list[Refusal]:
        """Begin a transaction with rows; return those at fault, one by one only the first."""
        self._failed = []
        with self._problems():
            self._client.begin_transaction()
            self._is_open = True
            for row in rows:
                self._produce(row)
                if self._is_one_by_one:
                    self._flush()
                    if self._failed:
                        break
            self._flush()
        wrong = [
            Refusal(row, f"Kafka refuses it: {error.str()}")
            for row, error in self._failed
            if row is not None and error.code() in ABOUT_ROWS
        ]
        if self._failed and not wrong:
            raise self._problem(self._failed[0][1])
        return wrong

    def _produce(self, row: Row) -> None:
        key = row.fields.get("key")
        try:
            self._client.produce(
                self._cluster.topic,
                None if row.op == DELETE else payload_of(row, self._sink.is_whole),
                None if key is None else bytes(key),
                on_delivery=partial(_on_delivery, self._failed, row),
            )
        except KafkaException as error:
            self._failed.append((row, error.args[0]))

    def _flush(self) -> None:
        while self._client.flush(FLUSH_SECONDS):
            if self._failure.error is not None:
                raise self._problem(self._failure.error)
            self._patience.pause(0)

    def _reconnect(self) -> None:
        self.close()
        self.open()

    # Positions

    @contextmanager
    def _consumer(self, isolation: str) -> Iterator[Consumer]:
        own = {
            "group.id": self._id,  # librdkafka asks for one; nothing joins it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
        with closing(Consumer(self._cluster.settings(own))) as consumer:
            yield consumer

    def _require(self, consumer: Consumer, topic: str) -> None:
        error = consumer.list_topics(topic, ANSWER_SECONDS_MAX).topics[topic].error
        if error is not None:
            raise KafkaException(error)

    def _create_positions(self) -> None:
        name = self._sink.positions
        made = NewTopic(name, 1, BY_THE_BROKER, config=POSITIONS_SETTINGS)
        client = AdminClient(self._cluster.settings({}))
        created = client.create_topics([made], request_timeout=ANSWER_SECONDS_MAX)
        try:
            created[name].result()
        except KafkaException as error:
            if error.args[0].code() != EXISTS:  # another forward may have been first
                raise

    def _newest_position(self, low: int, high: int) -> str:
        """Return the newest position of this forward between two offsets.

        What is committed may be hidden behind a transaction of another forward, until that ends.
        """
        positions = self._sink.positions
        found, reached = "", low
        give_up_at = time.monotonic() + POSITIONS_SECONDS_MAX
        with self._consumer("read_committed") as consumer:
            consumer.assign([TopicPartition(positions, 0, low)])
            while reached < high:
                if time.monotonic() >= give_up_at:
                    raise EndpointUnavailable(
                        f"Kafka topic {positions}: a transaction does not end"
                    )
                message = consumer.poll(FLUSH_SECONDS)
                self._patience.pause(0)
                if message is None:
                    continue
                error = message.error()
                if error is not None and error.code() != END_REACHED:
                    raise self._problem(error)
                reached = message.offset() or 0
                if error is None:
                    reached += 1
                    if message.key() == self._key:
                        found = (message.value() or b"").decode()
        return found

    # Errors

    @contextmanager
    def _problems(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            # If a broker refuses a password, the call only times out.
            raise self._problem(self._failure.error or error.args[0]) from None
        except SystemError as error:
            # The client raises what is fatal, and then still calls for what was not delivered.
            if not isinstance(error.__cause__, KafkaException):
                raise
            raise self._problem(error.__cause__.args[0]) from None

    def _problem(self, error: KafkaError) -> PipelineError:
        if error.code() in FENCED:
            return InUse(f"another process forwards with the transactional id {self._id}")
        return self._cluster.problem(error)


def _on_delivery(
    failed: list[Failed], row: Row | None, error: KafkaError | None, _: Message
) -> None:
    """Add a row that was not delivered to those of its transaction, which may have ended."""
    if error is not None:
        failed.append((row, error))
