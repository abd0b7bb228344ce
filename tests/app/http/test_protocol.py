"""Limits and deadlines of one connection, against the real server and raw bytes.

Ids name the rows of the catalogue of bad input that they cover.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio
from starlette.types import Receive, Scope, Send

from tests.support.clocks.steady import steady
from tests.support.deadlines import HANGS_S
from tests.support.network.edge_app import Streams, edge_app
from tests.support.rules import rule
from tests.support.servers import edge_settings, running
from tests.support.wire import Wire, connected, exchange, get, parse_answer, post, read_all, request
from tidegate.app.http import protocol
from tidegate.app.http.server import Server

CHUNKED = b"Transfer-Encoding: chunked"
pytestmark = pytest.mark.asyncio(loop_scope="module")
DEADLINES = {"header_deadline": "200ms", "body_deadline": "200ms", "keep_alive": "300ms"}


@pytest_asyncio.fixture(name="steady", autouse=True, scope="module", loop_scope="module")
async def steady_fixture() -> AsyncIterator[None]:
    """Client and server share the loop: a hold of the machine makes neither of them late."""
    with steady(asyncio.get_running_loop()):
        yield


@pytest_asyncio.fixture(name="shared", scope="module", loop_scope="module")
async def shared_fixture() -> AsyncIterator[Server]:
    """One server for all tests that leave nothing behind."""
    settings = edge_settings(**DEADLINES)
    async with running(edge_app(settings), settings) as server:
        yield server


@pytest.fixture(name="streams")
def streams_fixture() -> Streams:
    return Streams()


@pytest_asyncio.fixture(name="server", loop_scope="module")
async def server_fixture(streams: Streams) -> AsyncIterator[Server]:
    """A server of the test's own, with `streams` in it."""
    settings = edge_settings(**DEADLINES)
    async with running(edge_app(settings, streams), settings) as server:
        yield server


async def connections_end(server: Server) -> None:
    """Wait until the server holds no connection."""
    async with asyncio.timeout(HANGS_S):
        while server.server_state.connections:
            await asyncio.sleep(0.01)


async def every_deadline_passes(address: str) -> None:
    """Wait until connections that break each deadline have been closed for it."""
    broken = (b"GET", post(b"Content-Length: 9"), get())
    await asyncio.gather(*(read_all(address, raw) for raw in broken))


async def test_a_refusal_reaches_a_client_that_is_still_sending(shared: Server) -> None:
    """Closing at once would reset the connection, and the answer with it."""
    async with connected(shared.address) as wire:
        wire.freeze()
        await wire.send(get()[:-2] + b"X: ")
        for _ in range(90):
            await wire.send(b"a" * 10_000)
            await asyncio.sleep(0)  # the server's turn
        wire.thaw()
        assert parse_answer(await wire.read_to_end()).status == 431


async def test_a_body_comes_through_beside_an_upgrade_that_is_not_taken(shared: Server) -> None:
    """B84: the parser would take the body for the other protocol and hand on an empty one."""
    upgrade = (b"Connection: Upgrade, HTTP2-Settings, close", b"Upgrade: h2c")
    raw = post(*upgrade, b"Content-Length: 3", body=b"abc")
    assert parse_answer(await read_all(shared.address, raw)).body == b'{"bytes":3}'


async def test_trailers_are_passed_over(shared: Server) -> None:
    body = b"3\r\nabc\r\n0\r\nHost: evil.example\r\n\r\n"
    raw = post(CHUNKED, b"Connection: close", body=body)
    assert parse_answer(await read_all(shared.address, raw)).body == b'{"bytes":3}'


