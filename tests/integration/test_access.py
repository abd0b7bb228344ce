"""What becomes of running streams when tokens end, and when keys or policy change."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.app.access.test_authorization import ROOT, guarded
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, Stream
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tests.support.subject_streams import AT, soon, stream_of
from tests.support.tokens import bearer, claims, grant, public_jwk, signed, token_of, write_keys
from tidegate.app.access.access import Access
from tidegate.app.access.tokens import SKEW_S

POLICY = """
claim = "groups"
revoked = []
[[grants.traders]]
topics = "prices.>"
can = ["read"]
"""


subscribed = partial(stream_of, after="group_end")


def over_soon(running: Running) -> int:
    """When a token ends that counts for a while more, by the gateway's clock, which jumps."""
    return running.gateway.driver.wall_ms() // 1_000 - SKEW_S + 20


async def goodbye(stream: Stream, deadline: asyncio.Timeout | None = None) -> dict[str, Any]:
    """The last event, which comes soon unless another deadline is given."""
    async with deadline or soon():
        events = await stream.until("goodbye")
    assert [event.name for event in events] == ["goodbye"]
    found: dict[str, Any] = json.loads(events[-1].text)
    return found


@rule("access-9")
async def test_a_token_that_is_over_ends_its_stream(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        short = token_of("ann", "read prices.>", exp=over_soon(running))
        async with subscribed(running, short) as stream, subscribed(running, ROOT) as other:
            said = await goodbye(stream, asyncio.timeout(HANGS_S))
            assert said == {"reason": "TOKEN_EXPIRED", "reconnect": True}
            answer = await running.http.get(AT, headers=short)
            assert answer.status_code == 401
            await running.http.post("/v1/topics/prices.eu/messages", json={"k": "x"}, headers=ROOT)
            assert await other.values(1) == [{"k": "x"}]


@rule("access-9")
@pytest.mark.parametrize(
    "policy",
    [
        POLICY.replace("revoked = []", 'revoked = ["ann"]'),
        POLICY.replace("revoked = []", 'revoked = ["t1"]'),
        POLICY.replace("prices.>", "prices.us"),
        POLICY.replace('can = ["read"]', 'can = ["read"]\nfilter = "/k = 1"'),
    ],
    ids=["sub", "jti", "topics", "filter"],
)
async def test_a_changed_policy_ends_the_streams_that_it_concerns(
    tmp_path: Path, policy: str
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    async with guarded(tmp_path, auth_policy=str(file)) as running:
        ann = token_of("ann", groups=["traders"], jti="t1")
        bob = token_of("bob", "read prices.>", jti="t2")
        async with subscribed(running, ann) as stream, subscribed(running, bob) as other:
            file.write_text("nonsense")  # changes nothing
            await asyncio.sleep(1.5)
            file.write_text(policy)
            said = await goodbye(stream)
            assert said == {"reason": "REVOKED", "reconnect": True}
            await running.http.post("/v1/topics/prices.eu/messages", json={"k": 1}, headers=ROOT)
            assert await other.values(1) == [{"k": 1}]


@rule("access-9")
async def test_a_key_that_is_gone_takes_its_streams_with_it(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    async with guarded(tmp_path) as running:
        write_keys(keys, public_jwk("HS256"), public_jwk("HS256", "k2", 2))
        new = bearer(signed(claims("bob", grant("read prices.>")), kid="k2", number=2))
        await asyncio.sleep(1.5)
        async with subscribed(running, ROOT) as stream, subscribed(running, new) as other:
            write_keys(keys, public_jwk("HS256", "k2", 2))
            assert (await goodbye(stream))["reason"] == "REVOKED"
            assert not other.answer.is_closed


@rule("access-9")
async def test_a_session_comes_back_with_what_is_granted_then(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        both = token_of("ann", "read prices.>", "read secret", exp=over_soon(running))
        opened = await running.http.post(
            "/v1/sessions",
            json={"subscriptions": [{"topic": "prices.eu"}, {"topic": "secret"}]},
            headers=both,
        )
        at = opened.json()["events"]
        async with running.http.stream("GET", at, headers=both) as answer:
            stream = Stream(answer)
            events = await stream.until("goodbye")
            assert json.loads(events[-1].text)["reason"] == "TOKEN_EXPIRED"
        less = token_of("ann", "read prices.>")
        headers = {**less, "Last-Event-ID": stream.last_id}
        async with running.http.stream("GET", at, headers=headers) as answer:
            stream = Stream(answer)
            hello = json.loads((await stream.next()).text)
            assert [it["topic"] for it in hello["subscriptions"]] == ["prices.eu"]
            ended = (await stream.until("unsubscribed"))[-1]
            assert json.loads(ended.text) == {
                "sub": "s2", "topic": "secret", "reason": "AUTHORIZATION",
            }  # fmt: skip
        other = token_of("eve", "read >")
        assert (await running.http.get(at, headers=other)).status_code == 404


@rule("access-9")
async def test_a_trace_ends_with_its_reader_s_token(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        everything = "read,observe >"
        short = token_of("obi", everything, exp=over_soon(running))
        body = {"subscriptions": [{"topic": "prices.eu"}]}
        opened = await running.http.post("/v1/sessions", json=body, headers=ROOT)
        at = opened.json()["events"]
        trace = f"{opened.headers['location']}/subscriptions/s1/trace"
        async with running.http.stream("GET", at, headers=ROOT) as answer:
            attached = Stream(answer)
            await attached.until("group_end")
            async with running.http.stream("GET", trace, headers=short) as traced:
                async with asyncio.timeout(HANGS_S):
                    events = await Stream(traced).rest()
                assert json.loads(events[-1].text)["reason"] == "TOKEN_EXPIRED"


async def test_a_signal_reads_the_policy_at_once(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    access = Access(edge_settings(auth_keys=keys))
    looks: list[bool] = []

    def look(access: Access, *, are_new: bool, are_revoked: bool) -> None:
        looks.append(are_new)

    async with access.watching(look):
        await asyncio.sleep(0.1)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, access.reload)
        try:
            write_keys(tmp_path / "keys.json", public_jwk("HS256", "k2", 2))
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.1)
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
    assert looks == [False, True]


async def test_a_look_that_fails_is_not_the_last(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    access, looks = Access(edge_settings(auth_keys=keys)), list[bool]()

    def look(access: Access, *, are_new: bool, are_revoked: bool) -> None:
        looks.append(are_new)
        raise httpx2.HTTPError("once")

    async with access.watching(look):
        await asyncio.sleep(0.1)
        access.reload()
        await asyncio.sleep(0.1)
    # What the first had to find is left to the next: it looks at all.
    assert looks == [False, True]
