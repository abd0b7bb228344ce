"""Messages of a Kafka topic, each once, by the offsets of its partitions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.pipeline.ingest.ingesting import (
    begins,
    connector_of,
    eventually,
    ingesting,
    journal,
    read_until,
)
from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tests.support.external.kafka import Broker, broker_jars, kafka_broker
from tests.support.outside import require, require_java
from tests.support.rules import rule
from tidegate.pipeline.errors import (
    DefinitionInvalid,
    EndpointRefused,
    PipelineError,
    SourceLost,
)
from tidegate.pipeline.ingest.connector import Connector, SourceBatch, SourceRecord

pytestmark = [pytest.mark.system, pytest.mark.nightly]
TOPICS = (f"topic-{at}" for at in itertools.count())
PARTITIONS = 2
Sent = tuple[str, str | None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    require_java()
    jars = broker_jars()
    require(jars is not None, "no packages of Kafka")
    with kafka_broker(jars or [], tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of its own."""
    name = next(TOPICS)
    client = admin(broker)  # its futures end with it
    client.create_topics([NewTopic(name, PARTITIONS)])[name].result(HANGS_S)
    return name


def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


def send(broker: Broker, topic: str, messages: Iterable[Sent], partition: int = -1) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for key, value in messages:
        producer.produce(topic, value, key, partition)
    assert producer.flush(HANGS_S) == 0


def table(broker: Broker, topic: str, **more: object) -> dict[str, object]:
    return {"kind": "kafka", "brokers": broker.address, "topic": topic, **more}


def opened(broker: Broker, topic: str, *, through: Any = None, **more: object) -> Connector:
    connector = connector_of(table(broker, topic, **more))
    try:
        connector.open(lambda partition: through)
    except PipelineError:
        connector.close()
        raise
    return connector


def records(batches: list[SourceBatch]) -> list[SourceRecord]:
    return [each for batch in batches for each in batch.records]


def ticks(low: int, high: int) -> list[Sent]:
    return [(f"k{at % 5}", str(at)) for at in range(low, high)]


def test_partitions_are_read_in_their_order(broker: Broker, topic: str) -> None:
    send(broker, topic, [*ticks(0, 40), ("k0", None)])
    connector = opened(broker, topic)
    batches = read_until(connector, 41)
    found: dict[str, list[SourceRecord]] = {}
    for batch in batches:
        found.setdefault(batch.partition, []).extend(batch.records)
    assert len(found) == PARTITIONS
    for each in found.values():
        assert [record.number for record in each] == list(range(len(each)))
    for key in range(5):
        own = [each.payload for each in records(batches) if each.broker_key == f"k{key}".encode()]
        wanted: list[bytes | None] = [str(at).encode() for at in range(key, 40, 5)]
        assert own == wanted + [None] * (key == 0)
    first = records(batches)[0]
    assert first.position.endswith(", offset 0")
    assert (first.channel, (first.timestamp_ms or 0) > 1_700_000_000_000) == (topic, True)
    assert batches[-1].lag == 0
    assert connector.read(0.01) is None
    connector.close()


def test_a_start_goes_on_after_the_offsets_that_the_gateway_has(broker: Broker, topic: str) -> None:
    send(broker, topic, ticks(0, 5), partition=0)
    send(broker, topic, ticks(5, 10), partition=1)
    connector = opened(broker, topic, through=2)
    payloads = [each.payload or b"" for each in records(read_until(connector, 4))]
    assert sorted(payloads) == [b"3", b"4", b"8", b"9"]
    connector.close()


def test_offsets_are_committed_to_the_group(broker: Broker, topic: str) -> None:
    send(broker, topic, ticks(0, 5), partition=1)
    connector = opened(broker, topic, group="board")
    read_until(connector, 5)
    connector.close()

    def committed() -> int:
        client = Consumer({"bootstrap.servers": broker.address, "group.id": "board"})
        try:
            [found] = client.committed([TopicPartition(topic, 1)], HANGS_S)
            return found.offset
        finally:
            client.close()

    eventually(committed, 5)


