"""Edge nodes of Sparkplug B: births, values, deaths, and requests for births."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from tests.pipeline.ingest.edge_node import (
    AT_MS,
    BOOLEAN,
    BYTES,
    DATASET,
    DATETIME,
    DOUBLE,
    FLOAT,
    INT8,
    INT32,
    INT64,
    STRING,
    TEMPLATE,
    UINT64,
    metric,
    payload,
    topic,
)
from tests.pipeline.ingest.ingesting import definitions, eventually, ingesting, journal
from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tests.support.external.mosquitto import Mosquitto, mosquitto
from tests.support.rules import rule
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.ingest.connector import SourceBatch, SourceRecord
from tidegate.pipeline.ingest.sources.mqtt import MqttConnector
from tidegate.pipeline.ingest.sources.sparkplug import SparkplugConnector
from tidegate.pipeline.ingest.sources.sparkplug_nodes import REQUEST_SECONDS, SparkplugNodes

pytestmark = pytest.mark.system

NBIRTH = payload(metric("bdSeq", INT64, 7), metric("Node Control/Rebirth", BOOLEAN, False), seq=0)
DBIRTH = payload(
    metric("t", FLOAT, 20.1, alias=1, quality=192), metric("on", BOOLEAN, True, alias=2), seq=1
)


def nodes(requests: bool = True, historical: bool = False) -> SparkplugNodes:
    return SparkplugNodes(requests, historical)


def born() -> SparkplugNodes:
    """What is known after the births of a node and its device d."""
    found = nodes()
    read(found, "NBIRTH", NBIRTH)
    read(found, "DBIRTH", DBIRTH, "d")
    return found


def read(
    known: SparkplugNodes, kind: str, content: bytes, device: str = "", now_s: float = 0.0
) -> list[Any]:
    """What a message says: of each metric its device, name, value and whether it is online."""
    record = SourceRecord(content, None, "", channel=topic(kind, device))
    found: list[Any] = []
    for each in known.read(record, now_s):
        if each.fault:
            found.append(each.fault)
        else:
            shown = json.loads(each.payload or b"")
            found.append((shown["device"], shown["metric"], shown["value"], shown["online"]))
    return found


def test_each_metric_of_a_birth_is_a_message() -> None:
    known = nodes()
    record = SourceRecord(DBIRTH, None, "", channel=topic("DBIRTH", "d"))
    found = [json.loads(each.payload or b"") for each in known.read(record, 0.0)]
    same = {"group": "plant", "node": "press", "device": "d", "timestamp": AT_MS, "online": True}
    assert found == [
        {**same, "metric": "t", "value": 20.1, "type": "Float", "quality": 192},
        {**same, "metric": "on", "value": True, "type": "Boolean"},
    ]


@pytest.mark.parametrize(
    ("datatype", "given", "wanted"),
    [
        (INT8, -1, -1),
        (INT32, -(2**31), -(2**31)),
        (INT64, -(2**63), -(2**63)),
        (UINT64, 2**64 - 1, 2**64 - 1),
        (DOUBLE, 0.1, 0.1),
        (STRING, "ü", "ü"),
        (BYTES, b"\0", "AA=="),
        (DATETIME, AT_MS, "2023-11-14T22:13:20Z"),
        (DOUBLE, None, None),
        (23, b"\x00\x80\xff\x7f", [-(2**15), 2**15 - 1]),
        (29, b"\xff" * 8, [2**64 - 1]),
        (30, b"\xcd\xcc\xcc\x3d", [0.1]),
        (32, b"\x0c\0\0\0\x34\xd0", [each == "1" for each in "001101001101"]),
        (33, b"ABC\0\xc3\xbc\0", ["ABC", "ü"]),
        (34, AT_MS.to_bytes(8, "little"), ["2023-11-14T22:13:20Z"]),
    ],
)
def test_values_have_their_json(datatype: int, given: Any, wanted: Any) -> None:
    birth = payload(metric("m", datatype, given), seq=0)
    assert read(nodes(), "NBIRTH", birth) == [("", "m", wanted, True)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (metric("m", DATASET, ""), "a metric of DataSet, which is not read"),
        (metric("m", TEMPLATE, ""), "a metric of Template, which is not read"),
        (metric("m", BYTES, b"")[:-3], "the metric has no value of Bytes"),
        (metric("m", 23, b"\0"), "the metric has no value of Int16Array"),
        (metric("m", 32, b"\x09\0\0\0\xff"), "the metric has no value of BooleanArray"),
        (metric("m", 33, b"\xff\0"), "the metric has no value of StringArray"),
        (metric("m", 35, b""), "a metric of type 35, which is not read"),
        (metric("m", DOUBLE, float("nan")), "a number that JSON lacks"),
        (metric("m", DATETIME, 2**63), "a time beyond the year 9999"),
        (metric("", DOUBLE, 1.0), "a birth with a metric that has no name"),
    ],
)
def test_a_metric_that_is_none_is_a_dead_letter_and_stops_no_other(
    content: bytes, reason: str
) -> None:
    birth = payload(content, metric("n", INT32, 1), seq=0)
    bad, good = read(nodes(), "NBIRTH", birth)
    assert bad.startswith(reason)
    assert good == ("", "n", 1, True)


def test_what_is_no_message_of_sparkplug_is_a_dead_letter() -> None:
    known = nodes()
    assert read(known, "NDATA", b"\xff")[0].startswith("no payload of Sparkplug B: ")
    assert read(known, "STATE", b"") == ["no topic of an edge node or device of Sparkplug B"]
    assert read(known, "NDATA", b"", "d") == ["no topic of an edge node or device of Sparkplug B"]


def test_data_names_metrics_by_alias_or_name_and_leaves_out_their_types() -> None:
    known = born()
    data = payload(
        metric("", FLOAT, 21.5, alias=1, told=False),
        metric("on", BOOLEAN, False, told=False),
        seq=2,
    )
    assert read(known, "DDATA", data, "d") == [("d", "t", 21.5, True), ("d", "on", False, True)]
    assert known.take_requests() == []


def test_the_quality_stays_until_another_is_sent() -> None:
    known = born()
    content = payload(metric("", FLOAT, 21.5, alias=1, told=False), seq=2)
    [found] = known.read(SourceRecord(content, None, "", channel=topic("DDATA", "d")), 0.0)
    assert json.loads(found.payload or b"")["quality"] == 192


def test_data_before_a_birth_is_a_dead_letter_and_a_request() -> None:
    known = nodes()
    data = payload(metric("", FLOAT, 21.5, alias=1, told=False), seq=5)
    said = "data before a birth was seen; births were asked for"
    assert read(known, "DDATA", data, "d") == [said]
    assert known.take_requests() == [("plant", "press")]
    assert read(known, "DDATA", data, "d", REQUEST_SECONDS - 1) == [said]
    assert known.take_requests() == []
    assert read(known, "DDATA", data, "d", REQUEST_SECONDS) == [said]
    assert known.take_requests() == [("plant", "press")]


def test_a_metric_that_no_birth_has_is_a_dead_letter_and_a_request() -> None:
    known = born()
    unknown = (metric("", FLOAT, 1.0, alias=at) for at in (9, 8))  # one dead letter has them all
    data = payload(*unknown, metric("t", FLOAT, 1.0), seq=2)
    reason = "a metric that no birth has, alias 9; births were asked for"
    assert read(known, "DDATA", data, "d") == [reason, ("d", "t", 1.0, True)]
    assert known.take_requests() == [("plant", "press")]


@rule("ingest-7")
def test_a_gap_is_a_request_and_what_came_is_published() -> None:
    known = born()
    data = payload(metric("t", FLOAT, 1.0), seq=4)
    assert read(known, "DDATA", data, "d") == [("d", "t", 1.0, True)]
    assert known.take_requests() == [("plant", "press")]


def test_a_request_is_repeated_until_the_birth_comes() -> None:
    known = born()
    read(known, "DDATA", payload(metric("t", FLOAT, 1.0), seq=4), "d")
    assert known.take_requests() == [("plant", "press")]
    for seq, now_s in ((5, REQUEST_SECONDS - 1), (6, REQUEST_SECONDS), (7, REQUEST_SECONDS + 1)):
        read(known, "DDATA", payload(metric("t", FLOAT, 1.0), seq=seq), "d", now_s)
        wanted = [("plant", "press")] if now_s == REQUEST_SECONDS else []
        assert known.take_requests() == wanted
    read(known, "NBIRTH", NBIRTH)
    read(known, "DBIRTH", DBIRTH, "d", 5 * REQUEST_SECONDS)
    assert known.take_requests() == []


def test_the_number_after_255_is_0() -> None:
    known = born()
    for seq in (*range(2, 256), 0, 1):
        assert read(known, "DDATA", payload(metric("t", FLOAT, 1.0), seq=seq), "d")
    assert known.take_requests() == []


def test_without_requests_a_gap_is_a_dead_letter() -> None:
    known = nodes(requests=False)
    read(known, "NBIRTH", NBIRTH)
    data = payload(metric("bdSeq", INT64, 7), seq=4)
    missed = "messages were missed: seq 4 after 0; births are not asked for"
    assert read(known, "NDATA", data) == [missed, ("", "bdSeq", 7, True)]
    assert read(known, "DDATA", payload(seq=5), "d") == [
        "data before a birth was seen; births are not asked for"
    ]
    assert known.take_requests() == []


def test_a_death_marks_the_metrics_with_their_last_values() -> None:
    known = born()
    assert read(known, "DDEATH", payload(seq=2), "d") == [
        ("d", "t", 20.1, False),
        ("d", "on", True, False),
    ]
    assert read(known, "NDEATH", payload(metric("bdSeq", INT64, 7))) == [
        ("", "bdSeq", 7, False),
        ("", "Node Control/Rebirth", False, False),
    ]
    assert read(known, "NDATA", payload(metric("bdSeq", INT64, 7), seq=3)) == [
        "data before a birth was seen; births were asked for"
    ]


def test_the_death_of_an_earlier_connection_says_nothing() -> None:
    assert read(born(), "NDEATH", payload(metric("bdSeq", INT64, 6))) == []


def test_a_birth_marks_what_it_has_no_more() -> None:
    known = born()
    smaller = payload(metric("on", BOOLEAN, False, alias=1), seq=2)
    assert read(known, "DBIRTH", smaller, "d") == [
        ("d", "on", False, True),
        ("d", "t", 20.1, False),
    ]
    again = read(known, "NBIRTH", NBIRTH)
    assert again[0] == ("d", "on", False, False)
    assert read(known, "DBIRTH", DBIRTH, "d")[1] == ("d", "on", True, True)


def test_a_value_of_the_past_does_not_replace_the_newest() -> None:
    past = metric("t", FLOAT, 1.0, historical=True, at_ms=1)
    assert read(born(), "DDATA", payload(past, seq=2), "d") == []
    known = nodes(historical=True)
    read(known, "DBIRTH", DBIRTH, "d")
    assert read(known, "DDATA", payload(past, seq=2), "d") == [("d", "t", 1.0, True)]
    assert read(known, "DDEATH", payload(seq=3), "d")[0] == ("d", "t", 20.1, False)


def test_after_a_restart_deaths_mark_what_the_topic_has() -> None:
    known, first = nodes(), born()
    shown = [
        each.payload or b""
        for each in first.read(SourceRecord(NBIRTH, None, "", channel=topic("NBIRTH")), 0.0)
    ]
    known.restore([b"[]", b'{"group":"plant"}', *shown])
    found = read(known, "NDEATH", payload(metric("bdSeq", INT64, 9)))
    assert ("", "bdSeq", 7, False) in found


class Plant:
    """An edge node with devices, whose messages are lost or read; only deaths of nodes never are.

    `topic` is what the messages have published: of each metric its value and whether it is online.
    """

    def __init__(self) -> None:
        self.known = nodes()
        self.topic: dict[tuple[str, str], tuple[Any, bool]] = {}
        self.values = {"d": 0, "e": 0}
        self.online: set[str] = set()
        self.is_alive = False
        self._connections = 0
        self._seq = 0
        self._now_s = 0.0

    def send(self, kind: str, *metrics: bytes, device: str = "", is_lost: bool = False) -> None:
        self._seq = 0 if kind == "NBIRTH" else (self._seq + 1) % 256
        self._now_s += REQUEST_SECONDS
        if not is_lost:
            content = payload(*metrics, seq=None if kind == "NDEATH" else self._seq)
            for each in read(self.known, kind, content, device, self._now_s):
                if not isinstance(each, str):
                    self.topic[each[:2]] = each[2:]

    def birth(self, is_lost: bool) -> None:
        self.send("NBIRTH", metric("bdSeq", INT64, self._connections), is_lost=is_lost)
        for device in sorted(self.online):
            self.device_birth(device, is_lost)

    def device_birth(self, device: str, is_lost: bool) -> None:
        told = metric("v", INT32, self.values[device], alias=1)
        self.send("DBIRTH", told, device=device, is_lost=is_lost)

    def answer(self, is_lost: bool) -> None:
        """Send births if the node is asked for them."""
        if self.known.take_requests() and self.is_alive:
            self.birth(is_lost)

    def change(self, what: str, device: str, value: int, is_lost: bool) -> None:
        if what == "node" and self.is_alive:
            self.is_alive, self.online = False, set()
            self.send("NDEATH", metric("bdSeq", INT64, self._connections))
        elif what == "node":
            self.is_alive = True
            self._connections += 1
            self.birth(is_lost)
        elif self.is_alive and what == "device" and device in self.online:
            self.online.remove(device)
            self.send("DDEATH", device=device, is_lost=is_lost)
        elif self.is_alive and what == "device":
            self.online.add(device)
            self.device_birth(device, is_lost)
        elif self.is_alive and device in self.online:
            self.values[device] = value
            told = metric("", INT32, value, alias=1, told=False)
            self.send("DDATA", told, device=device, is_lost=is_lost)
        self.answer(is_lost)


CHANGES = st.tuples(
    st.sampled_from(["node", "device", "value"]),
    st.sampled_from(["d", "e"]),
    st.integers(1, 9),
    st.booleans(),
)


@settings(deadline=None)
@given(st.lists(CHANGES, max_size=30))
def test_one_message_that_arrives_mends_what_was_lost_before(
    changes: list[tuple[str, str, int, bool]],
) -> None:
    plant = Plant()
    for each in changes:
        plant.change(*each)
    if plant.is_alive:
        plant.send("NDATA")
        plant.answer(is_lost=False)
    for (device, name), (value, is_online) in plant.topic.items():
        if device:
            assert is_online == (device in plant.online)
            assert not is_online or value == plant.values[device], name
    assert plant.online <= {device for device, _ in plant.topic}


class Inbox:
    """What an MQTT broker has sent, as one batch."""

    def __init__(self, record: SourceRecord) -> None:
        self.acknowledged = 0
        self._left = [SourceBatch([record])]

    def read(self, seconds: float) -> SourceBatch | None:
        return self._left.pop() if self._left else None

    def acknowledge(self, batch: SourceBatch) -> None:
        self.acknowledged += 1


@rule("ingest-5")
@pytest.mark.parametrize(("metrics", "sizes"), [(25, [10, 10, 5]), (20, [10, 10, 0])])
def test_a_message_of_many_metrics_makes_batches_and_is_acknowledged_after_the_last(
    monkeypatch: pytest.MonkeyPatch, metrics: int, sizes: list[int]
) -> None:
    monkeypatch.setattr("tidegate.pipeline.ingest.sources.sparkplug.RECORDS_MAX", 10)
    birth = payload(*(metric(f"m{at}", INT32, at) for at in range(metrics)), seq=0)
    inbox = Inbox(SourceRecord(birth, None, "", channel=topic("NBIRTH")))
    connector = SparkplugConnector(cast(MqttConnector, inbox), nodes())
    found: list[int] = []
    while (batch := connector.read(0.0)) is not None:
        assert inbox.acknowledged == 0
        found.append(len(batch.records))
        connector.acknowledge(batch)
    assert (found, inbox.acknowledged) == (sizes, 1)


# --- with a broker and a gateway


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path) as running:
        yield running


class EdgeNode:
    """Connects with a will, sends births when it is asked for them, and counts the requests."""

    def __init__(self, broker: Mosquitto) -> None:
        self.requests = 0
        self.value = 20.5
        self._seq = 0
        self._is_ready = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.will_set(topic("NDEATH"), payload(metric("bdSeq", INT64, 7)), qos=1)
        self._client.on_connect = self._subscribe
        self._client.on_subscribe = lambda *_: self._is_ready.set()
        self._client.on_message = self._on_command
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()
        assert self._is_ready.wait(HANGS_S)

    def birth(self) -> None:
        """Send the births of the node and of its device d."""
        self._client.publish(topic("NBIRTH"), NBIRTH)
        content = payload(metric("t", FLOAT, self.value, alias=1), seq=1)
        self._client.publish(topic("DBIRTH", "d"), content)
        self._seq = 1

    def send(self, value: float) -> None:
        """Send a value by its alias."""
        self.value = value
        self._seq = (self._seq + 1) % 256
        data = payload(metric("", FLOAT, value, alias=1, told=False), seq=self._seq)
        self._client.publish(topic("DDATA", "d"), data)

    def die(self) -> None:
        """End the connection without a word: the broker sends the will."""
        sock = self._client.socket()
        assert sock is not None
        self._client.loop_stop()
        sock.close()
        # paho's client closes its other sockets when it is freed, which these cycles would delay.
        self._client.on_connect = self._client.on_subscribe = self._client.on_message = None

    def _subscribe(self, client: Client, *_: object) -> None:
        client.subscribe(topic("NCMD"), qos=1)

    def _on_command(self, client: Client, userdata: object, message: MQTTMessage) -> None:
        self.requests += 1
        assert b"Node Control/Rebirth" in message.payload
        self.birth()


@contextmanager
def edge_node(broker: Mosquitto) -> Iterator[EdgeNode]:
    node = EdgeNode(broker)
    try:
        yield node
    finally:
        node.die()


def definition(broker: Mosquitto, more: str = "") -> str:
    return f"""
        [ingest.plant]
        key = ["/group", "/node", "/device", "/metric"]
        source = {{kind = "sparkplug", address = "{broker.address}", groups = ["plant"]{more}}}
        sink = {{topic = "plant"}}
    """


def shown(address: str) -> list[tuple[Any, bool]]:
    """The values of the metric t, and whether it was online."""
    return [
        (each["value"], each["online"])
        for each in journal(address, "plant")
        if each["metric"] == "t"
    ]


def running(address: str) -> list[str]:
    return [row["state"] for row in journal(address, "tidegate.pipelines")][-1:]


@rule("ingest-7")
def test_a_node_is_asked_for_births_after_a_restart_and_its_death_is_seen(
    broker: Mosquitto, tmp_path: Path
) -> None:
    text = definition(broker)
    with serving_here() as address:
        with edge_node(broker) as node:
            with ingesting(tmp_path, text, address):
                eventually(lambda: running(address), ["running"])
                node.send(21.5)  # its birth was before anybody listened
                eventually(lambda: shown(address), [(21.5, True)])
                node.send(22.5)
                eventually(lambda: shown(address)[1:], [(22.5, True)])
                assert node.requests == 1
            with ingesting(tmp_path, text, address):
                eventually(lambda: running(address), ["running"])
                node.send(23.5)
                eventually(lambda: shown(address)[-1:], [(23.5, True)])
                assert node.requests == 2
        with ingesting(tmp_path, text, address):  # the death was while nobody listened
            eventually(lambda: shown(address)[-1:], [(23.5, False)])
        dead = journal(address, "plant.dead")
        said = "data before a birth was seen; births were asked for"
        assert [each["reason"] for each in dead] == [said, said]


@pytest.mark.nightly
def test_a_topic_without_a_key_gets_every_value(broker: Mosquitto, tmp_path: Path) -> None:
    text = definition(broker).replace('key = ["/group", "/node", "/device", "/metric"]', "")
    with (
        serving_here() as address,
        edge_node(broker) as node,
        ingesting(tmp_path, text, address),
    ):
        eventually(lambda: running(address), ["running"])
        node.birth()
        node.send(21.5)
        eventually(lambda: shown(address), [(20.5, True), (21.5, True)])


# --- definitions


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (', groups = ["a/b"]', 'source.groups: expected ids of groups, such as ["plant-1"]'),
        (", rebirth = 1", "source.rebirth: expected true or false"),
        (', subscribe = ["#"]', "source.subscribe: unknown field"),
    ],
)
def test_a_definition_is_read_strictly(tmp_path: Path, more: str, complaint: str) -> None:
    text = f"""
        [ingest.a]
        source = {{kind = "sparkplug", address = "mqtt://u:secret@h"{more}}}
        sink = {{topic = "t"}}
    """
    with pytest.raises(DefinitionInvalid) as raised:
        definitions(tmp_path, text, "http://h")
    assert complaint in str(raised.value)
