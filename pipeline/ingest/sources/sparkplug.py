"""Metrics of Sparkplug B's edge nodes and devices, at an MQTT broker.

A message of theirs becomes one record for each metric, whose payload is JSON. So a topic has the
newest value of each metric, and says which are offline.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar

from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.ingest.connector import RECORDS_MAX, SourceBatch, SourceRecord, Through
from tidegate.pipeline.ingest.sources.mqtt import MqttConnector, MqttSource
from tidegate.pipeline.ingest.sources.sparkplug_nodes import LEVELS, NAMESPACE, SparkplugNodes
from tidegate.pipeline.ingest.sources.sparkplug_payload import MS_PER_S, rebirth_request
from tidegate.pipeline.mqtt_broker import MqttBroker

GROUPS = 'ids of groups, such as ["plant-1"]'
GROUP = re.compile(r"[^/+#]+")


@dataclass(frozen=True, slots=True)
class SparkplugSource:
    """The table `source` of kind sparkplug; no `groups` are all."""

    broker: MqttBroker
    groups: tuple[str, ...]
    rebirth: bool
    historical: bool
    kind: ClassVar[str] = "sparkplug"
    separator: ClassVar[str] = "/"

    @property
    def label(self) -> str:
        """The broker without user and password, and the groups."""
        return f"sparkplug {self.broker.label} {', '.join(self.groups) or 'all groups'}"

    def connector(self, name: str) -> SparkplugConnector:
        """Return a connector that is not connected yet."""
        filters = [
            f"{NAMESPACE}/{group}/{message}" + "/+" * (levels - 3)
            for group in self.groups or ("+",)
            for message, levels in LEVELS.items()
        ]
        # Deaths are wills of QoS 1, and all else is sent with QoS 0.
        mqtt = MqttSource(self.broker, tuple(filters), qos=1)
        nodes = SparkplugNodes(self.rebirth, self.historical)
        return SparkplugConnector(mqtt.connector(name), nodes)


def read_source(table: TomlTable, folder: Path) -> SparkplugSource:
    """Read the table; a relative path of `ca` is below `folder`."""
    broker = MqttBroker.read(table, folder)
    groups = table.texts("groups", GROUPS) if table.has("groups") else []
    if not all(map(GROUP.fullmatch, groups)):
        raise table.wrong("groups", GROUPS, groups)
    rebirth, historical = table.flag("rebirth", True), table.flag("historical", False)
    return SparkplugSource(broker, tuple(groups), rebirth, historical)


class SparkplugConnector:
    """Reads metrics as they arrive (a `Connector`, and `Restored`); they have no numbers."""

    def __init__(self, mqtt: MqttConnector, nodes: SparkplugNodes) -> None:
        self._mqtt = mqtt
        self._nodes = nodes
        self._records: Iterator[SourceRecord] | None = None

    def restore(self, messages: Iterable[bytes]) -> None:
        """Learn from what the topic has which metrics there are."""
        self._nodes.restore(messages)

    def open(self, through: Through) -> None:
        """Connect and subscribe.

        Raises:
            EndpointUnavailable: the broker does not answer.
            EndpointRefused: it refuses the client or a subscription.
        """
        self._mqtt.open(through)

    def read(self, seconds: float) -> SourceBatch | None:
        """Return metrics of the messages that have arrived; ask for births that are missing.

        A message may have more metrics than a batch records: the next batches have the others.

        Raises:
            EndpointUnavailable: the connection is lost.
        """
        if self._records is None:
            batch = self._mqtt.read(seconds)
            if batch is None:
                return None
            now_s = time.monotonic()
            found = (self._nodes.read(each, now_s) for each in batch.records)
            self._records = chain.from_iterable(found)
        records = list(islice(self._records, RECORDS_MAX))
        if len(records) < RECORDS_MAX:
            self._records = None
        for group, node in self._nodes.take_requests():
            request = rebirth_request(int(time.time() * MS_PER_S))
            self._mqtt.send(f"{NAMESPACE}/{group}/NCMD/{node}", request)
        return SourceBatch(records)

    def acknowledge(self, batch: SourceBatch) -> None:
        """Let the broker forget the messages of QoS 1, once all of their metrics are published."""
        if self._records is None:
            self._mqtt.acknowledge(batch)

    def close(self) -> None:
        """Disconnect; the broker keeps deaths of an outage."""
        self._mqtt.close()
