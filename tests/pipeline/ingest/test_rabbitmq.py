"""Messages of RabbitMQ: of a queue at least once, of a stream once by their offsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.pipeline.ingest.ingesting import (
    begins,
    connector_of,
    eventually,
    ingesting,
    journal,
    read_until,
)
from tests.support.commands import serving_here
from tests.support.external.rabbitmq import RabbitServer, rabbit_server
from tests.support.rules import rule
from tidegate.pipeline.errors import (
    EndpointRefused,
    EndpointUnavailable,
    PipelineError,
    SourceLost,
)
from tidegate.pipeline.ingest.connector import Connector, SourceBatch

pytestmark = [pytest.mark.system, pytest.mark.nightly]
NAMES = (f"q{at}" for at in itertools.count())
KINDS = ["classic", "quorum"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    with rabbit_server(tmp_path_factory.mktemp("rabbit")) as running:
        yield running


@pytest.fixture
def channel(server: RabbitServer) -> Iterator[BlockingChannel]:
    with closing(pika.BlockingConnection(pika.URLParameters(server.address()))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def declare(channel: BlockingChannel, kind: str, **limits: object) -> str:
    name = next(NAMES)
    arguments = {"x-queue-type": kind, **limits}
    channel.queue_declare(name, durable=True, arguments=arguments)
    return name


def send(channel: BlockingChannel, queue: str, *payloads: str) -> None:
    kept = pika.BasicProperties(delivery_mode=2, timestamp=1_700_000_000)
    for each in payloads:
        channel.basic_publish("", queue, each.encode(), kept)


def numbered(low: int, high: int) -> list[str]:
    return list(map(str, range(low, high)))


def opened(server: RabbitServer, through: int | None = None, **more: object) -> Connector:
    connector = connector_of({"kind": "rabbitmq", "address": server.address(), **more})
    try:
        connector.open(lambda partition: through)
    except PipelineError:
        connector.close()
        raise
    return connector


def payloads(batches: list[SourceBatch]) -> list[str]:
    return [(each.payload or b"").decode() for batch in batches for each in batch.records]


@rule("ingest-3")
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_not_acknowledged_comes_again(
    server: RabbitServer, channel: BlockingChannel, kind: str
) -> None:
    queue = declare(channel, kind)
    send(channel, queue, "1")
    connector = opened(server, queue=queue)
    [batch] = read_until(connector, 1)
    [record] = batch.records
    assert (record.payload, record.number, record.channel) == (b"1", None, queue)
    assert record.timestamp_ms == 1_700_000_000_000
    send(channel, queue, "2")
    assert connector.read(5.0) is not None
    connector.close()
    send(channel, queue, "3")
    connector = opened(server, queue=queue)
    assert payloads(read_until(connector, 2)) == ["2", "3"]
    connector.close()


def test_only_so_many_are_on_their_way_and_the_rest_is_lag(
    server: RabbitServer, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipeline.ingest.sources.rabbitmq.UNACKNOWLEDGED_MAX", 4)
    queue = declare(channel, "classic")
    send(channel, queue, *numbered(0, 10))
    connector = opened(server, queue=queue)
    first = read_until(connector, 1)[0]
    assert (len(first.records) <= 4, first.lag) == (True, 6)
    connector.close()


def test_an_empty_message_is_a_tombstone(server: RabbitServer, channel: BlockingChannel) -> None:
    queue = declare(channel, "classic")
    send(channel, queue, "")
    connector = opened(server, queue=queue)
    [batch] = read_until(connector, 1)
    assert batch.records[0].payload is None
    connector.close()


@rule("ingest-1")
def test_a_stream_is_read_after_the_offset_that_the_gateway_has(
    server: RabbitServer, channel: BlockingChannel
) -> None:
    stream = declare(channel, "stream")
    send(channel, stream, *numbered(0, 5))
    for through, found in ((None, numbered(0, 5)), (1, numbered(2, 5))):
        connector = opened(server, through, stream=stream)
        batches = read_until(connector, len(found))
        assert payloads(batches) == found
        records = [each for batch in batches for each in batch.records]
        assert [str(each.number) for each in records] == found
        assert [each.position for each in records] == found
        connector.close()


@pytest.mark.parametrize(("start", "found"), [("epoch", ["0", "1", "2"]), ("now", ["2"])])
def test_a_first_start_begins_where_the_definition_says(
    server: RabbitServer, channel: BlockingChannel, start: str, found: list[str]
) -> None:
    stream = declare(channel, "stream")
    send(channel, stream, "0", "1")
    connector = opened(server, stream=stream, **begins(start))
    send(channel, stream, "2")
    assert payloads(read_until(connector, len(found))) == found
    connector.close()


def test_messages_of_a_stream_that_are_gone_end_the_source(
    server: RabbitServer, channel: BlockingChannel
) -> None:
    limits = {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 5_000}
    stream = declare(channel, "stream", **limits)
    send(channel, stream, *[str(at) * 500 for at in range(200)])
    connector = opened(server, through=3, stream=stream)
    with pytest.raises(SourceLost, match="deleted before they were read: messages 4 to "):
        read_until(connector, 1)
    connector.close()
    connector = opened(server, through=3, stream=stream, gaps="skip")
    gap, first = read_until(connector, 2)[0].records[:2]
    assert gap.fault == f"deleted before they were read: messages 4 to {(first.number or 0) - 1}"
    assert gap.number == first.number
    connector.close()


def test_a_stream_that_was_made_again_ends_the_source(
    server: RabbitServer, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipeline.ingest.sources.rabbitmq.SILENCE_SECONDS_MAX", 3.0)
    stream = declare(channel, "stream")
    send(channel, stream, *numbered(0, 10))
    connector = opened(server, through=9, stream=stream, gaps="skip")
    channel.queue_delete(stream)
    with pytest.raises(EndpointRefused, match=f"stream {stream} was deleted"):
        connector.read(5.0)
    connector.close()
    channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    with pytest.raises(EndpointUnavailable, match="does not give message 9, which was published"):
        opened(server, through=9, stream=stream, gaps="skip")
    ended = "ends before 9, which was published: it was recreated"
    for number in ("0", "1"):
        send(channel, stream, number)
        with pytest.raises(SourceLost, match=ended):
            opened(server, through=9, stream=stream, gaps="skip")


def test_a_stream_of_which_all_was_published_is_awaited(
    server: RabbitServer, channel: BlockingChannel
) -> None:
    stream = declare(channel, "stream")
    send(channel, stream, *numbered(0, 3))
    connector = opened(server, through=2, stream=stream)
    assert connector.read(0.1) is None
    send(channel, stream, "3")
    assert payloads(read_until(connector, 1)) == ["3"]
    connector.close()


def test_a_queue_is_no_stream_and_a_stream_no_queue(
    server: RabbitServer, channel: BlockingChannel
) -> None:
    queue = declare(channel, "classic")
    with pytest.raises(EndpointRefused, match=f"invalid arg 'x-stream-offset' for queue '{queue}'"):
        opened(server, stream=queue)
    stream = declare(channel, "stream")
    connector = opened(server, queue=stream)
    send(channel, stream, "1")
    with pytest.raises(EndpointRefused, match=f"queue {stream} is a stream: name it in the field"):
        connector.read(5.0)
    connector.close()


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_a_queue_that_is_not_there_is_a_sentence(server: RabbitServer, kind: str) -> None:
    named: dict[str, Any] = {kind: "nothing"}
    with pytest.raises(EndpointRefused, match=rf"rabbitmq .*{server.port}: NOT_FOUND - no queue"):
        opened(server, **named)


def test_a_queue_that_is_deleted_ends_the_run(
    server: RabbitServer, channel: BlockingChannel
) -> None:
    queue = declare(channel, "classic")
    connector = opened(server, queue=queue)
    channel.queue_delete(queue)
    with pytest.raises(EndpointRefused, match=f"queue {queue} was deleted"):
        connector.read(5.0)
    connector.close()


def test_a_refused_user_is_a_sentence_without_the_password(server: RabbitServer) -> None:
    with pytest.raises(EndpointRefused, match="refuses user or password") as raised:
        opened(server, address=server.address("guest:secret"), queue="q")
    assert "secret" not in str(raised.value)


def test_a_server_that_ends_or_is_not_there_is_a_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rabbit_server(tmp_path) as server:
        with closing(pika.BlockingConnection(pika.URLParameters(server.address()))) as connection:
            queue = declare(connection.channel(), "classic")
        connector = opened(server, queue=queue)
    with pytest.raises(EndpointUnavailable, match=f"rabbitmq 127.0.0.1:{server.port}: "):
        connector.read(5.0)
    connector.close()
    caplog.clear()  # the server's start also uses the client
    with pytest.raises(EndpointUnavailable, match=f"127.0.0.1:{server.port}: does not answer"):
        opened(server, queue=queue)
    assert not caplog.records


@rule("ingest-1", "ingest-3")
@pytest.mark.parametrize(("kind", "field"), [("stream", "stream"), ("quorum", "queue")])
def test_messages_become_records_that_an_empty_message_removes(
    server: RabbitServer, channel: BlockingChannel, tmp_path: Path, kind: str, field: str
) -> None:
    queue = declare(channel, kind)
    definition = f"""
        [ingest.orders]
        key = ["/k"]
        fields = {{k = "channel/1"}}
        source = {{kind = "rabbitmq", address = "{server.address()}", {field} = "{queue}"}}
        sink = {{topic = "orders"}}
    """
    for name in "ab":
        channel.queue_bind(queue, "amq.topic", f"orders.{name}")

    def send_to(name: str, payload: str) -> None:
        channel.basic_publish("amq.topic", f"orders.{name}", payload.encode())

    for name, payload in (("a", '{"n":1}'), ("b", '{"n":1}'), ("a", "no JSON"), ("a", '{"n":2}')):
        send_to(name, payload)
    with serving_here() as address:
        with ingesting(tmp_path, definition, address) as lines:
            eventually(lambda: len(journal(address, "orders")), 3)
        send_to("a", "")
        send_to("b", '{"n":3}')
        with ingesting(tmp_path, definition, address):
            eventually(lambda: len(journal(address, "orders")), 5)
        values = [{"n": n, "k": name} for n, name in ((1, "a"), (1, "b"), (2, "a"))]
        assert journal(address, "orders") == [*values, ["a"], {"n": 3, "k": "b"}]
        [dead] = journal(address, "orders.dead")
        assert (dead["channel"], dead["payload"]) == ("orders.a", "no JSON")
        place = f"rabbitmq 127.0.0.1:{server.port} {field} {queue}"
        assert lines[0] == f"orders: {place} to topic orders"
