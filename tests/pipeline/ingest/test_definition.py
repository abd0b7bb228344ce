"""Definitions are read strictly: what is wrong is named with its place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_ingest_page import GIVEN
from tests.pipeline.ingest.ingesting import connector_of, definitions
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.definitions.source import KeyFormat
from tidegate.pipeline.definitions.stream import read_definitions as read_streams
from tidegate.pipeline.errors import DefinitionInvalid, ExtraMissing
from tidegate.pipeline.ingest.definition import IngestDefinition, read_definitions
from tidegate.pipeline.ingest.payloads import (
    AddedField,
    PayloadForm,
    PayloadMapping,
    RecordPart,
)

GATEWAY = "http://127.0.0.1:8080"
FILE = """
[ingest.a]
key = ["/k"]
source = {kind = "file", path = "in/*.ndjson"}
sink = {topic = "t"}
"""


def read(folder: Path, text: str) -> list[IngestDefinition]:
    return definitions(folder, text, GATEWAY)


def test_a_short_definition_has_defaults(tmp_path: Path) -> None:
    [found] = read(tmp_path, FILE)
    assert (found.name, found.gateway, found.topic, found.dead_letters) == (
        "a",
        GATEWAY,
        "t",
        "t.dead",
    )
    assert found.spec == KeySpec.of(["/k"])
    assert found.mapping == PayloadMapping()
    assert found.source.label == f"file {tmp_path}/in/*.ndjson"
    assert found.description == "Filled by the ingest a"


def test_all_that_a_definition_can_say(tmp_path: Path) -> None:
    text = (
        FILE
        + """
