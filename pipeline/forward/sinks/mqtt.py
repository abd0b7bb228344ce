"""Topics of an MQTT broker: a retained message for each record, at QoS 1."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from paho.mqtt.client import Client, ConnectFlags, MQTTMessageInfo
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import EndpointRefused, EndpointUnavailable
from tidegate.pipeline.forward.sinks.shared import KEY_PART, filled, payload_of, read_is_whole
from tidegate.pipeline.forward.target import DELETE, RESET, Patience, Refusal, Row
from tidegate.pipeline.mqtt_broker import CONNECT_SECONDS_MAX, MqttBroker

QOS = 1
IN_FLIGHT_MAX = 200
PUBLISHED_EVERY_S = 0.25
TOPIC_BYTES_MAX = 65_535  # its length has two bytes
HEAD_BYTES = 10
"""The most bytes of a packet in addition to topic and payload."""
TOPIC = 'a topic such as "prices/{key/0}", without + and #'
# These have a meaning in topics and in topic filters; % itself, so that no two keys are one topic.
_PLAIN = "".join(chr(at) for at in range(1, 127) if chr(at) not in "/+#%")


@dataclass(frozen=True, slots=True)
class MqttSink:
    """The table `sink` of kind mqtt; `is_whole` if a payload is the envelope, else its value."""

    broker: MqttBroker
    topic: str
    retain: bool
    is_whole: bool
    kind: ClassVar[str] = "mqtt"
    keeps_position: ClassVar[bool] = False
    knows_message_ids: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The broker without user and password, and the topic."""
        return f"mqtt {self.broker.label} {self.topic}"

    def target(self, name: str, patience: Patience) -> MqttTarget:
        """Return a target that is not connected yet."""
        return MqttTarget(self, f"tidegate-forward-{name}")


def read_sink(table: TomlTable, folder: Path) -> MqttSink:
    """Read the table; a relative path of `ca` is below `folder`."""
    broker = MqttBroker.read(table, folder)
    topic = table.checked("topic", _is_topic, TOPIC)
    return MqttSink(broker, topic, table.flag("retain", default=True), read_is_whole(table))


def _is_topic(text: str) -> bool:
    rest = KEY_PART.sub("", text)
    return bool(text) and not any(each in rest for each in "+#{}\0") and text[0] != "$"


class MqttTarget:
    """Publishes rows, and waits until the broker has each (a `Target`).

    paho's thread sends pings while there is nothing to write.
    """

    def __init__(self, sink: MqttSink, client_id: str) -> None:
        self._sink = sink
        self._answered = threading.Event()
        self._refused: str | None = None
        self._reasons: dict[int, str] = {}
        self._packet_bytes_max: int | None = None
        self._client = sink.broker.client(client_id, clean=True)
        self._client.max_inflight_messages_set(IN_FLIGHT_MAX)
        self._client.on_connect = self._on_connect
        self._client.on_publish = self._on_publish

    def open(self) -> None:
        """Connect.

        Raises:
            EndpointUnavailable: the broker does not answer.
            EndpointRefused: it refuses the client.
        """
        broker = self._sink.broker
        broker.connect(self._client)
        self._client.loop_start()
        if not self._answered.wait(CONNECT_SECONDS_MAX):
            raise EndpointUnavailable(f"the broker at {broker.label} does not answer")
        if self._refused is not None:
            raise EndpointRefused(f"the broker at {broker.label} refuses {self._refused}")

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        """Publish a message for each row, in order.

        Raises:
            EndpointUnavailable: the connection is lost.
        """
        refused: list[Refusal] = []
        sent: list[tuple[Row, MQTTMessageInfo]] = []
        self._reasons.clear()
        for row in rows:
            if row.op == RESET:
                continue  # which topics are to be cleared is not known
            topic = topic_of(self._sink.topic, row)
            if topic is None:
                refused.append(Refusal(row, f"its key does not fill {self._sink.topic}"))
                continue
            payload = self._payload(row)
            size, most = HEAD_BYTES + len(topic.encode()) + len(payload), self._packet_bytes_max
            if most is not None and size > most:  # for which the broker would disconnect
                refused.append(Refusal(row, f"the broker takes packets of at most {most} bytes"))
                continue
            info = self._client.publish(topic, payload, QOS, self._sink.retain)
            if info.rc == MQTTErrorCode.MQTT_ERR_NO_CONN:
                raise self._lost()
            sent.append((row, info))
        for row, info in sent:
            self._await(info)
            if info.mid in self._reasons:
                refused.append(Refusal(row, self._reasons[info.mid]))
        return refused

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()
        # paho's client closes its other sockets when it is freed. That is now, and not when the
        # callbacks or an error that refers to this object are collected.
        self._client.on_connect = None
        self._client.on_publish = None
        del self._client

    def _payload(self, row: Row) -> bytes:
        if row.op == DELETE:
            return b""  # which clears a retained message
        return payload_of(row, self._sink.is_whole)

    def _await(self, info: MQTTMessageInfo) -> None:
        while not info.is_published():
            if not self._client.is_connected():
                raise self._lost()
            info.wait_for_publish(PUBLISHED_EVERY_S)

    def _lost(self) -> EndpointUnavailable:
        return EndpointUnavailable(
            f"the broker at {self._sink.broker.label} has ended the connection"
        )

    # Callbacks of paho, called by its thread

    def _on_connect(
        self,
        client: Client,
        userdata: object,
        flags: ConnectFlags,
        code: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if code.is_failure:
            self._refused = f"the connection: {str(code).lower()}"
        # Only MQTT 5 has properties, and only a broker with a bound has this one.
        self._packet_bytes_max = getattr(properties, "MaximumPacketSize", None)
        self._answered.set()

    def _on_publish(
        self,
        client: Client,
        userdata: object,
        mid: int,
        code: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if code.is_failure:
            self._reasons[mid] = f"the broker refuses it: {str(code).lower()}"


def topic_of(pattern: str, row: Row) -> str | None:
    """Return the MQTT topic of a row; None if its key makes none.

    It has fewer parts than the pattern names, or the topic is empty, too long, or would begin with
    `$` as those of the broker do.
    """
    topic = filled(pattern, row, _PLAIN)
    is_one = topic and topic[0] != "$" and len(topic.encode()) <= TOPIC_BYTES_MAX
    return topic if is_one else None
