"""Which web pages may have a browser change something, over the real server."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.gateways import running_gateway
from tests.support.network.edge_app import edge_app
from tests.support.rules import rule
from tests.support.servers import edge_settings, running_server
from tests.support.wire import Answer, connected, exchange, request

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(name="address", scope="module", loop_scope="module")
async def address_fixture() -> AsyncIterator[str]:
    settings = edge_settings(
        allowed_hosts=["gateway.example"], allowed_origins=["https://Desk.example:8443"]
    )
    async with running_server(edge_app(settings), settings) as address:
        yield address


async def sent(
    address: str, *headers: str, method: str = "POST", host: str = "localhost"
) -> Answer:
    """The answer to what a page would change."""
    path = "/body" if method == "POST" else "/"
    headers = (*headers, "Content-Type: text/plain", "Content-Length: 0")
    return await exchange(address, request(path, *headers, method=method, host=host))


@rule("connection-2")
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://localhost.evil.example",
        "http://localhost:3000",  # another program of this machine is another origin
        "https://localhost:80",
        "ftp://localhost",
        "null",
        "",
        "localhost",
        "https://desk.example",
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_page_of_another_origin_changes_nothing(
    address: str, origin: str, method: str
) -> None:
    answer = await sent(address, f"Origin: {origin}", method=method)
    assert (answer.status, answer.code) == (403, "origin-not-allowed")


async def test_the_refusal_says_what_a_proxy_has_to_keep(address: str) -> None:
    """That of a development server changes the Host: the page is of another origin for us."""
    answer = await sent(address, "Origin: http://localhost:5173", "Sec-Fetch-Site: same-origin")
    assert "changeOrigin: false" in answer.problem["detail"]


async def test_a_page_of_another_site_without_an_origin_changes_nothing(address: str) -> None:
    answer = await sent(address, "Sec-Fetch-Site: cross-site")
    assert (answer.status, answer.code) == (403, "origin-not-allowed")


@rule("connection-2")
@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8080", "localhost:8080"),
        ("http://LOCALHOST", "localhost"),
        ("http://localhost", "localhost:80"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("https://gateway.example", "gateway.example"),  # through a proxy with TLS
        ("https://desk.example:8443", "localhost"),
    ],
)
async def test_its_own_pages_and_those_allowed_may(address: str, origin: str, host: str) -> None:
    headers = (f"Origin: {origin}", "Sec-Fetch-Site: cross-site")
    assert (await sent(address, *headers, host=host)).status == 200


async def test_who_is_no_browser_names_no_origin(address: str) -> None:
    assert (await sent(address)).status == 200


async def test_reading_is_bound_by_the_browser_itself(address: str) -> None:
    """It keeps the answer from the page; a link from another site to the console is a GET too."""
    headers = ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site")
    assert (await exchange(address, request("/", *headers))).status == 200


async def test_two_origins_are_both_looked_at(address: str) -> None:
    answer = await sent(address, "Origin: http://localhost", "Origin: http://evil.example")
    assert answer.code == "origin-not-allowed"


@rule("connection-2")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics/px/subscribe",
        "/v1/topics/%3E/subscribe",
        "/v1/topics/px/stream?offset=-1&live=long-poll",
        "/v1/topics/px/stream?offset=-1&l%69ve=long-poll",
    ],
)
async def test_a_page_of_another_site_opens_no_stream(path: str) -> None:
    async with running_gateway(allowed_origins=["https://desk.example"]) as running:
        await running.topic()

        async def status(*headers: str) -> int:
            async with connected(running.address) as wire:
                await wire.send(request(path, *headers))
                return int((await wire.read_until(b"\r\n")).split()[1])

        # An image, a fetch without CORS or a link: a browser sends no origin with it.
        for header in ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"):
            assert await status(header) == 403
        assert await status("Origin: https://evil.example") == 403
        assert not running.gateway.sessions.states()
        assert await status("Origin: https://desk.example", "Sec-Fetch-Site: cross-site") == 200
        assert await status("Sec-Fetch-Site: same-origin") == 200
        assert await status("Sec-Fetch-Site: none") == 200
        assert await status() == 200
