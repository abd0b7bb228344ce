"""Sources, command and gateway are killed at random instants: nothing is lost, nothing doubled."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from nats.errors import Error as NatsError
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from redis import Redis
from redis.exceptions import RedisError

from tests.pipeline.ingest.ingesting import connector_of, eventually, journal
from tests.support import commands
from tests.support.buses import BusServer, binary_of
from tests.support.deadlines import HANGS_S
from tests.support.external.kafka import Broker, broker_jars
from tests.support.external.mosquitto import Mosquitto
from tests.support.external.nats import NatsServer
from tests.support.external.postgres import PostgresServer
from tests.support.outside import require
from tests.support.ports import lasting_port
from tests.support.profiles import SEED
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.system
RATE = 200.0


class Feed(Protocol):
    """A source that gets numbered messages, and can be killed."""

    source: str
    counts_once: bool

    def put(self, number: int) -> None:
        """Add a message; returns once the source has it."""

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None:
        """End it for good."""


class RedisFeed:
    counts_once = True

    def __init__(self, folder: Path) -> None:
        self._server = BusServer(binary_of("redis"), folder)
        self._client = Redis.from_url(self._server.url)
        self.source = f'kind = "redis", address = "{self._server.url}", stream = "s", field = "j"'

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        self._client.close()
        self.kill()

    def put(self, number: int) -> None:
        while True:
            try:
                # Its own id, so that one whose answer was lost is not there twice.
                self._client.xadd("s", {"j": message(number)}, id=f"{number + 1}-0")
            except RedisError as error:
                if "equal or smaller" in str(error):
                    return
                time.sleep(0.01)
            else:
                return


class FileFeed:
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

    def put(self, number: int) -> None:
        with self._path.open("a") as file:
            file.write(message(number) + "\n")


class MqttFeed:
    counts_once = False

    def __init__(self, folder: Path) -> None:
        self._broker = Mosquitto(folder)
        self._client = Client(CallbackAPIVersion.VERSION2)
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

    def put(self, number: int) -> None:
        while True:
            try:
                if not self._client.is_connected():
                    self._client.connect("127.0.0.1", self._broker.port)
                sent = self._client.publish("s", message(number), qos=1)
                deadline = time.monotonic() + 1.0
                while not sent.is_published() and time.monotonic() < deadline:
                    if self._client.loop(0.01) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                        break
                if sent.is_published():
                    return
            except (OSError, RuntimeError):  # paho's, of a message that was not sent
                time.sleep(0.01)

    def close(self) -> None:
        self._client.disconnect()
        self.kill()


class KafkaFeed:
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
            client.create_topics([NewTopic("s", 1)])["s"].result(HANGS_S)
            # It numbers what it sends again, so that nothing is there twice.
            self._producer = Producer({**settings, "enable.idempotence": True, "log_level": 0})

    def kill(self) -> None:
        self._broker.kill()

    def close(self) -> None:
        self.kill()

    def put(self, number: int) -> None:
        assert self._producer is not None
        self._producer.produce("s", message(number))
        assert self._producer.flush(HANGS_S) == 0


class NatsFeed:
    counts_once = True

    def __init__(self, folder: Path) -> None:
        self._server = NatsServer(folder)
        self._has_stream = False
        self.source = f'kind = "nats", address = "{self._server.address}", stream = "s"'

    def start(self) -> None:
        self._server.start()
        if not self._has_stream:
            self._server.ask(lambda stream: stream.add_stream(name="s", subjects=["s"]))
            self._has_stream = True

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        self.kill()

    def put(self, number: int) -> None:
        # Its own id, so that one whose answer was lost is not there twice.
        head = {"Nats-Msg-Id": str(number)}
        while True:
            try:
                self._server.ask(
                    lambda stream: stream.publish("s", message(number).encode(), headers=head)
                )
            except (NatsError, OSError):
                time.sleep(0.01)
            else:
                return


class PostgresFeed:
    counts_once = True

    def __init__(self, folder: Path) -> None:
        self._server = PostgresServer(folder)
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
                "CREATE TABLE s (n int PRIMARY KEY, k int)",
                "CREATE PUBLICATION s FOR TABLE s",
                "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
            )
            self._has_table = True

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        self.kill()

    def put(self, number: int) -> None:
        row = f"INSERT INTO s VALUES ({number}, {number % 5}) ON CONFLICT DO NOTHING"
        while True:
            try:
                self._server.execute(row)
            except psycopg.Error:
                time.sleep(0.01)
            else:
                return


def message(number: int) -> str:
    return json.dumps({"k": number % 5, "n": number})


class World:
    """A gateway that keeps what it has, a command, and a feed; each can be killed."""

    def __init__(self, folder: Path, feed: Feed) -> None:
        self.feed = feed
        self.port = lasting_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._data = folder / "data"
        self._definition = folder / "sources.toml"
        self._definition.write_text(
            f'gateway = "{self.address}"\n[ingest.a]\nkey = ["/k"]\n'
            f'source = {{{feed.source}}}\nsink = {{topic = "t"}}\n'
        )
        self._gateway = self._command = self._serve()
        self._command = self._ingest()

    def kill_gateway(self) -> None:
        end(self._gateway)
        self._gateway = self._serve()

    def kill_command(self) -> None:
        end(self._command)
        self._command = self._ingest()

    def kill_source(self) -> None:
        self.feed.kill()
        self.feed.start()

    def close(self) -> None:
        end(self._command)
        end(self._gateway)
        self.feed.close()

    def _serve(self) -> subprocess.Popen[str]:
        process = commands.start("serve", "--port", str(self.port), TIDEGATE_DATA=str(self._data))
        commands.address_of(process)
        return process

    def _ingest(self) -> subprocess.Popen[str]:
        return commands.start("ingest", str(self._definition))


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=HANGS_S)


@contextmanager
def fed(feed: Feed) -> Iterator[Callable[[], int]]:
    """Feed messages at a rate during the block; the answer ends that and returns their number."""
    stopping = threading.Event()
    put: list[int] = []

    def run() -> None:
        while not stopping.wait(1 / RATE):
            feed.put(len(put))
            put.append(len(put))

    thread = threading.Thread(target=run)
    thread.start()

    def finish() -> int:
        stopping.set()
        thread.join(HANGS_S)
        return len(put)

    try:
        yield finish
    finally:
        finish()


def play(folder: Path, feed: Feed, rounds: int) -> None:
    """Kill each part in so many rounds, in random order at random instants."""
    chance = random.Random(SEED)
    feed.start()
    world = World(folder, feed)
    try:
        with fed(feed) as finish:
            eventually(lambda: newest(world) >= 0, True)
            for _ in range(rounds):
                kills = [world.kill_command, world.kill_gateway, world.kill_source]
                for kill in chance.sample(kills, len(kills)):
                    time.sleep(chance.uniform(0.05, 0.4))
                    kill()
            count = finish()
        eventually(lambda: newest(world), count - 1)
        found = numbers(world)
        assert sorted(set(found)) == list(range(count)), f"seed {SEED}: lost"
        if feed.counts_once:
            assert found == list(range(count)), f"seed {SEED}: doubled, or out of order"
    finally:
        world.close()


def newest(world: World) -> int:
    """The greatest number that the topic has, or -1."""
    with Gateway(world.address) as gateway:
        if gateway.find_topic("t") is None:
            return -1
        return max((json.loads(line)["n"] for line in gateway.sow("t")), default=-1)


def numbers(world: World) -> list[int]:
    return [each["n"] for each in journal(world.address, "t")]


FEEDS: dict[str, Callable[[Path], Feed]] = {
    "redis": RedisFeed,
    "file": FileFeed,
    "kafka": KafkaFeed,
    "mqtt": MqttFeed,
    "nats": NatsFeed,
    "postgres": PostgresFeed,
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that servers of other users may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="tidegate-kills-") as name:
        yield Path(name)


@rule("ingest-1")
@pytest.mark.parametrize("kind", ["redis"])
def test_each_part_is_killed_once(folder: Path, kind: str) -> None:
    play(folder, FEEDS[kind](folder), rounds=1)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", FEEDS)
def test_each_part_is_killed_often(folder: Path, kind: str) -> None:
    play(folder, FEEDS[kind](folder), rounds=10)