[ingest.b]
payload = "cloudevents"
value = "/reading"
fields = {sensor = "channel/1", topic = "channel", at = "timestamp", k = "key", p = "position"}
dead_letters = "lost"
description = "of the plant"
source = {kind = "file", path = "/var/log/b", from = "now"}
sink = {topic = "t"}
"""
    )
    _, found = read(tmp_path, text)
    assert found.spec == KeySpec.of(["/k"])  # that of the other one of its topic
    assert (found.dead_letters, found.description) == ("lost", "of the plant")
    assert found.mapping == PayloadMapping(
        PayloadForm.CLOUDEVENTS,
        FieldPath.parse("/reading"),
        {
            "sensor": AddedField(RecordPart.CHANNEL, 1),
            "topic": AddedField(RecordPart.CHANNEL),
            "at": AddedField(RecordPart.TIMESTAMP),
            "k": AddedField(RecordPart.KEY),
            "p": AddedField(RecordPart.POSITION),
        },
    )


def test_the_format_of_keys_is_that_of_kafkas(tmp_path: Path) -> None:
    text = FILE.replace(SOURCE, KAFKA).replace("key =", 'key_format = "text"\nkey =')
    [found] = read(tmp_path, text)
    assert found.mapping.key_format is KeyFormat.TEXT


def test_a_key_of_several_fields_is_no_text(tmp_path: Path) -> None:
    """Also where another definition of the topic names the key."""
    text = FILE.replace(SOURCE, KAFKA).replace('key = ["/k"]', 'key_format = "text"\nKEY')
    refusal = "ingest.a.key_format: text is the key of one field, and the key of t has 2"
    with pytest.raises(DefinitionInvalid, match=refusal):
        read(tmp_path, text.replace("KEY", 'key = ["/k", "/l"]'))
    other = FILE.replace("ingest.a", "ingest.b").replace('["/k"]', '["/k", "/l"]')
    with pytest.raises(DefinitionInvalid, match=refusal):
        read(tmp_path, text.replace("KEY", "") + other)


def test_two_keys_of_one_topic_are_refused(tmp_path: Path) -> None:
    other = FILE.replace("ingest.a", "ingest.b").replace("/k", "/l")
    with pytest.raises(DefinitionInvalid, match="a and b fill the topic t with different keys"):
        read(tmp_path, FILE + other)
    [found] = read(tmp_path, FILE.replace('key = ["/k"]', ""))
    assert found.spec is None


def test_the_producer_has_the_place_of_its_source(tmp_path: Path) -> None:
    [found] = read(tmp_path, FILE)
    [other] = read(tmp_path, FILE.replace("in/", "out/"))
    assert found.producer.startswith("tidegate.ingest.a.")
    assert found.producer != other.producer


NATS = 'kind = "nats", address = "nats://u:secret@h:4222", stream = "s"'
POSTGRES = 'kind = "postgres", address = "postgresql://u:secret@h/d", publication = "p"'
KAFKA = 'kind = "kafka", brokers = "h:9092", topic = "t"'
RABBIT = 'kind = "rabbitmq", address = "amqp://u:secret@h/v", queue = "q"'
MQTT = 'kind = "mqtt", address = "mqtt://u:secret@h:1", subscribe = ["#"]'
REDIS = 'kind = "redis", address = "redis://:secret@h/0", stream = "s"'
SOCKET = 'kind = "websocket", address = "wss://h/x?token=secret"'
SOURCE = 'kind = "file", path = "in/*.ndjson"'


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[ingest.a]", '[ingest."a b"]', "ingest.a b: a name is 1 to 63 of A-Z a-z 0-9 _ -"),
        ("[ingest.a]", "[a]", "ingest: is missing, expected at least one table [ingest.NAME]"),
        ("[ingest.a]", "[forward.a]", "forward: runs with tidegate forward, from a file of its"),
        ("[ingest.a]", "[pipeline.b]\n[ingest.a]", "pipeline: runs with tidegate pipeline run"),
        ('key = ["/k"]', 'key = ["k"]', "key[0], position 0: a field path starts with / or $"),
        ('key = ["/k"]', 'kye = ["/k"]', "ingest.a.kye: unknown field; did you mean key?"),
        ('key = ["/k"]', 'format = "json"', "ingest.a.format: is called payload"),
        ('key = ["/k"]', 'interval = "1s"', "ingest.a.interval: subscribers choose"),
        ('key = ["/k"]', 'payload = "xml"', "payload: expected one of json, debezium"),
        ('key = ["/k"]', 'payload = "avro"', "payload: avro is an encoding: write encoding ="),
        ('key = ["/k"]', 'payload = "sparkplug"', "payload: sparkplug is a kind of source: write"),
        ('key = ["/k"]', 'encoding = "xml"', "encoding: expected json, avro or"),
        ('key = ["/k"]', 'encoding = "avro"', "registry: is missing"),
        ('key = ["/k"]', 'encoding = "avro"\nregistry = "h"', "registry: expected an address"),
        (
            'key = ["/k"]',
            'encoding = "avro"\nregistry = "http://u:se/cret@h"',
            "a password has %2F",
        ),
        ('key = ["/k"]', 'encoding = "protobuf"', "registry: is missing, expected an address"),
        ('key = ["/k"]', 'encoding = "protobuf"', 'or descriptor = "FILE"'),
        ('key = ["/k"]', 'registry = "http://h"', "registry: only with encoding"),
        ('key = ["/k"]', 'encoding = "avro"\npayload = "text"', "encoding: only with json, deb"),
        ('key = ["/k"]', 'value = "x"', "value, position 0: a field path starts with / or $"),
        ('key = ["/k"]', 'payload = "text"\nvalue = "/x"', "value: only with a payload of JSON"),
        ('key = ["/k"]', 'fields = {a = "topic"}', "fields.a: expected channel, channel/N"),
        ('key = ["/k"]', 'fields = {a = "key/1"}', "fields.a: expected channel, channel/N"),
        ('key = ["/k"]', 'key_format = "avro"', "key_format: expected text or json"),
        ('key = ["/k"]', 'key_format = "text"', "key_format: only with a source of kind kafka"),
        ('key = ["/k"]', 'dead_letters = "t"', "expected another topic than that of the messages"),
        ('topic = "t"', 'topic = "tidegate.x"', "sink.topic: expected a name outside"),
        ('topic = "t"', 'topic = "t", kind = "parquet"', "sink.kind: unknown field"),
        (SOURCE, 'kind = "amqp"', "source.kind: expected one of file, kafka, mqtt, nats, postgres"),
        (SOURCE, f'{SOURCE}, from = "then"', "source.from: expected epoch (the earliest)"),
        (SOURCE, f"{SOURCE}, rows_per_batch = 1", "source.rows_per_batch: unknown field"),
        (SOURCE, f'{MQTT}, ca = "ca.pem"', "/ca.pem cannot be read: No such file or directory"),
        (SOURCE, f'{RABBIT}, ca = "ca.pem"', "source.ca: /"),
        (SOURCE, f'{NATS}, ca = "ca.pem"', "source.ca: /"),
        (SOURCE, f'{NATS}, credentials = "a.creds"', "source.credentials: /"),
        (SOURCE, REDIS.replace("stream", "straem"), "did you mean stream instead of straem?"),
        (SOURCE, REDIS.replace("redis://", "rds://"), "source.address: expected an address such"),
        (SOURCE, REDIS.replace(":secret@", ":se/cret@"), "in which a password has %2F for /"),
        (SOURCE, REDIS.replace(":secret@", ":se[cret@"), "in which a password has %2F for /"),
        (SOURCE, f'{REDIS}, from = "1"', "(the latest) or the id of an entry"),
        (SOURCE, f'{REDIS}, gaps = "fill"', "source.gaps: expected stop or skip"),
        (SOURCE, NATS.replace("nats://", "ws://"), "source.address: expected an address such"),
        (SOURCE, NATS.replace(":4222", ":99999"), "source.address: expected an address such"),
        (SOURCE, NATS.replace('"s"', '"a.b"'), "source.stream: expected the name of a stream"),
        (SOURCE, f"{NATS}, subscribe = []", "source.subscribe: expected subjects, such as"),
        (SOURCE, POSTGRES.replace("postgresql:", "mysql:"), "source.address: expected an address"),
        (SOURCE, POSTGRES.replace("u:", "%zz:"), "source.address: expected an address such as"),
        (SOURCE, POSTGRES.replace("secret@", "se/cret@"), "in which a password has %2F for /"),
        (SOURCE, POSTGRES.replace('"p"', "'\"p'"), "source.publication: expected the name of a"),
        (SOURCE, f'{POSTGRES}, slot = "A-b"', "source.slot: expected the name of a replication"),
        (SOURCE, f'{POSTGRES}, from = "0/1"', "source.from: expected epoch (the earliest)"),
        (SOURCE, KAFKA.replace("h:9092", "h"), "source.brokers: expected brokers such as"),
        (SOURCE, KAFKA.replace('"t"', '"a b"'), "source.topic: expected the name of a Kafka topic"),
        (SOURCE, f'{KAFKA}, from = "1"', "source.from: expected epoch (the earliest)"),
        (SOURCE, f'{KAFKA}, group = ""', "source.group: expected the name of a consumer group"),
        (SOURCE, f"{KAFKA}, options = {{a = 1}}", "options: expected a table of texts, such as"),
        (SOURCE, f'{KAFKA}, options = {{"kafka.a" = "secret"}}', "clients, a instead of kafka.a"),
        (SOURCE, f'{KAFKA}, from = "earliest"', "source.from: expected epoch (the earliest) or"),
        (
            SOURCE,
            f"{KAFKA}, options = {{'group.id' = \"secret\"}}",
            "source.options: group.id is not an option of an ingest",
        ),
        (SOURCE, RABBIT.replace("amqp:", "http:"), "source.address: expected an address such as"),
        (SOURCE, RABBIT.replace("@h/", "@h:x/"), "source.address: expected an address such as"),
        (SOURCE, RABBIT.replace("queue", "name"), "source.queue: is missing, expected the name of"),
        (SOURCE, f'{RABBIT}, stream = "s"', "source.stream: queue or stream, not both"),
        (SOURCE, f'{RABBIT}, from = "now"', "source.from: only with a stream"),
        (SOURCE, MQTT.replace("mqtt://", "tcp://"), "source.address: expected an address such"),
        (SOURCE, MQTT.replace(":1", ":99999"), "source.address: expected an address such"),
        (SOURCE, f"{MQTT}, qos = 2", "source.qos: expected 0 or 1 (at 2 a message is lost"),
        (SOURCE, f"{MQTT}, qos = true", "source.qos: expected 0 or 1"),
        (SOURCE, f'{MQTT}, version = "3"', 'source.version: expected "3.1.1" or "5"'),
        (SOURCE, MQTT.replace('["#"]', "[]"), "source.subscribe: expected topic filters"),
        (SOURCE, SOCKET.replace("wss://", "http://"), "source.address: expected an address such"),
        (SOURCE, SOCKET.replace("?token", "#token"), "source.address: expected an address such"),
        (SOURCE, SOCKET.replace("h/x", "secret@h/x"), "source.address: expected an address such"),
        (SOURCE, f"{SOCKET}, headers = {{a = 1}}", "source.headers: expected texts, such as"),
        (SOURCE, f'{SOCKET}, headers = "secret"', "source.headers: expected texts, such as"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    assert old in FILE
    with pytest.raises(DefinitionInvalid) as raised:
        read(tmp_path, FILE.replace(old, new))
    assert complaint in str(raised.value)
    assert str(raised.value).startswith("sources.toml: ")
    assert "secret" not in str(raised.value)


def test_an_address_may_have_several_hosts_and_each_has_a_port(tmp_path: Path) -> None:
    several = POSTGRES.replace("@h/", "@h:1,j:5432,i/")
    [found] = read(tmp_path, FILE.replace(SOURCE, several))
    assert found.source.label == "postgres h:1,j:5432,i/d publication p"
    with pytest.raises(DefinitionInvalid, match="a password has %2F"):
        read(tmp_path, FILE.replace(SOURCE, several.replace(":1,", ":x,")))


def test_the_producer_has_the_database_of_a_redis(tmp_path: Path) -> None:
    def producer(source: str) -> str:
        [found] = read(tmp_path, FILE.replace(SOURCE, source))
        return found.producer

    one, two = (producer(REDIS.replace("h/0", f"h?db={at}")) for at in (1, 2))
    assert one != two
    assert producer(REDIS.replace("secret", "other")) == producer(REDIS)


@pytest.mark.parametrize("source", [NATS, MQTT, REDIS, SOCKET])
def test_no_place_shows_a_password(tmp_path: Path, source: str) -> None:
    [found] = read(tmp_path, FILE.replace(SOURCE, source))
    assert "secret" not in found.source.label
    assert "h" in found.source.label


def test_a_library_that_is_missing_is_named_by_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tidegate.pipeline.ingest.sources.mqtt", raising=False)
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(ExtraMissing, match="mqtt needs the extra mqtt, which is not installed"):
        read(tmp_path, FILE.replace(SOURCE, MQTT))


def test_the_commands_name_each_other(tmp_path: Path) -> None:
    path = tmp_path / "both.toml"
    path.write_text(FILE + "[pipeline.a]\n")
    with pytest.raises(DefinitionInvalid, match="pipeline: runs with tidegate pipeline run"):
        read_definitions(path)
    with pytest.raises(DefinitionInvalid, match="ingest: runs with tidegate ingest"):
        read_streams(path)


@pytest.mark.parametrize("fields", GIVEN, ids=lambda fields: fields["kind"])
def test_a_connector_that_was_never_opened_closes(fields: dict[str, Any], tmp_path: Path) -> None:
    # A start ends so where the gateway is away, and its reason is the one to be told.
    (tmp_path / "ca.pem").touch()
    connector_of(fields, tmp_path).close()
