"""Streams and queues of RabbitMQ, over AMQP 0-9-1.

A stream keeps its messages, and their offsets are positions. A message of a queue is acknowledged
after the gateway has it. The socket is read only in `read`, so a gateway that is absent stops the
reading.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pika import BlockingConnection, SSLOptions, URLParameters
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from tidegate.pipeline.definitions.toml import TomlTable, place_of, read_file
from tidegate.pipeline.errors import (
    DefinitionInvalid,
    EndpointRefused,
    EndpointUnavailable,
    SourceLost,
)
from tidegate.pipeline.ingest.connector import (
    BYTES_MAX,
    SourceBatch,
    SourceRecord,
    Through,
)
from tidegate.pipeline.ingest.sources.shared import NOW, read_skips_gaps, read_start

ADDRESS = re.compile(r"amqps?://\S+")
QUEUE = re.compile(r"[^\x00-\x1f]{1,255}")
UNACKNOWLEDGED_MAX = 2_000  # what RabbitMQ recommends for quorum queues at most
ANSWER_SECONDS_MAX = 10
SILENCE_SECONDS_MAX = 10.0  # for a message that the broker has
HEARTBEAT_S = 180  # longer than the gateway is waited for, when nothing is sent to the broker
OFFSET = "x-stream-offset"
ABSENT = 320  # CONNECTION_FORCED: the broker ends
MS_PER_S = 1_000
# It would write each failure to standard error, in several lines; what matters is raised.
logging.getLogger("pika").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class RabbitQueue:
    """The table `source` of kind rabbitmq.

    `start` and `skips_gaps` are those of a stream. `ca` is a file of authorities for `amqps://`,
    None for those of the system.
    """

    address: str
    queue: str
    is_stream: bool
    start: str
    skips_gaps: bool
    ca: Path | None
    kind: ClassVar[str] = "rabbitmq"
    separator: ClassVar[str] = "."

    @property
    def label(self) -> str:
        """The broker without user and password, and the queue or stream."""
        return f"rabbitmq {self.server} {self.what}"

    @property
    def server(self) -> str:
        """Broker and virtual host without user, password and parameters."""
        return place_of(self.address)

    @property
    def what(self) -> str:
        """The queue or stream."""
        return f"{'stream' if self.is_stream else 'queue'} {self.queue}"

    def connector(self, name: str) -> RabbitConnector:
        """Return a connector that is not connected yet."""
        return RabbitConnector(self, f"tidegate ingest {name}")


def read_source(table: TomlTable, folder: Path) -> RabbitQueue:
    """Read the table; a relative path of `ca` is below `folder`."""
    expected = "an address such as amqp://USER:PASSWORD@127.0.0.1:5672/VHOST"
    refuses = (TypeError, ValueError)
    address = table.secret("address", ADDRESS, expected, URLParameters, refuses)
    is_stream = table.has("stream")
    if is_stream and table.has("queue"):
        raise DefinitionInvalid(f"{table.where('stream')}: queue or stream, not both")
    for field in ("from", "gaps"):
        if table.has(field) and not is_stream:
            raise DefinitionInvalid(f"{table.where(field)}: only with a stream")
    named = "the name of a stream" if is_stream else "the name of a queue, or stream"
    return RabbitQueue(
        address=address,
        queue=table.checked("stream" if is_stream else "queue", QUEUE.fullmatch, named),
        is_stream=is_stream,
        start=read_start(table),
        skips_gaps=read_skips_gaps(table),
        ca=read_file(table, "ca", folder),
    )


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as it arrived; `tag` acknowledges it."""

    tag: int
    record: SourceRecord


