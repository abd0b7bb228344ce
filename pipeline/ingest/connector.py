"""What a source is to the rest: records with positions in, acknowledged batches out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable


# Not frozen: there is one for each message, and a frozen one takes three times as long to make.
@dataclass(slots=True)
class SourceRecord:
    """One message as the source gave it.

    Attributes:
        payload: its bytes; None is a tombstone, which removes the record that `broker_key` names.
        number: 0 to 2^63 - 1, never falls within a partition; None from a source without
            positions. The same record has the same number whenever it is read. Records of one
            number are published in one step, so a batch has all of them.
        position: its place in words of the source, for dead letters.
        broker_key: the key that the broker has for it.
        channel: what it was sent to: topic of MQTT or Kafka, subject of NATS, routing key of
            RabbitMQ, stream of Redis, name of a file.
        timestamp_ms: when it was sent, in milliseconds of the epoch, if the source says so.
        fault: why it is no message, where the connector knows: such a record is a dead letter. One
            without payload may stand for records that the source no longer has.
    """

    payload: bytes | None
    number: int | None
    position: str
    broker_key: bytes | None = None
    channel: str = ""
    timestamp_ms: int | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Records of one partition, in their order.

    Attributes:
        partition: names the numbers of the records; at most 63 characters of A-Z a-z 0-9 _ -.
        lag: how many messages the source has after this batch, if it says so.
    """

    records: Sequence[SourceRecord]
    partition: str = ""
    lag: int | None = None


Through = Callable[[str], int | None]
"""Returns the highest number of a partition that the gateway has; None before the first."""


class Connector(Protocol):
    """Reads one source; all methods are called by one thread, from `open` to `close`.

    Each start makes a new connector, and restores it first if it is `Restored` as well. What its
    methods raise ends it: a `PipelineError` whose `may_pass` is true is followed by another start
    after a pause, and others are final.
    """

    def open(self, through: Through) -> None:
        """Connect, and read after the numbers that `through` returns.

        Raises:
            EndpointUnavailable: the source does not answer.
            SourceLost: it no longer has what follows.
        """

    def read(self, seconds: float) -> SourceBatch | None:
        """Return the next batch, or None if there is none within so many seconds.

        A batch has what is there, up to a bound of its own in records and bytes: memory holds one.

        Raises:
            EndpointUnavailable: the source does not answer.
            SourceLost: it no longer has what follows.
        """

    def acknowledge(self, batch: SourceBatch) -> None:
        """Tell the source that the gateway has this batch, the one read last."""

    def close(self) -> None:
        """Close the connection, if there is one.

        What was not acknowledged is read again by the next start.
        """


@runtime_checkable
class Restored(Protocol):
    """A connector that begins with what the topic has."""

    def restore(self, messages: Iterable[bytes]) -> None:
        """Take the newest message of each record, before `open` is called."""


class SourceDefinition(Protocol):
    """The table `source` of a definition.

    Attributes:
        kind: as the table names it.
        separator: between the levels of a record's channel.
    """

    kind: ClassVar[str]
    separator: ClassVar[str]

    @property
    def label(self) -> str:
        """The source in logs, without passwords, such as `redis 127.0.0.1:6379/0 stream orders`.

        It identifies the numbers of records: with another label they begin again.
        """

    def connector(self, name: str) -> Connector:
        """Return a connector, not connected yet, for the definition of this name."""


RECORDS_MAX = 5_000
BYTES_MAX = 4 * 1024 * 1024
"""The bounds of a batch that suit most sources: half of what a request of the gateway takes."""
