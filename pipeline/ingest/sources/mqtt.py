"""Topics of an MQTT broker, versions 3.1.1 and 5.

At QoS 1 the broker keeps a session for the client's id, and each message until it is acknowledged:
after the gateway has it. The socket is read only in `read`, so a gateway that is absent stops the
reading, and the broker's bounds apply.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from paho.mqtt.client import Client, MQTTMessage, error_string
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import EndpointRefused, EndpointUnavailable
from tidegate.pipeline.ingest.connector import (
    BYTES_MAX,
    RECORDS_MAX,
    SourceBatch,
    SourceRecord,
    Through,
)
from tidegate.pipeline.mqtt_broker import CONNECT_SECONDS_MAX, MqttBroker

FILTERS = 'topic filters, such as ["plant/+/temperature"]'
SESSION_EXPIRY_S = 7 * 24 * 3_600


@dataclass(frozen=True, slots=True)
class MqttSource:
    """The table `source` of kind mqtt."""

    broker: MqttBroker
    subscribe: tuple[str, ...]
    qos: int
    kind: ClassVar[str] = "mqtt"
    separator: ClassVar[str] = "/"

    @property
    def label(self) -> str:
        """The broker without user and password, and the topic filters."""
        return f"mqtt {self.broker.label} {', '.join(self.subscribe)}"

    def connector(self, name: str) -> MqttConnector:
        """Return a connector that is not connected yet."""
        return MqttConnector(self, f"tidegate-{name}")


def read_source(table: TomlTable, folder: Path) -> MqttSource:
    """Read the table; a relative path of `ca` is below `folder`."""
    broker = MqttBroker.read(table, folder)
    qos = table.raw("qos")
    qos = 1 if qos is None else qos
    if qos not in (0, 1) or isinstance(qos, bool):
        raise table.wrong("qos", "0 or 1 (at 2 a message is lost that was not published yet)", qos)
    return MqttSource(broker, tuple(table.texts("subscribe", FILTERS)), qos)


class Arrival(NamedTuple):
    """A message and the id that acknowledges it; 0 at QoS 0."""

    message_id: int
    record: SourceRecord


class MqttConnector:
    """Reads messages as they arrive (a `Connector`); they have no numbers."""

    def __init__(self, source: MqttSource, client_id: str) -> None:
        self._source = source
        self._waiting: list[Arrival] = []
        self._unacknowledged: list[int] = []
        self._refused: str | None = None
        self._is_connected = False
        self._granted: int | None = None
        self._client = source.broker.client(client_id, clean=source.qos == 0, manual_ack=True)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def open(self, through: Through) -> None:
        """Connect and subscribe; messages of the session may arrive from then on.

        Raises:
            EndpointUnavailable: the broker does not answer.
            EndpointRefused: it refuses the client or a subscription.
        """
        source, given = self._source, dict[str, Any]()
        if source.broker.is_v5:
            session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's
            session.SessionExpiryInterval = SESSION_EXPIRY_S if source.qos else 0
            session.ReceiveMaximum = RECORDS_MAX
            given = {"clean_start": source.qos == 0, "properties": session}
        source.broker.connect(self._client, **given)
        self._await(lambda: self._is_connected, "answer")
        if source.broker.is_v5:
            # A session that continues gets no retained message again.
            new_only = SubscribeOptions(
                source.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
            )
            self._client.subscribe([(each, new_only) for each in source.subscribe])
        else:
            self._client.subscribe([(each, source.qos) for each in source.subscribe])
        self._await(lambda: self._granted is not None, "confirm the subscriptions")

    def read(self, seconds: float) -> SourceBatch | None:
        """Return what has arrived, once there is something.

        Raises:
            EndpointUnavailable: the connection is lost.
        """
        try:
            self._receive(seconds)
        except EndpointUnavailable:
            # A message with an id comes again in the next session. Others are read before the end.
            self._waiting = [each for each in self._waiting if not each.message_id]
            if not self._waiting:
                raise
        if not self._waiting:
            return None
        # More may have come before the broker answered the start.
        arrivals, self._waiting = self._waiting[:RECORDS_MAX], self._waiting[RECORDS_MAX:]
        self._unacknowledged = [each.message_id for each in arrivals if each.message_id]
        return SourceBatch([each.record for each in arrivals], lag=None)

    def acknowledge(self, batch: SourceBatch) -> None:
        """Let the broker forget the messages of QoS 1."""
        for message_id in self._unacknowledged:
            self._client.ack(message_id, 1)
        self._unacknowledged = []

    def send(self, topic: str, payload: bytes) -> None:
        """Publish a message at QoS 0."""
        self._client.publish(topic, payload)

    def close(self) -> None:
        """Disconnect; the broker keeps the session of QoS 1, and messages for it."""
        self._client.disconnect()
        # paho's client closes its other sockets when it is freed. That is now, and not when the
        # callbacks or an error that refers to this object are collected.
        self._client.on_connect = None
        self._client.on_subscribe = None
        self._client.on_message = None
        del self._client

    def _receive(self, seconds: float) -> None:
        """Receive what has arrived, once there is something within so many seconds."""
        give_up_at = time.monotonic() + seconds
        while not self._waiting:
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                return
            self._exchange(left_s)
        size = 0
        while len(self._waiting) < RECORDS_MAX and size < BYTES_MAX:
            before = len(self._waiting)
            self._exchange(0.0)
            if len(self._waiting) == before:
                return
            size += sum(len(each.record.payload or b"") for each in self._waiting[before:])

    def _await(self, is_done: Callable[[], bool], what: str) -> None:
        """Exchange packets until something is done.

        A broker first sends what it has kept for the session: as long as messages arrive, it
        answers. With a bound of all the time, a start with many of them would never end.

        Raises:
            EndpointUnavailable: nothing arrives for so long.
        """
        received, give_up_at = 0, time.monotonic() + CONNECT_SECONDS_MAX
        while not is_done():
            if len(self._waiting) > received:
                received, give_up_at = len(self._waiting), time.monotonic() + CONNECT_SECONDS_MAX
            if time.monotonic() >= give_up_at:
                raise EndpointUnavailable(
                    f"the broker at {self._source.broker.label} does not {what}"
                )
            self._exchange(0.1)

    def _exchange(self, seconds: float) -> None:
        """Send and receive packets; wait up to so many seconds for one."""
        code = self._client.loop(seconds)
        if self._refused is not None:
            raise EndpointRefused(
                f"the broker at {self._source.broker.label} refuses {self._refused}"
            )
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            said = error_string(code).rstrip(".").lower()
            raise EndpointUnavailable(
                f"the broker at {self._source.broker.label} has ended the connection: {said}"
            )

    # Callbacks of paho, called within `loop`

    def _on_connect(
        self, client: Client, userdata: object, flags: object, code: ReasonCode, _: object
    ) -> None:
        if code.is_failure:
            self._refused = f"the connection: {str(code).lower()}"
        self._is_connected = True

    def _on_subscribe(
        self, client: Client, userdata: object, mid: int, codes: list[ReasonCode], _: object
    ) -> None:
        for topic, code in zip(self._source.subscribe, codes, strict=True):
            if code.is_failure:
                self._refused = f"the subscription to {topic}: {str(code).lower()}"
        self._granted = len(codes)

    def _on_message(self, client: Client, userdata: object, message: MQTTMessage) -> None:
        # An empty payload removes a retained message, and so the record of its topic. The message
        # itself takes kilobytes, and a broker may send tens of thousands at a start.
        record = SourceRecord(bytes(message.payload) or None, None, "", channel=message.topic)
        self._waiting.append(Arrival(message.mid if message.qos else 0, record))
