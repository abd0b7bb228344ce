"""Messages of a JetStream stream, each once, by their sequences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import RetentionPolicy
from nats.js.client import JetStreamContext

from tests.pipeline.ingest.ingesting import (
    begins,
    connector_of,
    eventually,
    ingesting,
    journal,
    read_until,
)
from tests.support.commands import serving_here
from tests.support.external.nats import NatsServer, nats_server
from tests.support.rules import rule
from tidegate.pipeline.errors import (
    EndpointRefused,
    EndpointUnavailable,
    PipelineError,
    SourceLost,
)
from tidegate.pipeline.ingest.connector import Connector, SourceBatch

pytestmark = [pytest.mark.system, pytest.mark.nightly]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def server(running: NatsServer) -> NatsServer:
    """A server with an empty stream `plant`."""
    make(running)
    return running


def make(server: NatsServer, **limits: Any) -> None:
    server.make_only_stream("plant", "plant.>", **limits)


def send(server: NatsServer, *messages: tuple[str, str]) -> None:
    async def ask(stream: JetStreamContext) -> None:
        for subject, payload in messages:
            await stream.publish(subject, payload.encode())

    server.ask(ask)


def table(server: NatsServer, **more: object) -> dict[str, object]:
    return {"kind": "nats", "address": server.address, "stream": "plant", **more}


def opened(server: NatsServer, through: Any = None, **more: object) -> Connector:
    connector = connector_of(table(server, **more))
    try:
        connector.open(lambda partition: through)
    except PipelineError:
        connector.close()
        raise
    return connector


def payloads(batches: list[SourceBatch]) -> list[bytes | None]:
    return [each.payload for batch in batches for each in batch.records]


def numbered(low: int, high: int) -> list[tuple[str, str]]:
    return [(f"plant.m{at % 3}.t", str(at)) for at in range(low, high)]


def test_a_stream_is_read_after_the_sequence_that_the_gateway_has(server: NatsServer) -> None:
    send(server, *numbered(0, 250))
    connector = opened(server, through=1)
    batches = read_until(connector, 249)
    records = [each for batch in batches for each in batch.records]
    assert [each.payload for each in records] == [str(at).encode() for at in range(1, 250)]
    assert [each.number for each in records] == list(range(2, 251))
    assert (records[0].channel, records[0].position) == ("plant.m1.t", "2")
    assert (records[0].timestamp_ms or 0) > 1_700_000_000_000
    assert [(len(each.records), each.lag) for each in batches] == [(100, 149), (149, 0)]
    assert connector.read(0.01) is None
    connector.close()


@pytest.mark.parametrize(
    ("subjects", "found"),
    [(["plant.a.>"], [b"1", b"4"]), (["plant.a.>", "plant.b.>"], [b"1", b"2", b"4"])],
)
def test_only_what_is_subscribed_is_read(
    server: NatsServer, subjects: list[str], found: list[bytes]
) -> None:
    send(server, *[(f"plant.{name}.t", str(at)) for at, name in enumerate("cabca")])
    connector = opened(server, subscribe=subjects)
    assert payloads(read_until(connector, len(found))) == found
    connector.close()


@pytest.mark.parametrize(("start", "found"), [("epoch", [b"0", b"1", b"2"]), ("now", [b"2"])])
def test_a_first_start_begins_where_the_definition_says(
    server: NatsServer, start: str, found: list[bytes]
) -> None:
    send(server, *numbered(0, 2))
    connector = opened(server, **begins(start))
    send(server, *numbered(2, 3))
    assert payloads(read_until(connector, len(found))) == found
    connector.close()


def test_messages_that_limits_removed_before_they_were_read_end_the_source(
    server: NatsServer,
) -> None:
    make(server, max_msgs=3)
    send(server, *numbered(0, 3))
    connector = opened(server)
    read_until(connector, 3)
    send(server, *numbered(3, 8))
    with pytest.raises(SourceLost, match=r"of stream plant removed messages after 3 before"):
        read_until(connector, 1)
    connector.close()
    connector = opened(server, through=3, gaps="skip")
    [batch] = read_until(connector, 4)
    assert [each.number for each in batch.records] == [6, 6, 7, 8]
    assert batch.records[0].fault.endswith("removed messages after 3 before they were read")
    connector.close()


def test_older_messages_of_a_subject_and_deleted_ones_are_no_loss(server: NatsServer) -> None:
    make(server, max_msgs_per_subject=1)
    send(server, *numbered(0, 9))
    connector = opened(server, through=1)
    assert payloads(read_until(connector, 3)) == [b"6", b"7", b"8"]
    connector.close()
    make(server)
    send(server, *numbered(0, 3))
    server.ask(lambda stream: stream.delete_msg("plant", 2))
    connector = opened(server)
    assert payloads(read_until(connector, 2)) == [b"0", b"2"]
    connector.close()


def test_a_stream_that_was_made_again_ends_the_source(server: NatsServer) -> None:
    send(server, *numbered(0, 3))
    with pytest.raises(SourceLost, match="ends at 3 and 4 was published"):
        opened(server, through=4)


@pytest.mark.parametrize("retention", [RetentionPolicy.WORK_QUEUE, RetentionPolicy.INTEREST])
def test_a_stream_that_forgets_what_it_delivered_is_refused(
    server: NatsServer, retention: RetentionPolicy
) -> None:
    make(server, retention=retention)
    with pytest.raises(EndpointRefused, match=f"has the retention policy {retention.value}"):
        opened(server)


def test_a_stream_that_is_not_there_is_a_sentence(server: NatsServer) -> None:
    with pytest.raises(EndpointRefused, match=rf"NATS at .*:{server.port} has no stream nothing"):
        opened(server, stream="nothing")


def test_a_consumer_that_the_server_removed_is_made_again(server: NatsServer) -> None:
    connector = opened(server)

    async def remove(stream: JetStreamContext) -> None:
        [found] = await stream.consumers_info("plant")
        await stream.delete_consumer("plant", found.name)

    server.ask(remove)
    with pytest.raises(EndpointUnavailable, match=rf"NATS at 127.0.0.1:{server.port}: "):
        connector.read(1.0)
    connector.close()


def test_a_server_that_ends_or_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        make(server)
        connector = opened(server)
    with pytest.raises(EndpointUnavailable, match=rf"NATS at 127.0.0.1:{server.port}: "):
        connector.read(1.0)
    connector.close()
    with pytest.raises(
        EndpointUnavailable, match=rf"NATS at 127.0.0.1:{server.port}: Connect call failed"
    ):
        opened(server)


def test_a_refused_client_is_a_sentence_without_its_password(tmp_path: Path) -> None:
    users = 'authorization { users: [{user: "a", password: "right"}] }'
    with nats_server(tmp_path, users) as server:
        address = server.address.replace("//", "//a:secret@")
        with pytest.raises(EndpointRefused, match="refuses the client: ") as raised:
            opened(server, address=address)
        assert "secret" not in str(raised.value)


@rule("ingest-1")
def test_subjects_become_records_that_an_empty_message_removes(
    server: NatsServer, tmp_path: Path
) -> None:
    definition = f"""
        [ingest.sensors]
        key = ["/sensor"]
        fields = {{sensor = "channel/1"}}
        source = {{kind = "nats", address = "{server.address}", stream = "plant"}}
        sink = {{topic = "sensors"}}
    """
    send(server, ("plant.a.t", "20.5"), ("plant.b.t", "no JSON"), ("plant.b.t", "21"))
    with serving_here() as address:
        with ingesting(tmp_path, definition, address) as lines:
            eventually(lambda: len(journal(address, "sensors")), 2)
        send(server, ("plant.a.t", ""), ("plant.b.t", "22"))
        with ingesting(tmp_path, definition, address):
            eventually(lambda: len(journal(address, "sensors")), 4)
        values = [{"value": value, "sensor": name} for value, name in ((20.5, "a"), (21, "b"))]
        assert journal(address, "sensors") == [*values, ["a"], {"value": 22, "sensor": "b"}]
        [dead] = journal(address, "sensors.dead")
        assert (dead["position"], dead["channel"], dead["payload"]) == ("2", "plant.b.t", "no JSON")
        assert lines[0] == f"sensors: nats 127.0.0.1:{server.port} stream plant to topic sensors"
