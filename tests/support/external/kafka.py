"""A real Kafka: one node on this machine, which needs Java and what Spark fetches jars with.

Where the packages cannot be had there is no broker; what the product says then is what a test can
look at instead.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.deadlines import HANGS_S
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


class Broker:
    """A running broker at `address`, asked with Kafka's own commands."""

    def __init__(self, jars: Iterable[Path], address: str) -> None:
        self.address = address
        self._jars = os.pathsep.join(map(str, jars))

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
    """A broker that keeps its log in a folder, and ends with the block."""
    broker_port, controller_port = lasting_port(), lasting_port()
    settings = folder / "server.properties"
    settings.write_text(_settings(folder / "log", broker_port, controller_port))
    classpath = os.pathsep.join(map(str, jars))
    form = java("-cp", classpath, "kafka.tools.StorageTool", "format", "-t", CLUSTER)
    subprocess.run([*form, "-c", settings], check=True, capture_output=True, timeout=HANGS_S)
    with (folder / "broker.log").open("wb") as log:
        server = subprocess.Popen(
            java("-cp", classpath, "kafka.Kafka", str(settings)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        await_port(server, broker_port)
        yield Broker(jars, f"127.0.0.1:{broker_port}")
    finally:
        server.kill()
        server.wait()


def java(*words: str) -> list[str]:
    """A small Java, quick to start."""
    return [java_command(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *words]


def await_port(server: subprocess.Popen[bytes], port: int) -> None:
    """Returns when the server takes connections; fails when it ended or takes too long."""
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        assert server.poll() is None, f"the broker ended with {server.returncode}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"the broker did not answer within {HANGS_S} s")


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
