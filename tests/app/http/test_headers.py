"""What every request must carry and every answer carries, over the real server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.app.http.test_requests import BAD_NAMES, asked
from tests.support.deadlines import LOOPS_S
from tests.support.network.edge_app import edge_app
from tests.support.servers import edge_settings, running_server
from tests.support.wire import connected, exchange, request
from tidegate.app.http.middleware import check_path, host_rule
from tidegate.app.refusals import Refused

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(name="address", scope="module", loop_scope="module")
async def address_fixture() -> AsyncIterator[str]:
    settings = edge_settings(allowed_hosts=["gateway.example"])
    async with running_server(edge_app(settings), settings) as address:
        yield address


@pytest.mark.parametrize("target", ["/", "/nothing", "/refused", "/broken"])
async def test_every_answer_is_protected(address: str, target: str) -> None:
    headers = (await exchange(address, request(target))).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "strict-transport-security" not in headers


@pytest.mark.parametrize(
    ("given", "scheme", "sent"),
    [
        ({"hsts": "365d"}, "https", "max-age=31536000"),
        ({"hsts": "0s"}, "https", "max-age=0"),
        ({"hsts": "365d"}, "http", None),
        ({}, "https", None),
    ],
)
async def test_browsers_are_kept_to_https_where_that_is_asked_for(
    given: dict[str, str], scheme: str, sent: str | None
) -> None:
    """Over http anybody on the path could have added the field, so it is not sent there."""
    settings = edge_settings(trusted_proxies=["127.0.0.1"], **given)
    async with running_server(edge_app(settings), settings) as address:
        for target in ("/", "/nothing"):
            answer = await exchange(address, request(target, f"X-Forwarded-Proto: {scheme}"))
            assert answer.headers.get("strict-transport-security") == sent


async def test_a_page_may_use_its_own_scripts_and_no_others(address: str) -> None:
    policy = (await exchange(address, request("/page"))).headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy


async def test_a_header_that_a_route_sets_is_left_alone(address: str) -> None:
    async with connected(address) as wire:
        await wire.send(request("/calm/"))
        _, headers = await wire.read_head()
    assert headers["cache-control"] == "no-cache"


async def test_a_stream_is_not_held_back(address: str) -> None:
    async with connected(address) as wire, asyncio.timeout(LOOPS_S):
        await wire.send(request("/calm/"))
        await wire.read_until(b"hello\n")


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("evil.example", id="B77-other"),
        pytest.param("localhost.evil", id="B77-prefix"),
        pytest.param("evil.localhost", id="B77-suffix"),
        pytest.param("127.0.0.1:1@x", id="B77-userinfo"),
        pytest.param("localhost:80:80", id="B77-two-ports"),
        pytest.param("localhost:", id="B77-empty-port"),
        pytest.param("localhost:a", id="B77-port-no-number"),
        pytest.param("localhost:65536", id="B77-port-too-high"),
        pytest.param("localhost:000080", id="B77-port-of-six-digits"),
        pytest.param("localhost, evil.example", id="B77-list"),
        pytest.param("", id="B77-empty"),
        pytest.param("127.0.0.2", id="B77-other-address"),
        pytest.param("0.0.0.0", id="B77-wildcard"),
        pytest.param("[::2]", id="B77-other-ipv6"),
        pytest.param("[::1", id="B77-bracket"),
        pytest.param("gateway.example..", id="B77-trailing-dots"),
    ],
)
async def test_a_foreign_host_is_refused(address: str, host: str) -> None:
    answer = await exchange(address, request("/", host=host))
    assert (answer.status, answer.code) == (421, "host-not-allowed")


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:8080", "127.0.0.1:1", "[::1]", "[::1]:8080", "gateway.example:443"],
)
async def test_loopback_and_configured_hosts_are_served(address: str, host: str) -> None:
    assert (await exchange(address, request("/", host=host))).status == 200


async def test_a_configured_ipv6_address_is_written_in_brackets() -> None:
    rule = host_rule(("fd00::7",))
    assert rule("[fd00::7]:8080")
    assert not rule("[fd00::8]")


@pytest.mark.parametrize("name", [p for p in BAD_NAMES if " " not in str(p.values[0])])
@pytest.mark.parametrize("rest", ["", "/sow"])
async def test_a_bad_topic_name_never_reaches_another_route(
    address: str, name: str, rest: str
) -> None:
    answer = await exchange(address, request(f"/v1/topics/{name}{rest}"))
    if name == "\xe9":
        assert answer.code == "message-invalid"  # no byte of a path may be that high
    else:
        assert (answer.status, answer.code) == (400, "topic-invalid")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/%74opics/a", "not-found"),
        ("/v1/topics/a/%73ow", "not-found"),
        ("/v1/topics/a/sow%2Fb", "not-found"),
        ("/%2e%2e/etc", "not-found"),
        ("/v1/topics/", "topic-invalid"),
        ("/v1/topics//sow", "topic-invalid"),
        ("/v1/topics/../x", "topic-invalid"),
        ("/v1/topics/a.*", "topic-invalid"),
        ("/v1/topics/a.%2A/sow", "topic-invalid"),
        ("/v1/topics/a*/subscribe", "topic-invalid"),
        ("/v1/topics/a.*%2Fsubscribe", "topic-invalid"),
    ],
)
async def test_an_encoded_path_is_no_other_path(path: str, code: str) -> None:
    with pytest.raises(Refused) as raised:
        check_path(asked(path))
    assert raised.value.code == code


async def test_only_subscribing_takes_a_pattern() -> None:
    check_path(asked("/v1/topics/a.*/subscribe"))
    check_path(asked("/v1/topics/a.%2a.%3E/subscribe"))


async def test_a_record_key_may_be_any_text() -> None:
    check_path(asked("/v1/topics/a/sow/%5B%22a%2Fb%22%5D"))
    check_path(asked("/v1/topics"))
