"""Records are retained messages of an MQTT broker, and removals clear them."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import psutil
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.pipeline.forward.forwarding import definitions, forwarding
from tests.pipeline.ingest.ingesting import eventually, journal
from tests.support.commands import serving_here
from tests.support.external.mosquitto import Mosquitto, mosquitto
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.errors import DefinitionInvalid, EndpointUnavailable
from tidegate.pipeline.forward.sinks.mqtt import topic_of
from tidegate.pipeline.forward.target import Patience, Row

pytestmark = pytest.mark.system


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path) as running:
        yield running


@contextlib.contextmanager
def retained(broker: Mosquitto) -> Iterator[dict[str, bytes]]:
    """The retained messages of a broker, which follow it during the block."""
    found: dict[str, bytes] = {}
    client = Client(CallbackAPIVersion.VERSION2)

    def keep(_: Client, __: object, message: object) -> None:
        topic, payload = message.topic, bytes(message.payload)  # type: ignore[attr-defined]  # paho's
        if payload:
            found[topic] = payload
        else:
            found.pop(topic, None)

    def subscribe(*_: object) -> None:
        client.subscribe("#", 1)

    client.on_message = keep
    client.on_connect = subscribe
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        yield found
    finally:
        client.disconnect()
        client.loop_stop()
        # paho's client closes its other sockets when it is freed, which this cycle would delay.
        client.on_connect = client.on_message = None


def file(broker: Mosquitto, more: str = "", topic: str = "px/{key/0}") -> str:
    return f"""
        [forward.prices]
        source = {{topic = "prices", options = "conflation=50ms"}}
        sink = {{kind = "mqtt", address = "{broker.address}", topic = "{topic}"{more}}}
    """


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_records_are_retained_until_they_are_removed(
    broker: Mosquitto, tmp_path: Path, version: str
) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": "IBM", "n": 1}, {"k": "a/b+#%", "n": 1}])
        text = file(broker, f', version = "{version}"')
        with forwarding(tmp_path, text, address), retained(broker) as found:
            odd = {"px/a%2Fb%2B%23%25": b'{"k":"a/b+#%","n":1}'}
            eventually(lambda: found, {"px/IBM": b'{"k":"IBM","n":1}', **odd})
            gateway.publish("prices", {"k": "IBM", "n": 2})
            eventually(lambda: found, {"px/IBM": b'{"k":"IBM","n":2}', **odd})
            gateway.delete_records("prices", record_key="IBM")
            eventually(lambda: found, odd)
        with retained(broker) as found:
            eventually(lambda: found, odd)


def test_a_broker_that_is_started_again_gets_what_it_missed(
    broker: Mosquitto, tmp_path: Path
) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", {"k": 1})
        with forwarding(tmp_path, file(broker, ', payload = "envelope"'), address) as lines:
            with retained(broker) as found:
                eventually(lambda: found.keys(), {"px/1": b""}.keys())
                assert msgspec.json.decode(found["px/1"])["op"] == "snapshot"
            broker.kill()
            gateway.publish("prices", {"k": 2})
            eventually(lambda: any("started again" in line for line in lines), True)
            broker.start()
            with retained(broker) as found:
                eventually(lambda: "px/2" in found, True)


def test_a_closed_target_leaves_no_socket(broker: Mosquitto, tmp_path: Path) -> None:
    [definition] = definitions(tmp_path, file(broker), "http://127.0.0.1:8080")
    patience = Patience(time.sleep, print)
    row = Row("publish", {"key": msgspec.Raw(b"[1]"), "value": msgspec.Raw(b"1")})
    before = psutil.Process().num_fds()
    gc.disable()
    try:
        for _ in range(3):
            target = definition.sink.target("a", patience)
            target.open()
            assert target.write([row]) == []
            target.close()
            del target
        assert psutil.Process().num_fds() == before
    finally:
        gc.enable()


def test_a_row_without_the_parts_of_the_key_is_a_dead_letter(
    broker: Mosquitto, tmp_path: Path
) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", {"k": 1})
        with forwarding(tmp_path, file(broker, topic="px/{key/1}"), address):
            eventually(lambda: len(journal(address, "prices.undelivered")), 1)
        [letter] = journal(address, "prices.undelivered")
        assert letter["reason"] == "its key does not fill px/{key/1}"


def test_a_row_that_the_broker_has_no_room_for_is_a_dead_letter(tmp_path: Path) -> None:
    with (
        mosquitto(tmp_path, "max_packet_size 1000\n") as broker,
        serving_here() as address,
        Gateway(address) as gateway,
    ):
        gateway.put_topic("prices", {"key": ["/k"]})
        with forwarding(tmp_path, file(broker), address), retained(broker) as found:
            gateway.publish("prices", [{"k": 1, "v": "x" * 1_000}, {"k": 2}])
            eventually(lambda: found, {"px/2": b'{"k":2}'})
            eventually(lambda: len(journal(address, "prices.undelivered")), 1)
        [letter] = journal(address, "prices.undelivered")
        assert letter["reason"] == "the broker takes packets of at most 1000 bytes"


def test_a_connection_that_was_lost_while_there_were_no_rows_is_a_sentence(
    broker: Mosquitto, tmp_path: Path
) -> None:
    [definition] = definitions(tmp_path, file(broker), "http://127.0.0.1:8080")
    target = definition.sink.target("a", Patience(time.sleep, print))
    with closing(target):
        target.open()
        broker.kill()
        eventually(lambda: target._client.is_connected(), False)  # type: ignore[attr-defined]  # of its class
        with pytest.raises(EndpointUnavailable, match="has ended the connection"):
            target.write([Row("publish", {"key": msgspec.Raw(b"[1]"), "value": msgspec.Raw(b"1")})])


@pytest.mark.parametrize(
    ("key", "pattern", "topic"),
    [
        (b'["a",1.50]', "{key/1}/{key/0}", "1.5/a"),
        (b'["\xc3\xa9 b"]', "x/{key/0}", "x/é b"),
        (b'[["a","b"]]', "x/{key/0}", 'x/["a","b"]'),
        (b"null", "x", "x"),
        (b"null", "x/{key/0}", None),
        (b'[""]', "{key/0}", None),
        (b'[""]', "x/{key/0}", "x/"),
        (b'["$SYS"]', "{key/0}", None),
        (b'["%b"]' % (b"x" * 65_533), "x/{key/0}", "x/" + "x" * 65_533),
        (b'["%b"]' % (b"x" * 65_534), "x/{key/0}", None),
    ],
)
def test_a_topic_is_made_of_the_key(key: bytes, pattern: str, topic: str | None) -> None:
    assert topic_of(pattern, Row("publish", {"key": msgspec.Raw(key)})) == topic


@pytest.mark.parametrize("topic", ["a/#", "a/+", "", "$SYS/a", "a/{key}", "a/{/k}"])
def test_a_topic_that_is_none_is_refused(tmp_path: Path, topic: str) -> None:
    text = f"""
        [forward.a]
        source = {{topic = "t"}}
        sink = {{kind = "mqtt", address = "mqtt://h", topic = "{topic}"}}
    """
    with pytest.raises(DefinitionInvalid, match=r"sink\.topic: expected a topic such as"):
        definitions(tmp_path, text, "http://127.0.0.1:8080")
