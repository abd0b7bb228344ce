"""Messages of an MQTT broker: at QoS 1 the broker has each until the gateway has it."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from paho.mqtt import publish
from paho.mqtt.client import MQTTv5, MQTTv311

from tests.pipeline.ingest.ingesting import (
    connector_of,
    eventually,
    ingesting,
    journal,
    read_until,
)
from tests.support.commands import serving_here
from tests.support.external.mosquitto import Mosquitto, mosquitto
from tests.support.rules import rule
from tidegate.pipeline.errors import EndpointRefused, EndpointUnavailable
from tidegate.pipeline.ingest.connector import Connector
from tidegate.pipeline.ingest.sources.mqtt import MqttConnector

pytestmark = pytest.mark.system
VERSIONS = {"3.1.1": MQTTv311, "5": MQTTv5}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path) as running:
        yield running


def send(broker: Mosquitto, topic: str, *payloads: str, retain: bool = False, qos: int = 1) -> None:
    messages: list[Any] = [(topic, payload, qos, retain) for payload in payloads]
    publish.multiple(messages, hostname="127.0.0.1", port=broker.port)


def opened(broker: Mosquitto, version: str = "5", **more: object) -> Connector:
    table = {
        "kind": "mqtt",
        "address": broker.address,
        "subscribe": ["plant/+/t"],
        "version": version,
        **more,
    }
    connector = connector_of(table)
    connector.open(lambda partition: None)
    return connector


@rule("ingest-3")
@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_not_acknowledged_comes_again(broker: Mosquitto, version: str) -> None:
    connector = opened(broker, version)
    send(broker, "plant/a/t", "1")
    [batch] = read_until(connector, 1)
    assert [(each.payload, each.channel) for each in batch.records] == [(b"1", "plant/a/t")]
    send(broker, "plant/b/t", "2")
    unacknowledged = connector.read(5.0)
    assert unacknowledged is not None
    connector.close()
    send(broker, "plant/c/t", "3")
    connector = opened(broker, version)
    found = [each.payload for batch in read_until(connector, 2) for each in batch.records]
    assert found == [b"2", b"3"]
    connector.close()


def test_a_start_awaits_an_answer_behind_what_the_broker_has_kept(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(broker, "3.1.1").close()
    send(broker, "plant/a/t", *map(str, range(300)))
    exchange = MqttConnector._exchange

    def exchange_slowly(connector: MqttConnector, seconds: float) -> None:
        time.sleep(0.01)
        exchange(connector, seconds)

    monkeypatch.setattr(MqttConnector, "_exchange", exchange_slowly)
    monkeypatch.setattr("tidegate.pipeline.ingest.sources.mqtt.CONNECT_SECONDS_MAX", 2.0)
    monkeypatch.setattr("tidegate.pipeline.ingest.sources.mqtt.RECORDS_MAX", 100)
    connector = opened(broker, "3.1.1")  # 5 bounds what a broker sends
    batches = read_until(connector, 300)
    assert max(len(each.records) for each in batches) <= 100
    found = [each.payload for batch in batches for each in batch.records]
    assert found == [str(at).encode() for at in range(300)]
    connector.close()


def test_a_closed_connector_leaves_no_socket(broker: Mosquitto) -> None:
    before = psutil.Process().num_fds()
    gc.disable()
    try:
        for _ in range(3):
            connector = opened(broker)
            send(broker, "plant/a/t", "1")
            read_until(connector, 1)
            connector.close()
            del connector
        assert psutil.Process().num_fds() == before
    finally:
        gc.enable()


def test_an_empty_payload_is_a_tombstone(broker: Mosquitto) -> None:
    connector = opened(broker)
    send(broker, "plant/a/t", "")
    [batch] = read_until(connector, 1)
    assert batch.records[0].payload is None
    connector.close()


def test_a_session_that_continues_gets_no_retained_message_again(broker: Mosquitto) -> None:
    send(broker, "plant/a/t", "1", retain=True)
    connector = opened(broker)
    read_until(connector, 1)
    connector.close()
    connector = opened(broker)
    send(broker, "plant/a/t", "2")
    [batch] = read_until(connector, 1)
    assert [each.payload for each in batch.records] == [b"2"]
    connector.close()


def test_what_came_before_the_end_of_a_connection_is_read_at_qos_0(broker: Mosquitto) -> None:
    connector = opened(broker, qos=0)
    send(broker, "plant/a/t", "1", "2", "3")
    time.sleep(0.3)
    broker.stop()
    batch = connector.read(5.0)
    assert batch is not None
    assert [each.payload for each in batch.records] == [b"1", b"2", b"3"]
    with pytest.raises(EndpointUnavailable, match="has ended the connection"):
        connector.read(5.0)
    connector.close()


def test_nothing_waits_at_the_broker_for_a_client_of_qos_0(broker: Mosquitto) -> None:
    opened(broker, qos=0).close()
    send(broker, "plant/a/t", "1")
    connector = opened(broker, qos=0)
    send(broker, "plant/a/t", "2")
    [batch] = read_until(connector, 1)
    assert [each.payload for each in batch.records] == [b"2"]
    connector.close()


def test_a_broker_that_is_not_there_or_ends(broker: Mosquitto) -> None:
    connector = opened(broker)
    broker.kill()
    with pytest.raises(EndpointUnavailable, match="has ended the connection"):
        connector.read(5.0)
    connector.close()
    with pytest.raises(EndpointUnavailable, match=rf"cannot reach the broker at .*{broker.port}"):
        opened(broker)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refused_client_is_a_sentence_without_its_password(tmp_path: Path, version: str) -> None:
    with mosquitto(tmp_path, "password_file /dev/null\n") as broker:
        broker_address = broker.address.replace("//", "//user:secret@")
        table = {"kind": "mqtt", "address": broker_address, "subscribe": ["#"], "version": version}
        connector = connector_of(table)
        with pytest.raises(
            EndpointRefused, match="refuses the connection: not authorized"
        ) as raised:
            connector.open(lambda partition: None)
        assert "secret" not in str(raised.value)
        connector.close()


def test_numbers_of_topics_become_records_that_a_retained_end_removes(
    broker: Mosquitto, tmp_path: Path
) -> None:
    definition = f"""
        [ingest.sensors]
        key = ["/sensor"]
        fields = {{sensor = "channel/1"}}
        source = {{kind = "mqtt", address = "{broker.address}", subscribe = ["plant/+/t"]}}
        sink = {{topic = "sensors"}}
    """
    with serving_here() as address:
        with ingesting(tmp_path, definition, address):
            eventually(lambda: states(address)[-1:], ["running"])
            send(broker, "plant/a/t", "20.5", "no JSON", "21")
            eventually(lambda: len(journal(address, "sensors")), 2)
        send(broker, "plant/a/t", "22.5", "")
        with ingesting(tmp_path, definition, address):
            eventually(lambda: len(journal(address, "sensors")), 4)
        values = [{"value": value, "sensor": "a"} for value in (20.5, 21, 22.5)]
        assert journal(address, "sensors") == [*values, ["a"]]
        [dead] = journal(address, "sensors.dead")
        assert (dead["channel"], dead["payload"]) == ("plant/a/t", "no JSON")


def states(address: str) -> list[str]:
    return [row["state"] for row in journal(address, "tidegate.pipelines")]
