"""What the protocol refuses, and what it takes: one table a limit, against the real server.

Ids name the rows of the catalogue of bad input that they cover.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.network.edge_app import edge_app
from tests.support.servers import edge_settings, running
from tests.support.wire import connected, exchange, get, parse_answer, post, read_all, request
from tidegate.app.http.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOST = b"Host: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked"


@pytest_asyncio.fixture(name="shared", scope="module", loop_scope="module")
async def shared_fixture() -> AsyncIterator[Server]:
    settings = edge_settings(keep_alive="300ms")
    async with running(edge_app(settings), settings) as server:
        yield server


MALFORMED = [
    pytest.param(post(b"Content-Length: 3", CHUNKED, body=b"0\r\n\r\n"), id="B79-cl-te"),
    pytest.param(post(CHUNKED, b"Content-Length: 3", body=b"0\r\n\r\n"), id="B79-te-cl"),
    pytest.param(post(b"Content-Length: 3", b"Content-Length: 3", body=b"abc"), id="B79-two-cl"),
    pytest.param(post(b"Content-Length: 3", b"Content-Length: 4", body=b"abc"), id="B79-cl-differ"),
    pytest.param(post(b"Content-Length: -1"), id="B79-cl-negative"),
    pytest.param(post(b"Content-Length: +5", body=b"abcde"), id="B79-cl-plus"),
    pytest.param(post(b"Content-Length: 0x5", body=b"abcde"), id="B79-cl-hex"),
    pytest.param(post(b"Content-Length: " + b"9" * 40), id="B79-cl-huge"),
    pytest.param(post(b"Transfer-Encoding: gzip", body=b"abc"), id="B79-te-unknown"),
    pytest.param(
        post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), id="B79-te-gzip-chunked"
    ),
    pytest.param(post(CHUNKED, CHUNKED, body=b"0\r\n\r\n"), id="B79-te-chunked-twice"),
    pytest.param(
        get(CHUNKED, first=b"POST /body HTTP/1.0") + b"0\r\n\r\n", id="B79-te-of-http-1.0"
    ),
    pytest.param(post(CHUNKED, body=b"zz\r\n"), id="B79-chunk-size-no-hex"),
    pytest.param(get(b"X: a\r\n folded"), id="B79-obs-fold"),
    pytest.param(get(b"X : a"), id="B79-space-before-colon"),
    pytest.param(get().replace(b"\r\n", b"\n"), id="B79-bare-lf"),
    pytest.param(get().replace(b"\r\n", b"\r"), id="B79-bare-cr"),
    pytest.param(get(b"X: a\0b"), id="B79-nul-in-header"),
    pytest.param(get(b"X: a\x01b"), id="B79-control-in-header"),
    pytest.param(get(b": a"), id="B79-no-header-name"),
    pytest.param(b"GET /\r\n\r\n", id="B79-http-0.9"),
    pytest.param(get(first=b"GET / HTTP/0.9"), id="B79-http-0.9-named"),
    pytest.param(get(first=b"GET / HTTP/1.2"), id="B79-http-1.2"),
    pytest.param(get(first=b"GET / HTTP/2.0"), id="B79-http-2.0"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="B84-http2-preface"),
    pytest.param(get(first=b"FOO / HTTP/1.1"), id="B76-unknown-method"),
    pytest.param(get(first=b"get / HTTP/1.1"), id="B76-method-in-lower-case"),
    pytest.param(get(first=b"CONNECT evil.example:443 HTTP/1.1"), id="B77-connect"),
    pytest.param(get(first=b"OPTIONS * HTTP/1.1"), id="B77-asterisk"),
    pytest.param(get(first=b"GET ftp://localhost/ HTTP/1.1"), id="B77-other-scheme"),
    pytest.param(get(first=b"GET /\xff HTTP/1.1"), id="B39-raw-byte-in-path"),
    pytest.param(get(first=b"GET /\0 HTTP/1.1"), id="B39-nul-in-path"),
    pytest.param(get(first=b"GET /a b HTTP/1.1"), id="B79-space-in-target"),
    pytest.param(get(first=b"GET /#a HTTP/1.1"), id="B79-fragment"),
    pytest.param(get(first=b"GET http://localhost/#/../a HTTP/1.1"), id="B79-fragment-of-url"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="B79-tls-hello"),
]


@pytest.mark.parametrize("raw", MALFORMED)
async def test_what_is_no_plain_http_is_refused_and_closed(shared: Server, raw: bytes) -> None:
    answer = await exchange(shared.address, raw)
    assert (answer.status, answer.code) == (400, "message-invalid")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="B77-missing"),
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", id="B77-missing-1.0"),
        pytest.param(b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", id="B77-twice"),
        pytest.param(get(first=b"GET http://evil.example/ HTTP/1.1"), id="B77-absolute-form"),
        pytest.param(
            get(first=b"GET http://localhost@evil.example/ HTTP/1.1"), id="B77-absolute-userinfo"
        ),
    ],
)
async def test_a_request_has_one_host(shared: Server, raw: bytes) -> None:
    answer = await exchange(shared.address, raw)
    assert (answer.status, answer.code) == (400, "host-not-allowed")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        pytest.param(request("/" + "a" * 9000), 414, "uri-too-long", id="B80-uri"),
        pytest.param(request("/?o=" + "a" * 9000), 414, "uri-too-long", id="B13-query"),
        pytest.param(b"GET /" + b"a" * 400_000, 414, "uri-too-long", id="B80-uri-without-end"),
        pytest.param(request("/", "X: " + "a" * 17000), 431, "headers-too-large", id="B80-size"),
        pytest.param(
            request("/", *["X: " + "a" * 1700] * 10), 431, "headers-too-large", id="B80-sum"
        ),
        pytest.param(request("/", *["X: a"] * 99), 431, "headers-too-large", id="B80-count"),
        pytest.param(
            get()[:-2] + b"X: " + b"a" * 400_000, 431, "headers-too-large", id="B80-without-end"
        ),
        pytest.param(
            get()[:-2] + b"a" * 400_000, 431, "headers-too-large", id="B80-name-without-end"
        ),
        pytest.param(
            post(CHUNKED, body=b"0\r\nX: " + b"a" * 400_000),
            431,
            "headers-too-large",
            id="B80-trailers-without-end",
        ),
        pytest.param(
            post(CHUNKED, body=b"3;" + b"a" * 400_000),
            431,
            "headers-too-large",
            id="B80-chunk-extension-without-end",
        ),
    ],
)
async def test_headers_and_targets_have_a_size(
    shared: Server, raw: bytes, status: int, code: str
) -> None:
    answer = await exchange(shared.address, raw)
    assert (answer.status, answer.code) == (status, code)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(request("/?o=" + "a" * 8100), id="target"),
        pytest.param(request("/", "X: " + "a" * 16000), id="header"),
        pytest.param(request("/", *["X: a"] * 98), id="count"),
        pytest.param(get(b"Connection: close", first=b"GET http://localhost/ HTTP/1.1"), id="url"),
        pytest.param(
            get(b"Connection: close", first=b"GET http://localhost HTTP/1.1"), id="url-without-path"
        ),
        pytest.param(get(first=b"GET / HTTP/1.0"), id="http-1.0"),
        pytest.param(b"\r\n" + request("/"), id="line-end-before"),
        pytest.param(
            request("/", "Upgrade: websocket").replace(b"close", b"close, Upgrade"),
            id="B84-websocket",
        ),
        pytest.param(request("/", "Expect: 200-ok"), id="B84-expect"),
    ],
)
async def test_what_is_within_the_limits_is_served(shared: Server, raw: bytes) -> None:
    answer = parse_answer(await read_all(shared.address, raw))
    assert (answer.status, answer.body) == (200, b'{"here":"root"}')


async def test_a_client_of_http_1_0_gets_one_answer(shared: Server) -> None:
    """RFC 9110, 15.2: such a client knows no 100, and would take it for the answer."""
    fields = (b"Expect: 100-continue", b"Content-Length: 3")
    raw = await read_all(shared.address, get(*fields, first=b"POST /body HTTP/1.0") + b"abc")
    assert raw.startswith(b"HTTP/1.1 200 "), raw
    assert raw.count(b"HTTP/1.1 ") == 1


async def test_a_client_that_waits_for_a_100_gets_it_where_its_body_is_read(
    shared: Server,
) -> None:
    fields = (b"Expect: 100-continue", b"Content-Length: 3", b"Connection: close")
    async with connected(shared.address) as wire:
        await wire.send(post(*fields))
        assert await wire.read_head() == (100, {})
        await wire.send(b"abc")
        assert (await wire.read_head())[0] == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        pytest.param(b"HEAD / HTTP/1.1\r\n\r\n", 400, id="without-host"),
        pytest.param(get(b"X : a", first=b"HEAD / HTTP/1.1"), 400, id="malformed"),
        pytest.param(request("/" + "a" * 9000, method="HEAD"), 414, id="uri"),
        pytest.param(request("/", *["X: a"] * 99, method="HEAD"), 431, id="count"),
    ],
)
async def test_a_refusal_of_head_has_no_body(shared: Server, raw: bytes, status: int) -> None:
    answer = await exchange(shared.address, raw)
    assert (answer.status, answer.body) == (status, b"")
    assert int(answer.headers["content-length"]) > 0, "of the answer to GET"


@pytest.mark.parametrize(
    ("sent", "code"), [(b"HEADS UP\r\n\r\n", "message-invalid"), (b"\r\n", "request-timeout")]
)
async def test_what_comes_after_a_head_request_is_refused_with_a_body(
    shared: Server, sent: bytes, code: str
) -> None:
    async with connected(shared.address) as wire:
        await wire.send(get(first=b"HEAD / HTTP/1.1"))
        assert (await wire.read_head())[0] == 200
        await wire.send(sent)
        assert parse_answer(await wire.read_to_end()).code == code


async def test_a_full_gateway_refuses_head_without_a_body() -> None:
    settings = edge_settings(connections_max=1)
    async with running(edge_app(settings), settings) as server, connected(server.address) as first:
        await first.send(get())
        await first.read_head()
        answer = await exchange(server.address, request("/", method="HEAD"))
        assert (answer.status, answer.body) == (429, b"")