class RabbitConnector:
    """Reads messages as they arrive (a `Connector`); those of a stream have numbers."""

    def __init__(self, source: RabbitQueue, client_name: str) -> None:
        self._source = source
        self._client_name = client_name
        self._connection: BlockingConnection | None = None
        self._channel: BlockingChannel | None = None
        self._waiting: list[Delivery] = []
        self._refusal: str | None = None
        self._after: int | None = None
        self._last_tag = 0

    def open(self, through: Through) -> None:
        """Connect, and ask for messages.

        Raises:
            EndpointUnavailable: the broker does not answer.
            EndpointRefused: it refuses the client, or has no such queue.
            SourceLost: the stream does not have what was published of it.
        """
        source = self._source
        arguments: dict[str, Any] = {}
        if source.is_stream:
            self._after = through("")
            first = "next" if source.start == NOW else "first"
            arguments[OFFSET] = first if self._after is None else self._after
        with self._sentences():
            self._connection = BlockingConnection(self._parameters())
            self._channel = self._connection.channel()
            self._channel.queue_declare(source.queue, passive=True)
            self._channel.basic_qos(prefetch_count=UNACKNOWLEDGED_MAX)
            self._channel.add_on_cancel_callback(self._on_cancel)
            self._channel.basic_consume(source.queue, self._on_message, arguments=arguments)
            if self._after is not None:
                self._pass_published(self._after)

    def read(self, seconds: float) -> SourceBatch | None:
        """Return what has arrived, once there is something.

        Raises:
            EndpointUnavailable: the connection is lost.
            EndpointRefused: the queue is gone.
            SourceLost: messages of a stream were deleted before they were read.
        """
        with self._sentences():
            if not self._fills(self._waiting, seconds):
                return None
            size, seen = 0, 0
            while seen < len(self._waiting) < UNACKNOWLEDGED_MAX and size < BYTES_MAX:
                size += sum(len(each.record.payload or b"") for each in self._waiting[seen:])
                seen = len(self._waiting)
                self._receive(0)
            lag = self._lag()
        deliveries, self._waiting = self._waiting, []
        self._last_tag = deliveries[-1].tag
        records = [each.record for each in deliveries]
        return SourceBatch(
            self._without_gaps(records) if self._source.is_stream else records, lag=lag
        )

    def acknowledge(self, batch: SourceBatch) -> None:
        """Let the broker forget the messages of a queue, and send more."""
        with self._sentences():
            self._open_channel.basic_ack(self._last_tag, multiple=True)

    def close(self) -> None:
        """Close the connection; what was not acknowledged is in the queue again."""
        if self._connection is not None and self._connection.is_open:
            with suppress(AMQPError, OSError):
                self._connection.close()

    @property
    def _open_channel(self) -> BlockingChannel:
        assert self._channel is not None
        return self._channel

    def _parameters(self) -> URLParameters:
        found = URLParameters(self._source.address)
        found.heartbeat = HEARTBEAT_S
        found.socket_timeout = found.stack_timeout = ANSWER_SECONDS_MAX
        found.connection_attempts = 1
        found.client_properties = {"connection_name": self._client_name}
        if self._source.ca is not None:
            context = ssl.create_default_context(cafile=self._source.ca)
            found.ssl_options = SSLOptions(context, found.host)
        return found

    def _pass_published(self, published: int) -> None:
        """Receive the message that was published last, which is not read again.

        Where a stream ends before the offset that it is asked for, the broker says nothing, and
        delivers nothing until the stream is as long.

        Raises:
            SourceLost: the stream ends before that message.
            EndpointUnavailable: no message of the stream can be read.
        """
        if self._fills(self._waiting, SILENCE_SECONDS_MAX):
            if self._waiting[0].record.number == published:
                del self._waiting[0]
            return
        assert self._connection is not None
        place, latest = self._source.label, list[int]()
        channel = self._connection.channel()
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(
            self._source.queue,
            lambda _channel, _method, properties, _body: latest.append(properties.headers[OFFSET]),
            arguments={OFFSET: "last"},
        )
        # Its messages come in chunks, and this is the first one of the last chunk.
        self._fills(latest, SILENCE_SECONDS_MAX)
        if self._waiting or not latest or latest[0] >= published:
            raise EndpointUnavailable(
                f"{place} does not give message {published}, which was published; if it was made "
                "again, another name of the ingest reads it"
            )
        raise SourceLost(
            f"{place} ends before {published}, which was published: it was recreated; another "
            "name of the ingest reads it"
        )

    def _fills(self, received: Sequence[object], seconds: float) -> bool:
        """Receive until there is something; return False if there is nothing in time."""
        give_up_at = time.monotonic() + seconds
        while not received:
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                return False
            self._receive(left_s)
        return True

    def _receive(self, seconds: float) -> None:
        assert self._connection is not None
        self._connection.process_data_events(seconds)
        if self._refusal is not None:
            raise EndpointRefused(f"{self._source.label} {self._refusal}")

    def _lag(self) -> int | None:
        """Return how many messages wait in the queue; of a stream the broker does not say it."""
        if self._source.is_stream:
            return None
        found = self._open_channel.queue_declare(self._source.queue, passive=True)
        count: int = found.method.message_count
        return count

    def _without_gaps(self, records: Sequence[SourceRecord]) -> list[SourceRecord]:
        """Return the records of a stream, with a dead letter for each gap.

        Raises:
            SourceLost: there is a gap, and the definition does not skip it.
        """
        whole: list[SourceRecord] = []
        for record in records:
            number, after = record.number or 0, self._after
            if after is not None and number > after + 1:
                fault = f"deleted before they were read: messages {after + 1} to {number - 1}"
                if not self._source.skips_gaps:
                    raise SourceLost(
                        f'{self._source.label}: {fault}; gaps = "skip" continues with what is there'
                    )
                position = str(after + 1)
                whole.append(SourceRecord(None, number, position, fault=fault))
            whole.append(record)
            self._after = number
        return whole

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Raise what the broker or the client says as a sentence."""
        server = self._source.server
        try:
            yield
        except (AuthenticationError, ProbableAuthenticationError, ProbableAccessDeniedError):
            raise EndpointRefused(f"rabbitmq {server} refuses user or password") from None
        except (ChannelClosedByBroker, ConnectionClosedByBroker) as error:
            kind = EndpointUnavailable if error.reply_code == ABSENT else EndpointRefused
            raise kind(f"rabbitmq {server}: {error.reply_text}") from None
        except (AMQPError, OSError) as error:
            said = " ".join(str(error).split()) or "does not answer"
            raise EndpointUnavailable(f"rabbitmq {server}: {said}") from None

    # Callbacks of pika, called within `process_data_events`

    def _on_message(self, channel: object, method: Any, properties: Any, body: bytes) -> None:
        offset = (properties.headers or {}).get(OFFSET)
        # Read as a queue, a stream would begin after what it has at each start. What is a queue and
        # named as a stream is refused by the broker.
        if offset is not None and not self._source.is_stream:
            self._refusal = "is a stream: name it in the field stream"
        sent_s = properties.timestamp
        record = SourceRecord(
            # An empty message removes a record.
            payload=body or None,
            number=offset,
            position="" if offset is None else str(offset),
            channel=method.routing_key,
            timestamp_ms=None if sent_s is None else sent_s * MS_PER_S,
        )
        self._waiting.append(Delivery(method.delivery_tag, record))

    def _on_cancel(self, method: object) -> None:
        self._refusal = "was deleted"
