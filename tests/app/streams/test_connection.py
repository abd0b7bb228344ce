"""What a stream knows of its connection."""

import asyncio

from starlette.types import Receive, Scope, Send

from tests.support.deadlines import HANGS_S
from tests.support.network.edge_app import edge_app
from tests.support.servers import edge_settings, running
from tests.support.wire import connected, request
from tidegate.app.http.scope import connection_of


async def test_unacknowledged_bytes_are_seen_and_an_abort_is_a_disconnect() -> None:
    seen: asyncio.Future[tuple[int, int, bool]] = asyncio.get_running_loop().create_future()

    async def full(scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        assert connection is not None
        assert connection.unsent_bytes == 0
        assert 0 <= connection.round_trip_ns < 1_000_000_000
        await send({"type": "http.response.start", "status": 200, "headers": []})
        body = b"x" * (8 << 20)  # more than both kernels take
        await send({"type": "http.response.body", "body": body, "more_body": True})
        while connection.unsent_bytes == connection.write_buffer_bytes:
            await asyncio.sleep(
                0.01
            )  # until the client's window is full and the kernel's queue too
        figures = (connection.write_buffer_bytes, connection.unsent_bytes)
        connection.abort()
        while (await receive())["type"] != "http.disconnect":
            pass
        seen.set_result((*figures, connection.is_closing))
        assert connection.unsent_bytes == connection.round_trip_ns == 0

    settings = edge_settings()
    app = edge_app(settings)
    app.mount("/full", full)
    async with running(app, settings) as server, connected(server.address) as wire:
        wire.freeze()
        await wire.send(request("/full/"))
        async with asyncio.timeout(HANGS_S):
            waiting_bytes, unsent_bytes, is_closing = await seen
    assert 0 < waiting_bytes < unsent_bytes
    assert is_closing


def test_another_server_has_no_such_connection() -> None:
    assert connection_of({"type": "http"}) is None
    assert connection_of({"type": "http", "extensions": {}}) is None
