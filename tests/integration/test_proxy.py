"""Behind a proxy: which header fields the gateway trusts, and from which peers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.support.gateways import Running, running_gateway
from tests.support.wire import Answer, Wire, connected, exchange, request
from tidegate.app.http.transport.proxies import Forwarded, TrustedProxies
from tidegate.app.settings.settings import Settings

ME = ["127.0.0.1"]


@contextlib.asynccontextmanager
async def behind(*proxies: str, **given: object) -> AsyncIterator[Running]:
    async with running_gateway(trusted_proxies=list(proxies), **given) as gateway:
        await gateway.topic()
        yield gateway


async def written(gateway: Running, *headers: str, host: str = "localhost") -> Answer:
    """The answer to a page's publish."""
    raw = request(
        "/v1/topics/px/messages", *headers, "Content-Type: application/json", "Content-Length: 7",
        "Connection: close", method="POST", host=host,
    )  # fmt: skip
    return await exchange(gateway.address, raw + b'{"k":1}')


def kept(client: str) -> bytes:
    """A request on a connection that stays, as a proxy sends it."""
    return (
        f"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {client}\r\n\r\n"
    ).encode()


# --- What is read


@pytest.mark.parametrize(
    ("given", "client"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9", "203.0.113.9"),  # the first one is the client's own word
        ("203.0.113.9, 10.1.2.3", "203.0.113.9"),  # through two proxies of ours
        ("10.1.2.3, 10.1.2.4", "10.1.2.3"),
        ("203.0.113.9:4711", "203.0.113.9"),
        ("[2001:db8::7]:4711", "2001:db8::7"),
        ("2001:DB8::7", "2001:db8::7"),
        ("203.0.113.9, unknown", "127.0.0.1"),
        ("203.0.113.9, 10.1.2.3, x", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("1.2.3.4.5", "127.0.0.1"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_proxy(given: str, client: str) -> None:
    proxies = TrustedProxies(["127.0.0.1/32", "10.0.0.0/8"])
    assert proxies.read([(b"x-forwarded-for", given.encode())], "127.0.0.1").client == client


def test_several_fields_are_one_list() -> None:
    proxies = TrustedProxies(["127.0.0.1/32", "10.0.0.0/8"])
    fields = [(b"x-forwarded-for", b"203.0.113.9"), (b"x-forwarded-for", b"10.0.0.1")]
    assert proxies.read(fields, "127.0.0.1").client == "203.0.113.9"


def test_scheme_and_host_are_those_of_the_nearest_proxy() -> None:
    fields = [
        (b"x-forwarded-proto", b"http, HTTPS"),
        (b"x-forwarded-host", b"evil.example, gateway.example"),
    ]
    said = TrustedProxies(["127.0.0.1/32"]).read(fields, "127.0.0.1")
    assert said == Forwarded("127.0.0.1", "https", "gateway.example")
    fields = [(b"x-forwarded-proto", b"gopher")]
    assert TrustedProxies([]).read(fields, "127.0.0.1").scheme is None


@pytest.mark.parametrize("wrong", ["10.0.0.7/8", "gateway.example", "10.0.0", "*", ""])
def test_a_proxy_is_an_address_or_a_network(wrong: str) -> None:
    with pytest.raises(ValueError, match="expected a list of addresses"):
        Settings(trusted_proxies=(wrong,))


# --- Addresses


async def test_the_log_has_the_client_of_a_trusted_proxy(caplog: pytest.LogCaptureFixture) -> None:
    for proxies, client in ((ME, "203.0.113.9"), ([], "127.0.0.1"), (["10.0.0.0/8"], "127.0.0.1")):
        caplog.clear()
        with caplog.at_level("INFO", "tidegate.requests"):
            async with behind(*proxies, log_requests=True) as gateway:
                answer = await written(gateway, "X-Forwarded-For: 203.0.113.9")
        assert answer.status == 200
        logged = [it.__dict__ for it in caplog.records if "POST" in it.getMessage()]
        assert [_figure(it, "client") for it in logged] == [client]


def _figure(record: dict[str, object], name: str) -> object:
    figures = next(value for value in record.values() if isinstance(value, dict) and name in value)
    return figures[name]


async def test_connections_are_counted_by_client(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        behind(*ME, connections_per_address_max=1) as gateway,
        contextlib.AsyncExitStack() as stack,
    ):

        async def asked(client: str) -> int:
            wire = await stack.enter_async_context(connected(gateway.address))
            await wire.send(kept(client))
            return (await wire.read_answer()).status

        assert [await asked("203.0.113.1"), await asked("203.0.113.2")] == [200, 200]
        assert await asked("203.0.113.1") == 429
        assert await asked("203.0.113.3") == 200


async def test_a_connection_that_a_proxy_uses_again_counts_for_its_next_client() -> None:
    async with (
        behind(*ME, connections_per_address_max=1) as gateway,
        connected(gateway.address) as one,
        connected(gateway.address) as other,
    ):

        async def asked(wire: Wire, client: str) -> int:
            await wire.send(kept(client))
            return (await wire.read_answer()).status

        before = ""
        for client in ("203.0.113.1", "203.0.113.2", "203.0.113.3"):
            assert await asked(one, client) == 200  # and leaves the one before to the other
            if before:
                assert await asked(other, before) == 200
            before = client
        assert await asked(other, "203.0.113.3") == 429


async def test_nobody_else_escapes_the_limit_by_a_header() -> None:
    async with (
        behind("10.0.0.0/8", connections_per_address_max=4) as gateway,
        contextlib.AsyncExitStack() as stack,
    ):
        statuses = []
        for number in range(6):  # the gateway's own client has one already
            wire = await stack.enter_async_context(connected(gateway.address))
            await wire.send(kept(f"203.0.113.{number}"))
            statuses.append((await wire.read_answer()).status)
        assert statuses == [200] * 3 + [429] * 3


# --- Pages


async def test_a_page_is_of_our_origin_by_the_proxys_host_and_scheme() -> None:
    async with behind(*ME, allowed_hosts=["gateway.example"]) as gateway:
        said = ["X-Forwarded-Host: gateway.example", "X-Forwarded-Proto: https"]
        own = await written(gateway, *said, "Origin: https://gateway.example")
        assert own.status == 200
        # A page that came in the clear may be anybody's.
        for origin in ("http://gateway.example", "http://localhost", "https://evil.example"):
            answer = await written(gateway, *said, f"Origin: {origin}")
            assert (answer.status, answer.code) == (403, "origin-not-allowed")


async def test_a_host_that_is_none_of_ours_is_refused_in_either_place() -> None:
    async with behind(*ME, allowed_hosts=["gateway.example"]) as gateway:
        answer = await written(gateway, "X-Forwarded-Host: evil.example")
        assert (answer.status, answer.code) == (421, "host-not-allowed")
        forwarded = "X-Forwarded-Host: gateway.example"
        answer = await written(gateway, forwarded, host="evil.example")
        assert (answer.status, answer.code) == (421, "host-not-allowed")
        assert (await written(gateway, "X-Forwarded-Host:")).status == 421


async def test_nobody_else_chooses_its_host_and_scheme() -> None:
    async with behind("10.0.0.0/8", allowed_hosts=["gateway.example"]) as gateway:
        said = ["X-Forwarded-Host: gateway.example", "X-Forwarded-Proto: https"]
        answer = await written(gateway, *said, "Origin: https://gateway.example")
        assert (answer.status, answer.code) == (403, "origin-not-allowed")
        assert (await written(gateway, "X-Forwarded-Host: evil.example")).status == 200
        own = "Origin: http://localhost"
        assert (await written(gateway, "X-Forwarded-Proto: https", own)).status == 200


async def test_a_stream_is_logged_with_its_client(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "tidegate.requests"):
        async with behind(*ME, log_requests=True) as gateway:
            async with connected(gateway.address) as wire:
                path = "/v1/topics/px/subscribe"
                await wire.send(request(path, "X-Forwarded-For: 203.0.113.9"))
                await wire.read_until(b"event: hello")
            await asyncio.sleep(0.1)
    [line] = [it for it in caplog.records if "subscribe" in it.getMessage()]
    assert _figure(line.__dict__, "client") == "203.0.113.9"