@pytest.mark.parametrize(("start", "found"), [("epoch", 4), ("now", 1)])
def test_a_first_start_begins_where_the_definition_says(
    broker: Broker, topic: str, start: str, found: int
) -> None:
    send(broker, topic, ticks(0, 3))
    connector = opened(broker, topic, **begins(start))
    send(broker, topic, ticks(3, 4))
    assert len(records(read_until(connector, found))) == found
    connector.close()


def test_partitions_that_are_added_are_read_as_a_whole(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipeline.ingest.sources.kafka.PARTITIONS_SECONDS", 0.2)
    connector = opened(broker, topic, **begins("now"))
    client = admin(broker)
    client.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result(HANGS_S)
    send(broker, topic, [("k", "new")], partition=PARTITIONS)
    [record] = records(read_until(connector, 1))
    assert record.position == f"partition {PARTITIONS}, offset 0"
    connector.close()


def test_messages_that_were_deleted_before_they_were_read_end_the_source(
    broker: Broker, topic: str
) -> None:
    send(broker, topic, ticks(0, 5), partition=0)
    send(broker, topic, ticks(0, 5), partition=1)
    client = admin(broker)
    for each in client.delete_records([TopicPartition(topic, 0, 3)]).values():
        each.result(HANGS_S)
    with pytest.raises(SourceLost, match="no longer holds offset 1 of partition 0 in topic"):
        opened(broker, topic, through=0)
    connector = opened(broker, topic, through=0, gaps="skip")
    found = records(read_until(connector, 7))
    [gap] = [each for each in found if each.fault]
    assert gap.fault == "deleted before they were read: the messages of offsets 1 to 2"
    assert (gap.payload, gap.number) == (None, 3)
    connector.close()
    with pytest.raises(SourceLost, match="no longer holds offset 8 of partition 0"):
        opened(broker, topic, through=7, gaps="skip")


def test_a_topic_that_is_not_there_is_a_sentence(broker: Broker) -> None:
    with pytest.raises(EndpointRefused, match=r"Kafka topic nothing: .*[Uu]nknown topic"):
        opened(broker, "nothing")


def test_an_option_that_is_none_is_a_sentence(broker: Broker, topic: str) -> None:
    with pytest.raises(DefinitionInvalid, match=r"options of Kafka: .*no\.such"):
        opened(broker, topic, options={"no.such": "secret"})


ROW = '{{"before":{before},"after":{after},"op":"{op}"}}'


@rule("ingest-1")
def test_events_of_debezium_become_records_over_restarts(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    definition = f"""
        [ingest.orders]
        key = ["/id"]
        payload = "debezium"
        source = {{kind = "kafka", brokers = "{broker.address}", topic = "{topic}"}}
        sink = {{topic = "orders"}}
    """
    one, two = '{"id":1,"n":1}', '{"id":1,"n":2}'
    created = ROW.format(before="null", after=one, op="c")
    updated = ROW.format(before=one, after=two, op="u")
    deleted = ROW.format(before=two, after="null", op="d")
    with serving_here() as address:
        send(broker, topic, [('{"id":1}', created), ('{"id":1}', updated)])
        with ingesting(tmp_path, definition, address) as lines:
            eventually(lambda: len(journal(address, "orders")), 2)
        send(broker, topic, [('{"id":1}', deleted), ('{"id":1}', None), ('{"id":1}', created)])
        with ingesting(tmp_path, definition, address):
            eventually(lambda: len(journal(address, "orders")), 5)
        found = journal(address, "orders")
        assert found == [{"id": 1, "n": 1}, {"id": 1, "n": 2}, [1], [1], {"id": 1, "n": 1}]
        assert lines[0] == f"orders: kafka topic {topic} to topic orders"
