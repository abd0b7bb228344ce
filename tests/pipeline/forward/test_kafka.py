"""Rows are records of a Kafka topic, each exactly once, by transactions that have the position."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.pipeline.forward.forwarding import definitions, forwarding
from tests.pipeline.ingest.ingesting import eventually, ingesting, journal
from tests.support import commands
from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tests.support.external.kafka import Broker, broker_jars, kafka_broker
from tests.support.outside import require, require_java
from tests.support.profiles import SEED
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.errors import (
    DefinitionInvalid,
    EndpointRefused,
    EndpointUnavailable,
    InUse,
    PipelineError,
)
from tidegate.pipeline.forward.sinks.kafka import POSITIONS, KafkaTarget
from tidegate.pipeline.forward.target import Patience, Row

pytestmark = [pytest.mark.system, pytest.mark.nightly]
TOPICS = (f"out-{at}" for at in itertools.count())
PARTITIONS = 3
PATIENCE = Patience(time.sleep, print)
Read = tuple[Any, Any]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    require_java()
    jars = broker_jars()
    require(jars is not None, "no packages of Kafka")
    with kafka_broker(jars or [], tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    return made(broker)


def made(broker: Broker, **config: str) -> str:
    """A topic of its own."""
    name = next(TOPICS)
    client = AdminClient({"bootstrap.servers": broker.address})
    new = NewTopic(name, PARTITIONS, config=config)
    client.create_topics([new])[name].result(HANGS_S)
    return name


def file(broker: Broker, topic: str, more: str = "", source: str = "conflation=50ms") -> str:
    return f"""
        [forward.prices]
        source = {{topic = "prices", options = "{source}"}}
        sink = {{kind = "kafka", brokers = "{broker.address}", topic = "{topic}"{more}}}
    """


def messages(broker: Broker, topic: str) -> list[Message]:
    """All committed messages of a topic, partition by partition."""
    settings = {
        "bootstrap.servers": broker.address,
        "group.id": "test",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
    found: list[Message] = []
    with closing(Consumer(settings)) as consumer:
        partitions = consumer.list_topics(topic, HANGS_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        ended = set[int | None]()
        deadline = time.monotonic() + HANGS_S
        while ended != set(partitions):
            assert time.monotonic() < deadline
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    return sorted(found, key=lambda each: (each.partition() or 0, each.offset() or 0))


def pairs(broker: Broker, topic: str) -> list[Read]:
    """Keys and values of the committed messages; None is a tombstone."""
    return [
        (
            msgspec.json.decode(each.key() or b"null"),
            msgspec.json.decode(each.value() or b"null"),
        )
        for each in messages(broker, topic)
    ]


def opened(broker: Broker, topic: str, folder: Path, more: str = "") -> tuple[KafkaTarget, str]:
    """A target and its position."""
    [definition] = definitions(folder, file(broker, topic, more), "http://127.0.0.1:8080")
    target = definition.sink.target("a", PATIENCE)
    assert isinstance(target, KafkaTarget)
    try:
        target.open()
        return target, target.resume(topic)
    except PipelineError:
        target.close()
        raise


def row(key: bytes | None, value: bytes, op: str = "publish") -> Row:
    fields = {"op": b'"%b"' % op.encode(), "value": value}
    if key is not None:
        fields["key"] = key
    return Row(op, {name: msgspec.Raw(text) for name, text in fields.items()})


def test_records_and_removals_arrive_once_over_a_restart_and_come_back_as_they_were(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    back = f"""
        [ingest.back]
        key = ["/k"]
        key_format = "json"
        source = {{kind = "kafka", brokers = "{broker.address}", topic = "{topic}"}}
        sink = {{topic = "back"}}
    """
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": 1, "n": 1.50}, {"k": "1", "n": 2}])
        with forwarding(tmp_path, file(broker, topic), address) as lines:
            eventually(lambda: len(pairs(broker, topic)), 2)
            gateway.delete_records("prices", record_key=1)
            eventually(lambda: len(pairs(broker, topic)), 3)
        gateway.publish("prices", {"k": "[a]", "n": 3})
        with forwarding(tmp_path, file(broker, topic), address):
            eventually(lambda: len(pairs(broker, topic)), 4)
        found = pairs(broker, topic)
        assert sorted(found, key=str) == [
            (["1"], {"k": "1", "n": 2}),
            (["[a]"], {"k": "[a]", "n": 3}),
            ([1], None),
            ([1], {"k": 1, "n": 1.5}),
        ]
        # Within a partition, so of a key, in order.
        assert [value is None for key, value in found if key == [1]] == [False, True]
        assert lines[0] == f"prices: topic prices to kafka topic {topic}"
        with ingesting(tmp_path, back, address):
            eventually(lambda: len(journal(address, "back")), 4)
        records = [msgspec.json.decode(each) for each in gateway.sow("back")]
        assert sorted(records, key=str) == [{"k": "1", "n": 2}, {"k": "[a]", "n": 3}]
    assert not list(tmp_path.glob("*.position*"))


def test_a_payload_may_be_the_envelope_and_a_row_without_key_has_none(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    text = file(broker, topic, ', payload = "envelope"', "conflation=none,bookmark=epoch")
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {})
        gateway.publish("prices", {"n": 1})
        with forwarding(tmp_path, text, address):
            eventually(lambda: len(pairs(broker, topic)), 1)
    [(key, value)] = pairs(broker, topic)
    assert (key, value["op"], value["value"]) == (None, "publish", {"n": 1})


@rule("forward-5")
def test_rows_are_visible_with_their_position_and_not_before(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    target, after = opened(broker, topic, tmp_path, ', transactional_id = "visible"')
    assert after == ""
    assert target.write([row(b"[1]", b"1")]) == []
    target.note("e-1")
    assert target.write([row(b"[1]", b"2")]) == []
    assert pairs(broker, topic) == [([1], 1)]
    target.close()  # as a kill between the rows and their position
    target, after = opened(broker, topic, tmp_path, ', transactional_id = "visible"')
    assert after == "e-1"
    assert target.write([row(b"[1]", b"3")]) == []
    target.note("e-2")
    target.close()
    assert pairs(broker, topic) == [([1], 1), ([1], 3)]
    assert opened_position(broker, topic, tmp_path, "visible") == "e-2"


def opened_position(broker: Broker, topic: str, folder: Path, transactional_id: str) -> str:
    more = f', transactional_id = "{transactional_id}"'
    target, after = opened(broker, topic, folder, more)
    target.close()
    return after


def test_a_later_process_ends_an_earlier_one(broker: Broker, topic: str, tmp_path: Path) -> None:
    first, _ = opened(broker, topic, tmp_path, ', transactional_id = "twice"')
    first.write([row(b"[1]", b"1")])
    second, after = opened(broker, topic, tmp_path, ', transactional_id = "twice"')
    assert after == ""
    with pytest.raises(InUse, match="another process forwards with the transactional"):
        first.note("e-1")
    first.close()
    second.write([row(b"[1]", b"2")])
    second.note("e-2")
    second.close()
    assert pairs(broker, topic) == [([1], 2)]


def test_a_position_behind_a_transaction_of_another_forward_is_waited_for(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    target, _ = opened(broker, topic, tmp_path, ', transactional_id = "behind"')
    other = Producer({"bootstrap.servers": broker.address, "transactional.id": "other"})
    other.init_transactions(HANGS_S)
    other.begin_transaction()
    other.produce(POSITIONS, b"e-9", b"other identity", 0)
    assert other.flush(HANGS_S) == 0
    target.write([row(b"[1]", b"1")])
    target.note("e-1")
    target.close()
    begun_s = time.monotonic()
    aborting = threading.Timer(1.5, other.abort_transaction, [HANGS_S])
    aborting.start()
    assert opened_position(broker, topic, tmp_path, "behind") == "e-1"
    assert time.monotonic() - begun_s > 1.0
    aborting.join()


def test_rows_that_kafka_refuses_are_left_out_and_their_neighbors_arrive(
    broker: Broker, tmp_path: Path
) -> None:
    topic = made(broker, **{"max.message.bytes": "2000", "cleanup.policy": "compact"})
    # librdkafka's batches have up to a million bytes, which the topic does not take.
    target, _ = opened(broker, topic, tmp_path, ', transactional_id = "refused"')
    small = [row(b"[1]", b"%d" % at) for at in range(200)]
    large = row(b"[2]", b'"%b"' % random.Random(1).randbytes(1_500).hex().encode())
    larger = row(b"[3]", b'"%b"' % (b"x" * 2_000_000))
    keyless = row(None, b"1")
    rows = [*small, large, larger, keyless, row(b"[4]", b"4")]
    refused = target.write(rows)
    assert pairs(broker, topic) == []
    target.note("e-1")
    target.close()
    keys = sorted(bytes(each.row.fields.get("key", b"")) for each in refused)
    assert keys == [b"", b"[2]", b"[3]"]
    assert all(each.reason.startswith("Kafka refuses it: ") for each in refused)
    found = pairs(broker, topic)
    assert [value for key, value in found if key == [1]] == list(range(200))
    assert [value for key, value in found if key != [1]] == [4]


def test_a_key_is_in_the_partition_where_java_looks_for_it(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    target, _ = opened(broker, topic, tmp_path, ', transactional_id = "partition"')
    target.write([row(b'["k%d"]' % at, b"1") for at in range(20)])
    target.note("e-1")
    target.close()
    here = {each.key(): each.partition() for each in messages(broker, topic)}
    other = made(broker)
    broker.send(other, [(f'["k{at}"]', "1") for at in range(20)])
    assert here == {each.key(): each.partition() for each in messages(broker, other)}


def test_what_is_missing_or_wrong_is_a_sentence(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EndpointRefused, match=r"Kafka topic nothing at .*[Uu]nknown topic"):
        opened(broker, "nothing", tmp_path)
    with pytest.raises(DefinitionInvalid, match=r"options of Kafka: .*no\.such"):
        opened(broker, topic, tmp_path, ', options = {"no.such" = "secret"}')
    monkeypatch.setattr("tidegate.pipeline.forward.sinks.kafka.ANSWER_SECONDS_MAX", 2.0)
    text = file(broker, topic).replace(broker.address, "127.0.0.1:1")
    [definition] = definitions(tmp_path, text, "http://127.0.0.1:8080")
    target = definition.sink.target("a", PATIENCE)
    with (
        closing(target),
        pytest.raises(EndpointUnavailable, match=rf"Kafka topic {topic} at 127.0.0.1:1: "),
    ):
        target.open()


@rule("forward-5")
def test_every_row_arrives_exactly_once_whatever_is_killed(tmp_path: Path) -> None:
    """Both topics forward to one cluster: each message of one, the newest of each key of the other.

    The broker is a new one, as it is killed.
    """
    require_java()
    jars = broker_jars()
    require(jars is not None, "no packages of Kafka")
    chance = random.Random(SEED)
    count, keys = 1_000, 7
    with (
        serving_here() as address,
        Gateway(address) as gateway,
        kafka_broker(jars or [], tmp_path) as broker,
    ):
        every, newest = made(broker), made(broker)
        path = tmp_path / "targets.toml"
        path.write_text(f"""
            [forward.every]
            source = {{topic = "every", options = "conflation=none,bookmark=epoch"}}
            sink = {{kind = "kafka", brokers = "{broker.address}", topic = "{every}"}}
            [forward.newest]
            source = {{topic = "newest", options = "conflation=50ms"}}
            sink = {{kind = "kafka", brokers = "{broker.address}", topic = "{newest}"}}
        """)
        gateway.put_topic("every", {"conflation": "off"})
        gateway.put_topic("newest", {"key": ["/k"]})

        def publish() -> None:
            for number in range(count):
                gateway.publish("every", {"n": number})
                if chance.random() < 0.1:
                    gateway.delete_records("newest", record_key=number % keys)
                else:
                    gateway.publish("newest", {"k": number % keys, "n": number})
                time.sleep(0.02)

        publishing = threading.Thread(target=publish)
        publishing.start()
        command = commands.start("forward", str(path), TIDEGATE_GATEWAY=address)
        while publishing.is_alive():
            time.sleep(chance.uniform(1.0, 4.0))
            if chance.random() < 0.7:
                command.kill()
                command.communicate()
            if chance.random() < 0.3:
                broker.kill()
                broker.start()
            if command.poll() is not None:
                command = commands.start("forward", str(path), TIDEGATE_GATEWAY=address)
        publishing.join()
        eventually(lambda: len(pairs(broker, every)) >= count, True)
        wanted = {
            msgspec.json.decode(text)["k"]: msgspec.json.decode(text)
            for text in gateway.sow("newest")
        }

        def state() -> dict[Any, Any]:
            found = {key[0]: value for key, value in pairs(broker, newest)}
            return {key: value for key, value in found.items() if value is not None}

        eventually(state, wanted)
        command.kill()
        command.communicate()
        numbers = [value["n"] for _, value in pairs(broker, every)]
        assert sorted(numbers) == list(range(count))
        # A flush that is sent twice would have a value of a key twice: each was published once.
        values = [value["n"] for _, value in pairs(broker, newest) if value is not None]
        assert len(set(values)) == len(values)
