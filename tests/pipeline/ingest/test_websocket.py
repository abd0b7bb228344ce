"""Messages of a WebSocket server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from tests.pipeline.ingest.ingesting import connector_of, read_until
from tidegate.pipeline.errors import EndpointRefused, EndpointUnavailable

pytestmark = pytest.mark.system
SUBSCRIBE = '{"op":"subscribe"}'


class Feed:
    """A server that repeats what a client says, and then sends what it is asked to."""

    def __init__(self) -> None:
        self.ends = threading.Event()

    def answer(self, connection: ServerConnection) -> None:
        heard = connection.recv()
        connection.send(heard)
        for at in range(3):
            connection.send(f'{{"n":{at}}}'.encode() if at % 2 else f'{{"n":{at}}}')
        self.ends.wait()

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get("Authorization") != "Bearer t":
            return connection.respond(401, "who are you?\n")
        return None


@contextmanager
def feeding() -> Iterator[tuple[Feed, str]]:
    feed = Feed()
    with serve(feed.answer, "127.0.0.1", 0, process_request=feed.admit) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield feed, f"ws://127.0.0.1:{server.socket.getsockname()[1]}/prices?token=secret"
        finally:
            feed.ends.set()
            server.shutdown()
            thread.join()


def table(address: str, token: str = "t") -> dict[str, object]:
    headers = {"Authorization": f"Bearer {token}"}
    return {"kind": "websocket", "address": address, "subscribe": [SUBSCRIBE], "headers": headers}


def test_texts_and_bytes_arrive_after_what_subscribes() -> None:
    with feeding() as (feed, address):
        connector = connector_of(table(address))
        connector.open(lambda partition: None)
        found = [each.payload for batch in read_until(connector, 4) for each in batch.records]
        assert found == [SUBSCRIBE.encode(), b'{"n":0}', b'{"n":1}', b'{"n":2}']
        assert connector.read(0.01) is None
        feed.ends.set()
        with pytest.raises(EndpointUnavailable, match="has ended"):
            connector.read(5.0)
        connector.close()


def test_what_came_before_the_end_of_a_connection_is_read() -> None:
    with feeding() as (feed, address):
        feed.ends.set()
        connector = connector_of(table(address))
        connector.open(lambda partition: None)
        time.sleep(0.3)  # all has arrived, and the end with it
        batch = connector.read(5.0)
        assert batch is not None
        assert len(batch.records) == 4
        with pytest.raises(EndpointUnavailable, match="has ended"):
            connector.read(5.0)
        connector.close()


def test_a_server_that_refuses_or_is_not_there_is_a_sentence_without_secrets() -> None:
    with feeding() as (_, address):
        connector = connector_of(table(address, token="other"))
        with pytest.raises(EndpointRefused, match=r"refuses the connection: .*401") as refused:
            connector.open(lambda partition: None)
        assert "secret" not in str(refused.value)
    connector = connector_of(table(address))
    with pytest.raises(EndpointUnavailable, match="cannot reach websocket ws://127") as absent:
        connector.open(lambda partition: None)
    assert "secret" not in str(absent.value)
    connector.close()