# Deadlines


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"GET", id="B81-method"),
        pytest.param(b"GET / HTTP/1.1\r\nHo", id="B81-half-header"),
        pytest.param(get()[:-2], id="B81-last-line-missing"),
        pytest.param(b"\r\n", id="B81-line-ends-only"),
        pytest.param(post(b"Content-Length: 9", body=b"abc"), id="B81-half-body"),
        pytest.param(post(b"Content-Length: 9"), id="B81-no-body"),
        pytest.param(post(CHUNKED, body=b"3\r\nabc\r\n"), id="B55-chunks-without-end"),
    ],
)
async def test_a_request_that_stays_unfinished_is_answered_408(shared: Server, raw: bytes) -> None:
    answer = await exchange(shared.address, raw)
    assert (answer.status, answer.code) == (408, "request-timeout")
    await connections_end(shared)


async def test_a_trickle_does_not_move_the_deadline() -> None:
    """B81: a byte now and then, each well within the deadline, is cut all the same."""
    settings = edge_settings(header_deadline="300ms")
    async with (
        running(edge_app(settings), settings) as server,
        connected(server.address) as wire,
    ):
        await wire.send(get()[:-2] + b"X: ")
        trickle = asyncio.create_task(_trickle(wire, b"a"))
        answer = parse_answer(await wire.read_to_end())
        trickle.cancel()
        assert answer.status == 408


async def test_a_trickle_of_line_ends_does_not_hold_an_idle_connection(shared: Server) -> None:
    async with connected(shared.address) as wire:
        await wire.send(get())
        await wire.read_answer()
        trickle = asyncio.create_task(_trickle(wire, b"\r\n"))
        assert parse_answer(await wire.read_to_end()).status == 408
        trickle.cancel()


async def test_a_connection_that_never_sends_is_closed_without_a_word(shared: Server) -> None:
    async with connected(shared.address) as wire:
        assert await wire.read_to_end() == b""


async def test_an_idle_connection_is_closed_by_the_keep_alive_time_alone() -> None:
    """It outlives the header deadline, can be used again, and ends without a 408."""
    settings = edge_settings(header_deadline="100ms", keep_alive="1s")
    async with (
        running(edge_app(settings), settings) as server,
        connected(server.address) as wire,
    ):
        await wire.send(get())
        assert (await wire.read_answer()).status == 200
        await exchange(server.address, b"GET")  # until another one's header is late
        await wire.send(get())
        assert (await wire.read_answer()).status == 200
        assert await wire.read_to_end() == b""


async def test_the_keep_alive_time_begins_again_with_each_answer() -> None:
    settings = edge_settings(keep_alive="1s")
    async with (
        running(edge_app(settings), settings) as server,
        connected(server.address) as wire,
    ):
        for _ in range(4):
            await wire.send(get())
            assert (await wire.read_answer()).status == 200
            await asyncio.sleep(0.6)
        began = asyncio.get_running_loop().time()
        assert await wire.read_to_end() == b""
        assert 0.3 < asyncio.get_running_loop().time() - began < 0.6


async def test_a_second_request_has_a_deadline_of_its_own(shared: Server) -> None:
    async with connected(shared.address) as wire:
        await wire.send(get() + b"GET / HT")
        assert (await wire.read_answer()).status == 200
        assert parse_answer(await wire.read_to_end()).status == 408


async def test_a_stream_outlives_every_deadline(server: Server, streams: Streams) -> None:
    async with connected(server.address) as wire:
        await wire.send(get(first=b"GET /calm/ HTTP/1.1"))
        await wire.read_until(b"hello\n")
        await every_deadline_passes(server.address)
        streams.say_goodbye()
        await wire.read_until(b"goodbye\n")


async def test_an_early_answer_reaches_a_client_that_goes_on_sending(shared: Server) -> None:
    """B55: 413 for a declared length, while the body keeps coming."""
    size_bytes = 3 << 20
    async with connected(shared.address) as wire:
        await wire.send(post(b"Content-Length: %d" % size_bytes))
        sending = asyncio.create_task(wire.send(b"x" * size_bytes))
        answer = await wire.read_answer()
        await sending
        assert (answer.status, answer.code) == (413, "message-too-large")
        assert await wire.read_to_end() == b""


