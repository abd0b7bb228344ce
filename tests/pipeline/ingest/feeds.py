"""Sources of each kind that get numbered messages, and can be killed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pika
import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.js.api import StreamConfig
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError
from redis import Redis
from redis.exceptions import ConnectionError as RedisUnreachable
from redis.exceptions import ResponseError

from tests.pipeline.ingest.ingesting import connector_of
from tests.support.buses import BusServer, binary_of
from tests.support.deadlines import HANGS_S
from tests.support.external.kafka import PARTITIONS, Broker, broker_jars
from tests.support.external.mosquitto import Mosquitto
from tests.support.external.nats import NatsServer
from tests.support.external.postgres import PostgresServer
from tests.support.external.rabbitmq import RabbitServer
from tests.support.outside import require

KEYS = 50
RETRY_S = 0.01
KEPT_S = 3_600.0  # of an id by which a server knows a message again


def key_of(number: int) -> int:
    """The key of a message."""
    return number % KEYS


class Feed(Protocol):
    """A source that gets numbered messages, and can be killed.

    Attributes:
        source: the table `source` of a definition, without braces.
        counts_once: whether each message is published exactly once.
        padding: characters that are added to each message.
    """

    source: str
    counts_once: bool
    padding: int = 0

    def message(self, number: int) -> str:
        """The text of a message."""
        return json.dumps({"k": key_of(number), "n": number, "x": "x" * self.padding})

    def start(self) -> None:
        """Start it, for the first time or after a kill."""

    def kill(self) -> None:
        """End it at once."""

    def close(self) -> None:
        """End it for good."""

    def put(self, numbers: range) -> None:
        """Add messages in their order, each once; returns once the source has them."""


class RedisFeed(Feed):
    counts_once = True

    def __init__(self, folder: Path) -> None:
        self._server = BusServer(binary_of("redis"), folder)
        self._client = Redis.from_url(self._server.url)
        self.source = f'kind = "redis", address = "{self._server.url}", stream = "s", field = "j"'

    def start(self) -> None:
        # By default it may answer two seconds before it writes, while the disk is busy.
        self._server.start("--appendfsync", "always")

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        self._client.close()
        self.kill()

    def put(self, numbers: range) -> None:
        while True:
            # All or none: while it loads its file it refuses some and takes those behind them.
            steps = self._client.pipeline(transaction=True)
            for number in numbers:
                # Its own id, so that one whose answer was lost is not there twice.
                steps.xadd("s", {"j": self.message(number)}, id=f"{number + 1}-0")
            try:
                answers = steps.execute(raise_on_error=False)
            except RedisUnreachable:
                time.sleep(RETRY_S)
                continue
            errors = [each for each in answers if isinstance(each, Exception)]
            if all(isinstance(each, ResponseError) and "smaller" in str(each) for each in errors):
                return


class FileFeed(Feed):
    counts_once = True

    def __init__(self, folder: Path) -> None:
        self._path = folder / "in.ndjson"
        self.source = f'kind = "file", path = "{self._path}*"'

    def start(self) -> None:
        pass

    def kill(self) -> None:
        """A file cannot die, but it is rotated."""
        if self._path.exists():
            count = len(list(self._path.parent.glob("in.ndjson.*")))
            self._path.rename(f"{self._path}.{count:03}")

    def close(self) -> None:
        pass

    def put(self, numbers: range) -> None:
        with self._path.open("a") as file:
            file.writelines(self.message(number) + "\n" for number in numbers)


class MqttFeed(Feed):
    counts_once = False

    def __init__(self, folder: Path) -> None:
        # It is ended in order; each save would be of all messages.
        self._broker = Mosquitto(folder, "autosave_on_changes false\nautosave_interval 3600\n")
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.on_publish = lambda _client, _data, sent, *_rest: self._awaited.discard(sent)
        self._awaited: set[int] = set()
        self._has_session = False
        self.source = f'kind = "mqtt", address = "{self._broker.address}", subscribe = ["s"]'

    def start(self) -> None:
        self._broker.start()
        if not self._has_session:  # the broker keeps messages only for a client that it knows
            self._has_session = True
            table = {"kind": "mqtt", "address": self._broker.address, "subscribe": ["s"]}
            connector = connector_of(table)
            connector.open(lambda partition: None)
            connector.close()

    def kill(self) -> None:
        self._broker.stop()  # of a kill -9 it forgets the last second, whatever its clients do

    def close(self) -> None:
        self._client.disconnect()
        # paho's client closes its sockets when it is freed, which this cycle would delay.
        self._client.on_publish = None
        self.kill()

    def put(self, numbers: range) -> None:
        # The client repeats by itself what was not acknowledged when it connects again.
        self._awaited |= {
            self._client.publish("s", self.message(number), qos=1).mid for number in numbers
        }
        while self._awaited:
            try:
                if self._client.loop(RETRY_S) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                    self._client.connect("127.0.0.1", self._broker.port)
            except OSError:
                time.sleep(RETRY_S)


class KafkaFeed(Feed):
    counts_once = True

    def __init__(self, folder: Path) -> None:
        jars = broker_jars()
        require(jars is not None, "no packages of Kafka")
        self._broker = Broker(jars or [], folder)
        self._producer: Producer | None = None
        self.source = f'kind = "kafka", brokers = "{self._broker.address}", topic = "s"'

    def start(self) -> None:
        self._broker.start()
        if self._producer is None:
            settings: dict[str, Any] = {"bootstrap.servers": self._broker.address}
            client = AdminClient(settings)
            client.create_topics([NewTopic("s", PARTITIONS)])["s"].result(HANGS_S)
            # It numbers what it sends again, so that nothing is there twice.
            own = {"enable.idempotence": True, "message.timeout.ms": 0, "log_level": 0}
            self._producer = Producer({**settings, **own})

    def kill(self) -> None:
        self._broker.kill()

    def close(self) -> None:
        self.kill()

    def put(self, numbers: range) -> None:
        assert self._producer is not None
        for number in numbers:
            self._producer.produce("s", self.message(number), key=str(key_of(number)))
        assert self._producer.flush(HANGS_S) == 0


class NatsFeed(Feed):
    counts_once = True

    def __init__(self, folder: Path) -> None:
        self._server = NatsServer(folder)
        self._runner = asyncio.Runner()
        self._client: NatsClient | None = None
        self._has_stream = False
        self.source = f'kind = "nats", address = "{self._server.address}", stream = "s"'

    def start(self) -> None:
        self._server.start()
        if not self._has_stream:
            made = StreamConfig(name="s", subjects=["s"], duplicate_window=KEPT_S)
            self._server.ask(lambda stream: stream.add_stream(made))
            self._has_stream = True

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        self.kill()
        self._runner.run(self._disconnect())
        self._runner.close()

    def put(self, numbers: range) -> None:
        while True:
            try:
                self._runner.run(self._publish(numbers))
            except (NatsError, OSError, TimeoutError):
                self._runner.run(self._disconnect())
                time.sleep(RETRY_S)
            else:
                return

    async def _publish(self, numbers: range) -> None:
        if self._client is None:
            client = NatsClient()
            await client.connect(
                self._server.address,
                error_cb=_ignore,
                allow_reconnect=False,
                max_reconnect_attempts=1,
            )
            self._client = client
        stream = self._client.jetstream()
        # Its own id, so that one whose answer was lost is not there twice.
        sent = [
            stream.publish("s", self.message(each).encode(), headers={"Nats-Msg-Id": str(each)})
            for each in numbers
        ]
        await asyncio.gather(*sent)

    async def _disconnect(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None


async def _ignore(error: Exception) -> None:
    """The client would log it."""


class PostgresFeed(Feed):
    counts_once = True

    def __init__(self, folder: Path) -> None:
        self._server = PostgresServer(folder)
        self._session: psycopg.Connection | None = None
        self._has_table = False
        # What the first start finds would come twice if it was killed.
        self.source = (
            f'kind = "postgres", address = "{self._server.address()}", publication = "s", '
            'slot = "s", from = "now"'
        )

    def start(self) -> None:
        self._server.start()
        if not self._has_table:
            self._server.execute(
                "CREATE TABLE s (n int PRIMARY KEY, k int, x text)",
                "CREATE PUBLICATION s FOR TABLE s",
                "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
            )
            self._has_table = True

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self.kill()

    def put(self, numbers: range) -> None:
        rows = (
            f"INSERT INTO s SELECT n, n % {KEYS}, repeat('x', {self.padding}) FROM "
            f"generate_series({numbers.start}, {numbers.stop - 1}) n ON CONFLICT DO NOTHING"
        )
        while True:
            try:
                if self._session is None or self._session.closed:
                    address = self._server.address()
                    self._session = psycopg.connect(address, autocommit=True, connect_timeout=5)
                self._session.execute(rows.encode())
            except psycopg.Error:
                time.sleep(RETRY_S)
            else:
                return


class RabbitFeed(Feed):
    counts_once = True

    def __init__(self, folder: Path) -> None:
        self._server = RabbitServer(folder)
        self._channel: BlockingChannel | None = None
        self._has_stream = False
        self._next = 0
        self.source = f'kind = "rabbitmq", address = "{self._server.address()}", stream = "s"'

    def start(self) -> None:
        self._server.start()
        if not self._has_stream:
            self._channel = self._connect()
            self._channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
            self._disconnect()
            self._has_stream = True

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        self._disconnect()
        self._server.close()

    def put(self, numbers: range) -> None:
        # The broker does not know a message again: what it has is read from the stream's end.
        while True:
            try:
                if self._channel is None:
                    self._channel = self._connect()
                    self._next = self._newest(self._channel, numbers.stop - 1) + 1
                for number in range(self._next, numbers.stop):
                    self._channel.basic_publish("", "s", self.message(number).encode())
                self._next = numbers.stop
                if self._newest(self._channel, numbers.stop - 1) == numbers.stop - 1:
                    return
            except (AMQPError, OSError):
                time.sleep(RETRY_S)
            self._disconnect()

    def _connect(self) -> BlockingChannel:
        parameters = pika.URLParameters(self._server.address())
        parameters.heartbeat = 0  # the feed waits for long between two calls
        connection = pika.BlockingConnection(parameters)
        try:
            return connection.channel()
        except AMQPError:
            with suppress(AMQPError, OSError):
                connection.close()
            raise

    def _disconnect(self) -> None:
        if self._channel is not None:
            with suppress(AMQPError, OSError):
                self._channel.connection.close()
            self._channel = None

    def _newest(self, channel: BlockingChannel, wanted: int) -> int:
        """Return the number of the stream's last message, or -1; do not wait where it is wanted."""
        found = [-1]
        reader = channel.connection.channel()
        reader.basic_qos(prefetch_count=10_000)
        reader.basic_consume(
            "s",
            lambda _channel, _method, _head, body: found.append(json.loads(body)["n"]),
            arguments={"x-stream-offset": "last"},
        )
        quiet_at = time.monotonic() + QUIET_S
        while found[-1] < wanted and time.monotonic() < quiet_at:
            before = len(found)
            channel.connection.process_data_events(0.1)
            if len(found) > before:
                quiet_at = time.monotonic() + QUIET_S
        with suppress(AMQPError):
            reader.close()
        return found[-1]


QUIET_S = 5.0  # without a message, the end of a stream is reached

FEEDS: dict[str, Callable[[Path], Feed]] = {
    "redis": RedisFeed,
    "file": FileFeed,
    "kafka": KafkaFeed,
    "nats": NatsFeed,
    "rabbitmq": RabbitFeed,
    "postgres": PostgresFeed,
    "mqtt": MqttFeed,
}
