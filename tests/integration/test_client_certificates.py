"""Clients known by certificates: what the policy gives them, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.buses import BusServer
from tests.support.certificates import Authority, Signed
from tests.support.commands import Ended, call
from tests.support.gateways import Running, Stream, client_of, eventually, running_gateway
from tests.support.tokens import public_jwk, token_of, write_keys
from tidegate.app.access.certificate import ClientCertificate
from tidegate.app.access.policy import Policy, PolicyInvalid
from tidegate.app.settings.settings import Settings
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.registry import Fault

POLICY = """
[[certificates."feed-1"]]
topics = "prices.>"
can = ["write"]

[[certificates."reader.example"]]
topics = "prices.>"
can = ["read"]

[[certificates."operator"]]
topics = ">"
can = ["admin", "read", "observe"]
"""


class Site:
    """A gateway's files: its authority, its keys, its policy."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.policy = folder / "policy.toml"
        self.policy.write_text(POLICY)
        server = self.authority.server()
        self.settings: dict[str, Any] = {
            "tls_cert": str(server.both),
            "tls_client_ca": str(self.authority.cert),
            "auth_keys": write_keys(folder / "keys.json", public_jwk("HS256")),
            "auth_policy": str(self.policy),
        }


@pytest.fixture(name="site")
def site_fixture(tmp_path: Path) -> Site:
    return Site(tmp_path)


@contextlib.asynccontextmanager
async def guarded(site: Site, **more: Any) -> AsyncIterator[Running]:
    """A gateway that knows certificates; its own client is the operator."""
    operator = site.authority.trusting(site.authority.client("operator"))
    async with running_gateway(tls=operator, **{**site.settings, **more}) as gateway:
        await gateway.topic("prices.eu")
        yield gateway