async def test_an_answer_before_the_body_is_whole_is_the_connections_last(shared: Server) -> None:
    """HAProxy 2.6 sends the next request in place of the rest, which would be read as the body."""
    async with connected(shared.address) as wire:
        await wire.send(post(b"Content-Length: %d" % (2 << 20), body=b"x"))
        answer = await wire.read_answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        await wire.send(get())
        await wire.send(b"x" * ((2 << 20) - 1))
        assert await wire.read_to_end() == b""


async def test_connect_is_refused_once(shared: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the parser it is an upgrade each time, also without the fields of one."""
    made: list[object] = []

    def count(of: protocol.GatewayProtocol) -> object:
        made.append(of)
        return new_parser(of)

    new_parser = protocol._new_parser
    monkeypatch.setattr(protocol, "_new_parser", count)
    raw = get(first=b"CONNECT /healthz HTTP/1.1") + b"x" * 200_000
    answer = await exchange(shared.address, raw)
    assert (answer.status, answer.code) == (400, "message-invalid")
    assert len(made) == 1


async def test_a_chunked_body_is_measured_as_it_comes(shared: Server) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    async with connected(shared.address) as wire:
        await wire.send(post(CHUNKED))
        sending = asyncio.create_task(wire.send(chunk * 20))
        answer = await wire.read_answer()
        sending.cancel()
        assert (answer.status, answer.code) == (413, "message-too-large")


@pytest.mark.nightly  # on a busy machine it failed once: the deadline came before all was read
async def test_a_slow_application_is_not_the_clients_fault() -> None:
    """A body that waits for the application is not late; reading is paused by us."""
    settings = edge_settings(**DEADLINES)
    late = asyncio.Event()

    async def slow_app(scope: Scope, receive: Receive, send: Send) -> None:
        await late.wait()
        size_bytes = 0
        while True:
            message = await receive()
            assert message["type"] == "http.request"
            size_bytes += len(message["body"])
            if not message["more_body"]:
                break
        body = b"%d" % size_bytes
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})

    app = edge_app(settings)
    app.mount("/slow", slow_app)
    async with running(app, settings) as server, connected(server.address) as wire:
        head = get(b"Content-Length: 9000000", first=b"POST /slow/ HTTP/1.1")
        sending = asyncio.create_task(wire.send(head + b"x" * 9_000_000))
        await every_deadline_passes(server.address)
        late.set()
        assert (await wire.read_answer()).body == b"9000000"
        await sending


# Several requests on a connection


async def test_pipelined_requests_are_answered_in_order(shared: Server) -> None:
    async with connected(shared.address) as wire:
        await wire.send(get() + post(b"Content-Length: 2", body=b"ab") + request("/"))
        answers = [(await wire.read_answer()).body for _ in range(3)]
        assert answers == [b'{"here":"root"}', b'{"bytes":2}', b'{"here":"root"}']


async def test_requests_behind_a_stream_end_with_it(server: Server, streams: Streams) -> None:
    """B85: they are neither answered nor kept in numbers."""
    async with connected(server.address) as wire:
        await wire.send(get(first=b"GET /calm/ HTTP/1.1") + get() * 100)
        await wire.read_until(b"hello\n")
        [connection] = server.server_state.connections
        assert len(connection._waiting) <= 16  # type: ignore[union-attr]  # it has begun
        streams.say_goodbye()
        await wire.read_until(b"goodbye\n")


@rule("connection-1")
async def test_what_was_asked_before_the_client_closed_its_side_is_answered(shared: Server) -> None:
    """A publish by `nc -N` is done, so it is answered too."""
    async with connected(shared.address) as wire:
        await wire.send(get() + post(b"Content-Length: 2", body=b"ab"))
        wire.writer.write_eof()
        assert (await wire.read_answer()).body == b'{"here":"root"}'
        assert (await wire.read_answer()).body == b'{"bytes":2}'
        assert await wire.read_to_end() == b""
    await connections_end(shared)


@rule("connection-1")
@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(get()[:-2], id="a-header-that-will-never-be-whole"),
        pytest.param(get(first=b"GET /calm/subscribe HTTP/1.1"), id="a-stream"),
    ],
)
async def test_an_answer_that_takes_its_time_finds_the_side_that_is_open(behind: bytes) -> None:
    settings = edge_settings()
    stored = asyncio.Event()

    async def slow_app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await stored.wait()
        length = (b"content-length", b"2")
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": b"ok"})

    app = edge_app(settings)
    app.mount("/slow", slow_app)
    async with running(app, settings) as server, connected(server.address) as wire:
        head = get(b"Content-Length: 2", first=b"POST /slow/ HTTP/1.1")
        await wire.send(head + b"ab" + behind)
        wire.writer.write_eof()
        await exchange(server.address, request())  # the end of the other has been seen by then
        stored.set()
        answer = await wire.read_answer()
        assert (answer.body, answer.headers["connection"]) == (b"ok", "close")
        assert await wire.read_to_end() == b""
        await connections_end(server)


async def test_a_stream_ends_when_the_client_closes_its_side(
    server: Server, streams: Streams
) -> None:
    async with connected(server.address) as wire:
        await wire.send(get(first=b"GET /calm/subscribe HTTP/1.1"))
        await wire.read_until(b"hello\n")
        wire.writer.write_eof()
        await wire.read_to_end()
    assert streams.disconnects == 1


async def test_a_stream_with_requests_behind_it_notices_that_the_client_left(
    server: Server, streams: Streams
) -> None:
    async with connected(server.address) as wire:
        await wire.send(get(first=b"GET /calm/ HTTP/1.1") + get())
        await wire.read_until(b"hello\n")
        server.abort_connections()
    async with asyncio.timeout(HANGS_S):
        while not streams.disconnects:
            await asyncio.sleep(0.01)


async def test_rubbish_behind_a_request_does_not_spoil_its_answer(shared: Server) -> None:
    raw = post(b"Content-Length: 3", body=b"abc\x00\x01rubbish")
    answer = parse_answer(await read_all(shared.address, raw))
    assert (answer.status, answer.body) == (200, b'{"bytes":3}')


async def test_a_client_that_leaves_in_its_body_costs_nothing(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(server.address) as wire:
        await wire.send(post(b"Content-Length: 9", body=b"abc"))
    await connections_end(server)
    async with asyncio.timeout(HANGS_S):
        while server.server_state.tasks:
            await asyncio.sleep(0.01)
    assert not caplog.records


# Memory and frozen clients


async def test_endless_headers_are_cut_and_memory_stays_flat(server: Server) -> None:
    """B80: 64 MiB of header, offered as fast as it is taken."""
    this = psutil.Process(os.getpid())
    piece = b"a" * 65536
    async with connected(server.address) as wire:
        await wire.send(get()[:-2] + b"X: ")
        before = this.memory_info().rss
        with contextlib.suppress(ConnectionError):
            for _ in range(1024):
                await wire.send(piece)
        await wire.read_to_end()
        grown = this.memory_info().rss - before
    assert grown < 16 << 20
    await connections_end(server)


async def test_a_frozen_client_is_cut_and_has_swallowed_little(
    server: Server, streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    """With the kernel's defaults it would be four megabytes before anybody noticed."""
    async with connected(server.address) as wire:
        wire.freeze()
        await wire.send(get(first=b"GET /flood/ HTTP/1.1"))
        async with asyncio.timeout(HANGS_S):
            await streams.cut.wait()
        await connections_end(server)
    assert streams.stalled_at_bytes is not None
    assert streams.stalled_at_bytes < 256 << 10
    assert 0 < streams.write_buffer_bytes < 20_000
    assert streams.write_buffer_bytes < streams.unsent_bytes
    assert not caplog.records  # whoever cuts it says so, once


async def _trickle(wire: Wire, piece: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            await wire.send(piece)
            await asyncio.sleep(0.05)
