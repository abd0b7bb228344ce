"""A real Kafka: one node on this machine, which needs Java and what Spark fetches jars with.

Where the packages cannot be had there is no broker; what the product says then is what a test can
look at instead.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.deadlines import HANGS_S
from tests.support.external.server import ExternalServer
from tests.support.ports import lasting_port
from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.sources.kafka import fetch_jars
from tidegate.pipeline.spark.jvm import java_command

VERSION = "4.2.0"
BROKER = f"org.apache.kafka:kafka_2.13:{VERSION}"
TOOLS = f"org.apache.kafka:kafka-tools:{VERSION}"  # but what it needs: that is for Connect
# Parts of Spark's connector that go together. Not each repository has all of each release.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
PARTITIONS = 3
CLUSTER = "tidegate-tests-0000000"  # 22 characters: an id as Kafka has them

Message = tuple[str, str | None]


@functools.cache
def connector_folder(folder: Path) -> Path | None:
    """A folder with the jars of Spark's Kafka connector; None where they cannot be had."""
    try:
        jars = fetch_jars(CONNECTOR, is_transitive=False)
    except SparkUnavailable:
        return None
    for jar in jars:
        (folder / jar.name).symlink_to(jar)
    return folder


@functools.cache
def broker_jars() -> list[Path] | None:
    """What a broker runs from; None where it cannot be had."""
    try:
        return fetch_jars([BROKER]) + fetch_jars([TOOLS], is_transitive=False)
    except SparkUnavailable:
        return None


class Broker(ExternalServer):
    """A broker that keeps its log in a folder, asked with Kafka's own commands."""

    def __init__(self, jars: Iterable[Path], folder: Path) -> None:
        super().__init__(folder)
        self._jars = os.pathsep.join(map(str, jars))
        self._settings = folder / "server.properties"
        self._settings.write_text(_settings(folder / "log", self.port, lasting_port()))
        form = java("-cp", self._jars, "kafka.tools.StorageTool", "format", "-t", CLUSTER)
        command = [*form, "-c", str(self._settings)]
        subprocess.run(command, check=True, capture_output=True, timeout=HANGS_S)

    @property
    def address(self) -> str:
        """The address that clients begin with."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """The command that runs it."""
        return java("-cp", self._jars, "kafka.Kafka", str(self._settings))

    def send(self, topic: str, messages: Iterable[Message]) -> None:
        """Publish messages, key and value, in their order; None is a tombstone."""
        lines = (f"{key_text}|{'NONE' if value is None else value}" for key_text, value in messages)
        told = ["parse.key=true", "key.separator=|", "null.marker=NONE"]
        reader = [word for option in told for word in ("--reader-property", option)]
        self._run("ConsoleProducer", "--topic", topic, *reader, said="\n".join(lines) + "\n")

    def remove(self, topic: str) -> None:
        """Delete a topic; it is made again by whoever publishes to it."""
        self._run("TopicCommand", "--delete", "--topic", topic)

    def tool(self, name: str) -> list[str]:
        """The command that one of Kafka's scripts runs."""
        return java("-cp", self._jars, f"org.apache.kafka.tools.{name}")

    def _run(self, tool: str, *words: str, said: str = "") -> None:
        command = [*self.tool(tool), "--bootstrap-server", self.address, *words]
        done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=HANGS_S)
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def kafka_broker(jars: list[Path], folder: Path) -> Iterator[Broker]:
    """A running broker, which ends with the block."""
    broker = Broker(jars, folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def java(*words: str) -> list[str]:
    """A small Java, quick to start."""
    return [java_command(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *words]


def _settings(log: Path, broker_port: int, controller_port: int) -> str:
    at = "127.0.0.1"
    lines = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{at}:{controller_port}",
        "listeners": f"PLAINTEXT://{at}:{broker_port},CONTROLLER://{at}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{at}:{broker_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": log,
        "num.partitions": PARTITIONS,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    return "".join(f"{name}={setting}\n" for name, setting in lines.items())