@contextlib.asynccontextmanager
async def client(
    gateway: Running, site: Site, certificate: Signed | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(gateway.address, tls=site.authority.trusting(certificate)) as remote:
        yield remote.http


def claimed(name: str) -> dict[str, str]:
    """The header by which gateways tell each other of a client's certificate."""
    field, value = ClientCertificate(name, 4_000_000_000_000).field()
    return {field.decode(): value.decode()}


async def publish(http: httpx2.AsyncClient, topic: str = "prices.eu", **more: Any) -> int:
    answer = await http.post(f"/v1/topics/{topic}/messages", json={"k": 1}, **more)
    return answer.status_code


async def test_a_certificate_does_what_its_grants_give_and_no_more(site: Site) -> None:
    async with (
        guarded(site) as gateway,
        client(gateway, site, site.authority.client("feed-1")) as feed,
        client(gateway, site, site.authority.client("named", dns="reader.example")) as reader,
    ):
        assert await publish(feed) == 200
        assert await publish(feed, "orders") == 403
        assert (await feed.get("/v1/topics/prices.eu/sow")).status_code == 403
        assert (await feed.get("/metrics")).status_code == 403
        # The alternative name counts, and not the common one.
        assert (await reader.get("/v1/topics/prices.eu/sow")).text.strip() == '{"k":1}'
        assert await publish(reader) == 403
        shown = (await feed.get("/v1/login")).json()
        assert shown["sub"] == "certificate:feed-1"
        assert "csrf" not in shown


async def test_an_equal_header_of_another_certificate_is_answered_for_that_one(site: Site) -> None:
    async with (
        guarded(site) as gateway,
        client(gateway, site, site.authority.client("feed-1")) as feed,
        client(gateway, site, site.authority.client(dns="reader.example")) as reader,
        client(gateway, site) as bare,
    ):
        assert [await publish(feed) for _ in range(3)] == [200] * 3
        assert [await publish(it) for it in (reader, bare)] == [403, 401]


async def test_without_a_certificate_that_the_policy_names_a_token_is_needed(site: Site) -> None:
    async with guarded(site) as gateway:
        for certificate in (None, site.authority.client("stranger")):
            async with client(gateway, site, certificate) as http:
                assert await publish(http) == 401
                assert await publish(http, headers=token_of("ann", "write prices.>")) == 200


async def test_a_token_counts_alone(site: Site) -> None:
    async with (
        guarded(site) as gateway,
        client(gateway, site, site.authority.client("feed-1")) as http,
    ):
        assert await publish(http, headers=token_of("ann", "read prices.>")) == 403
        assert await publish(http, headers={"Authorization": "Bearer nonsense"}) == 401


async def test_a_certificate_of_another_authority_or_kind_ends_the_handshake(
    site: Site, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "Other authority").client("feed-1")
    over = site.authority.client("feed-1", life=-datetime.timedelta(hours=1))
    for certificate in (other, over, site.authority.server("feed-1")):
        async with guarded(site) as gateway, client(gateway, site, certificate) as http:
            with pytest.raises((httpx2.TransportError, ssl.SSLError)):
                await publish(http)
            assert gateway.server.figures.connections <= 1  # the operator's


async def test_where_a_certificate_is_required_there_is_nothing_without(site: Site) -> None:
    async with (
        guarded(site, tls_client_auth="required") as gateway,
        client(gateway, site) as bare,
        client(gateway, site, site.authority.client("feed-1")) as feed,
    ):
        assert await publish(feed) == 200
        with pytest.raises((httpx2.TransportError, ssl.SSLError)):
            await bare.get("/healthz")


async def test_a_certificate_sees_which_topics_are_at_fault(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [Fault(name, "unusable", "r") for name in ("prices.eu", "secret")]
    async with (
        guarded(site) as gateway,
        client(gateway, site, site.authority.client(dns="reader.example")) as reader,
        client(gateway, site) as bare,
    ):
        monkeypatch.setattr(Catalog, "faults", lambda _: faults)
        for http, names in ((reader, ["prices.eu"]), (bare, [])):
            state = (await http.get("/readyz")).json()
            assert [each["topic"] for each in state.get("topics", ())] == names


async def test_a_name_that_a_client_claims_in_a_header_is_not_believed(site: Site) -> None:
    async with guarded(site) as gateway, client(gateway, site) as http:
        assert await publish(http, headers=claimed("feed-1")) == 401


@pytest.mark.parametrize("how", ["removed", "revoked"])
async def test_a_stream_ends_when_the_policy_changes(site: Site, how: str) -> None:
    async with (
        guarded(site) as gateway,
        client(gateway, site, site.authority.client(dns="reader.example")) as http,
        http.stream("GET", "/v1/topics/prices.eu/subscribe") as answer,
    ):
        stream = Stream(answer)
        assert (await stream.next()).name == "hello"
        text = POLICY.replace('"reader.example"', '"another"')
        if how == "revoked":
            text = 'revoked = ["certificate:reader.example"]\n' + POLICY
        site.policy.write_text(text)
        last = (await stream.rest())[-1]
        assert (last.name, json.loads(last.text)["reason"]) == ("goodbye", "REVOKED")
        assert (await http.get("/v1/topics/prices.eu/sow")).status_code == 401


async def test_a_connection_outlives_its_certificate_and_can_do_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        guarded(site) as gateway,
        client(gateway, site, site.authority.client("feed-1")) as http,
    ):
        assert await publish(http) == 200
        access = gateway.server.config.app.state.access  # type: ignore[union-attr]  # it is our application
        monkeypatch.setattr(access, "now_ms", lambda: 4_000_000_000_000)
        assert await publish(http) == 401


@pytest.mark.redis
@pytest.mark.nightly  # tests/integration/test_many_gateways.py does so with tokens
async def test_a_session_at_another_gateway_is_reached_by_the_certificate(
    site: Site, redis_bus: BusServer
) -> None:
    shared = {"redis": redis_bus.url, "redis_prefix": "certificates"}
    reader = site.authority.client(dns="reader.example")
    async with (
        guarded(site, **shared) as one,
        guarded(site, **shared) as other,
        client(one, site, reader) as here,
        client(other, site, reader) as there,
        client(other, site, site.authority.client("operator")) as stranger,
    ):
        session = (await here.post("/v1/sessions")).json()["session"]
        path = f"/v1/sessions/{session}"
        assert (await there.get(path)).status_code == 200
        added = {"topic": "prices.eu"}
        assert (await there.post(f"{path}/subscriptions", json=added)).status_code == 201
        assert (await stranger.delete(path)).status_code == 404
        # Gateways tell each other of certificates by a header: it is theirs alone to write.
        pretended = claimed("reader.example")
        assert (await stranger.delete(path, headers=pretended)).status_code == 404
        assert (await there.delete(path)).status_code == 204


@pytest.mark.system
async def test_the_command_line_shows_a_certificate(site: Site) -> None:
    feed = site.authority.client("feed-1")
    async with guarded(site) as gateway:

        async def run(certificate: str) -> Ended:
            return await asyncio.to_thread(
                call, "publish", "prices.eu", "-", stdin=b'{"k": 7}\n',
                TIDEGATE_GATEWAY=gateway.address, TIDEGATE_CLIENT_CERT=certificate,
                SSL_CERT_FILE=str(site.authority.cert),
            )  # fmt: skip

        assert (await run(str(feed.both))).code == 0
        for wrong in (str(feed.cert), "/nowhere"):
            done = await run(wrong)
            assert done.code == 78
            assert done.err.startswith("tidegate: TIDEGATE_CLIENT_CERT: ")
            assert done.err.count("\n") == 1
        await eventually(lambda: gateway.server.figures.connections <= 1, "they have left")


@pytest.mark.parametrize(
    ("verified", "name"),
    [
        ({"subject": ((("commonName", "a"),),), "subjectAltName": (("DNS", "b"),)}, "b"),
        ({"subject": ((("commonName", "a"),),), "subjectAltName": (("IP Address", "::1"),)}, "a"),
        ({"subjectAltName": (("URI", "spiffe://x/feed"), ("DNS", "b"))}, "spiffe://x/feed"),
        ({"subject": ((("organizationName", "a"),),)}, None),
        ({"subject": ((("commonName", "a\nb"),),)}, None),
        ({"subject": ((("commonName", "x" * 256),),)}, None),
    ],
)
def test_the_name_of_a_certificate(verified: dict[str, Any], name: str | None) -> None:
    found = ClientCertificate.of({"notAfter": "Jan  1 00:00:00 2030 GMT", **verified})
    assert (found and found.name) == name
    if found is not None:
        assert found.expires_ms == 1_893_456_000_000
        assert ClientCertificate.of_field(found.field()[1]) == found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("certificates = 1", "certificates: a list"),
        ('[[certificates.a]]\ntopics = "x"\ncan = ["fly"]', "certificates.a: grant 1"),
    ],
)
def test_a_table_that_is_none_is_refused(text: str, fault: str) -> None:
    with pytest.raises(PolicyInvalid, match=fault):
        Policy.parse(text.encode())


def test_an_authority_needs_a_certificate_and_a_policy() -> None:
    with pytest.raises(
        ValueError, match="tls_client_ca has no effect without tls_cert and auth_policy"
    ):
        Settings(tls_client_ca="ca.pem")
