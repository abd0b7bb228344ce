"""Two gateways of one bus, with authentication: what is tried at one with what the other gave."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.buses import BusServer
from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tests.support.sessions import opened
from tests.support.subject_streams import ends, soon, stream_of
from tests.support.tokens import bearer, claims, grant, public_jwk, signed, token_of, write_keys
from tidegate.app.access.certificate import CERTIFICATE_FIELD

pytestmark = pytest.mark.redis

ROOT = token_of("root", "read,write,admin,observe >")
AT = "/v1/topics/px/subscribe"
PREFIXES = (f"attacked-{number}" for number in itertools.count())
POLICY = """
claim = "groups"
revoked = []
[[grants.traders]]
topics = "px"
can = ["read", "write"]
[[certificates."feed-1.example"]]
topics = ">"
can = ["read", "write", "admin", "observe"]
"""
ANN = token_of("ann", groups=["traders"], jti="t1")


class Pair:
    """Two gateways of one bus, one set of keys and one policy."""

    def __init__(self, one: Running, two: Running, folder: Path) -> None:
        self.one, self.two = one, two
        self.keys, self.policy = folder / "keys.json", folder / "policy.toml"

    @property
    def both(self) -> tuple[Running, Running]:
        return self.one, self.two

    async def code(
        self, at: Running, headers: Any, method: str, path: str, body: Any = None
    ) -> str:
        answer = await at.http.request(method, path, headers=headers, json=body)
        return str(answer.status_code if answer.is_success else answer.json()["code"])


@pytest.fixture
async def pair(redis_bus: BusServer, tmp_path: Path) -> AsyncIterator[Pair]:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    shared = {
        "auth_keys": write_keys(tmp_path / "keys.json", public_jwk("HS256")),
        "auth_policy": str(policy),
        "redis": redis_bus.url,
        "redis_prefix": next(PREFIXES),
    }
    async with running_gateway(**shared) as one, running_gateway(**shared) as two:
        put = await one.http.put("/v1/topics/px", json={"key": ["/k"]}, headers=ROOT)
        assert put.status_code == 201
        async with soon():
            while (await two.http.get("/v1/topics/px", headers=ROOT)).status_code != 200:
                await asyncio.sleep(0.05)
        yield Pair(one, two, tmp_path)


@rule("access-9")
@pytest.mark.parametrize("change", ["policy", pytest.param("keys", marks=pytest.mark.nightly)])
async def test_what_ends_a_subject_ends_it_at_both(pair: Pair, change: str) -> None:
    new = signed(claims("ann", groups=["traders"]), kid="k2", number=2)
    async with contextlib.AsyncExitStack() as stack:
        body = {"subscriptions": [{"topic": "px"}]}
        made = await pair.one.http.post("/v1/sessions", headers=ANN, json=body)
        session = made.headers["location"]
        streams = [await stack.enter_async_context(stream_of(it, ANN, AT)) for it in pair.both]
        assert await pair.code(pair.two, ANN, "GET", session) == "200"
        if change == "policy":
            pair.policy.write_text(POLICY.replace('"px"', '"other"'))
        else:
            write_keys(pair.keys, public_jwk("HS256", "k2", 2))
        for stream in streams:
            await ends(stream)
        refusal = "forbidden" if change == "policy" else "unauthenticated"
        for running in pair.both:
            assert await pair.code(running, ANN, "GET", AT) == refusal
            # Forwarded or not, a request about a session is checked where it arrives and there.
            more = {"topic": "px"}
            path = f"{session}/subscriptions"
            assert await pair.code(running, ANN, "POST", path, more) == refusal
        if change == "keys":
            async with stream_of(pair.two, bearer(new), AT):
                assert await pair.code(pair.one, bearer(new), "GET", session) == "200"


@rule("access-8")
async def test_a_ticket_is_good_once_at_both_together(pair: Pair) -> None:
    async def status(at: Running, ticket: str, query: str = "") -> int:
        async with at.http.stream("GET", f"{AT}?ticket={ticket}{query}") as answer:
            return answer.status_code

    issued = [(await pair.one.http.post("/v1/tickets", headers=ANN)).json() for _ in range(2)]
    used, unused = (it["ticket"] for it in issued)
    async with stream_of(pair.one, {}, f"{AT}?ticket={used}"):
        assert await status(pair.two, used) == 200, "its address, elsewhere"
        assert await status(pair.two, used, "&filter=/k=1") == 401
    assert await status(pair.two, unused, "&filter=/k=1") == 200, (
        "at a gateway that did not issue it"
    )
    assert [await status(it, unused) for it in (pair.one, pair.two)] == [401, 401]
    # Many at once, at both: one address is opened, and no second one.
    ticket = (await pair.one.http.post("/v1/tickets", headers=ANN)).json()["ticket"]
    tries = [(at, f"&filter=/k={number}") for number in range(4) for at in (pair.one, pair.two)]
    tries = [(at, f"{query}{at is pair.one:d}") for at, query in tries]
    found = await asyncio.gather(*(status(at, ticket, query) for at, query in tries))
    assert sorted(found) == [200] + [401] * 7


@rule("access-6")
async def test_a_header_field_is_no_certificate_on_the_way_to_the_owner(pair: Pair) -> None:
    """Gateways name a client's certificate to one another; a client cannot."""
    body = {"subscriptions": [{"topic": "px"}]}
    session = (await pair.one.http.post("/v1/sessions", headers=ROOT, json=body)).headers[
        "location"
    ]
    named = {CERTIFICATE_FIELD.decode(): f"{2**62} feed-1.example"}
    for method, path in (("GET", session), ("PATCH", session), ("DELETE", session)):
        change = {"conflated": False} if method == "PATCH" else None
        for running in pair.both:
            refused = await pair.code(running, named, method, path, change)
            assert refused == "unauthenticated"
            refused = await pair.code(running, {**ANN, **named}, method, path, change)
            assert refused == "session-unknown"
    assert await pair.code(pair.two, ROOT, "GET", session) == "200"


@rule("access-9")
async def test_a_login_that_ended_elsewhere_reaches_no_session(pair: Pair) -> None:
    """Its session stays its subject's: another token of the same person still has it."""
    token = signed(claims("ann", grant("read,write px"), jti="t2"))
    other = token_of("ann", "read,write px", jti="t3")
    cookie = {"Cookie": f"__Host-tidegate={token}"}
    pair.one.http.headers.update(bearer(token))
    session = await opened(pair.one, subscriptions=[{"topic": "px"}])
    del pair.one.http.headers["authorization"]
    events = f"/v1/sessions/{session}/events"
    async with stream_of(pair.one, bearer(token), events) as stream:
        answer = await pair.two.http.delete("/v1/login", headers=cookie)
        assert answer.status_code == 204
        await ends(stream)
    for running in pair.both:
        for headers in (bearer(token), cookie):
            assert await pair.code(running, headers, "GET", events) == "unauthenticated"
    async with stream_of(pair.two, other, events) as stream:
        published = await pair.one.http.post("/v1/topics/px/messages", json={"k": 1}, headers=other)
        assert published.status_code == 200
        assert await stream.until("message")
