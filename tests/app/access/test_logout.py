"""A logout voids the token of its cookie: copies of it open nothing, at no gateway."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.app.access.test_authorization import ROOT, guarded
from tests.support.buses import BusServer
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tests.support.subject_streams import AT, SOON_S, ends, stream_of
from tests.support.tokens import bearer, claims, grant, public_jwk, signed, write_keys
from tidegate.app.access.tokens import SKEW_S
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Unavailable
from tidegate.app.topics import system_topics

REVOKED = "/v1/topics/tidegate.revoked/sow"
PREFIXES = (f"logout-{number}" for number in itertools.count())
# P-256: its signatures have two spellings, of which anybody can make one of the other.
ES256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def token_for(sub: str = "ann", algorithm: str = "HS256", **more: Any) -> str:
    """A token that may read; each call makes another one."""
    return signed(claims(sub, grant("read >"), **more), algorithm)


def cookie(token: str) -> dict[str, str]:
    return {"Cookie": f"__Host-tidegate={token}"}


async def log_out(running: Running, token: str) -> None:
    answer = await running.http.delete("/v1/login", headers=cookie(token))
    assert answer.status_code == 204, answer.text
    assert "Max-Age=0" in answer.headers["set-cookie"]


async def status(running: Running, headers: dict[str, str]) -> int:
    return (await running.http.get("/v1/topics", headers=headers)).status_code


@rule("access-9")
async def test_a_copy_of_the_cookie_opens_nothing_after_the_logout(tmp_path: Path) -> None:
    mine, other = token_for(), token_for(jti="another login")
    async with guarded(tmp_path) as running:
        issued = await running.http.post("/v1/tickets", headers=bearer(mine))
        at = f"{AT}?ticket={issued.json()['ticket']}"
        async with (
            stream_of(running, cookie(mine)) as by_cookie,
            stream_of(running, bearer(mine)) as by_header,
            stream_of(running, {}, at) as by_ticket,
            stream_of(running, cookie(other)) as of_other,
        ):
            await log_out(running, mine)
            # At once, at this gateway: the very next request.
            assert await status(running, cookie(mine)) == 401
            assert await status(running, bearer(mine)) == 401
            for stream in (by_cookie, by_header, by_ticket):
                await ends(stream)
            assert (await running.http.get(at)).status_code == 401
            again = await running.http.post("/v1/login", json={"token": mine})
            assert (again.status_code, "set-cookie" in again.headers) == (401, False)
            # Another login of the same person goes on, and so does its stream.
            assert await status(running, cookie(other)) == 200
            await running.http.post("/v1/topics/prices.eu/messages", json={"k": 1}, headers=ROOT)
            assert "goodbye" not in {it.name for it in await of_other.until("message")}


@rule("access-9")
async def test_another_spelling_of_the_signature_is_the_same_token(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("ES256"))
    token = token_for(algorithm="ES256")
    head, _, signature = token.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    r, s = raw[:32], ES256_ORDER - int.from_bytes(raw[32:])
    root = base64.urlsafe_b64encode(r + s.to_bytes(32)).rstrip(b"=").decode()
    # The last character of 64 bytes in base64 has four bits that mean nothing.
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    bits = signature[:-1] + letters[letters.index(signature[-1]) ^ 1]
    spellings = [f"{head}.{root}", f"{head}.{bits}"]
    async with running_gateway(auth_keys=keys) as running:
        taken = [it for it in spellings if await status(running, bearer(it)) == 200]
        assert taken, "no spelling but the issuer's is taken, and this test needs none"
        await log_out(running, token)
        assert [await status(running, bearer(it)) for it in (token, *spellings)] == [401] * 3


async def test_a_login_ends_the_one_before_it_in_the_same_browser(tmp_path: Path) -> None:
    before, token = token_for(), token_for(jti="next")
    async with guarded(tmp_path) as running:
        # The second time with the very token that the cookie has: it goes on.
        for kept in (before, token):
            answer = await running.http.post(
                "/v1/login", json={"token": token}, headers=cookie(kept)
            )
            running.http.cookies.clear()
            assert answer.status_code == 200
            assert [await status(running, bearer(it)) for it in (before, token)] == [401, 200]


async def test_a_cookie_that_opens_nothing_leaves_no_trace(tmp_path: Path) -> None:
    over = token_for(exp=int(time.time()) - 99)
    async with guarded(tmp_path) as running:
        for token in ("", "x", "a.b.c", over, signed(claims("eve"), number=2)):
            await log_out(running, token)
        await log_out(running, token := token_for())
        await log_out(running, token)
        root = bearer(signed(claims("sec", grant("read tidegate.revoked"))))
        shown = (await running.http.get(REVOKED, headers=root)).text.splitlines()
        assert len(shown) == 1, "one of them was a login, and is named once"
        record = json.loads(shown[0])
        assert record["id"].startswith("token:")
        assert record["reason"] == "logout of ann"
        assert token.rpartition(".")[2] not in shown[0]
        assert await status(running, ROOT) == 200


async def test_a_logout_that_cannot_be_kept_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def out(*_: object) -> None:
        raise Unavailable

    token = token_for()
    async with guarded(tmp_path) as running:
        with monkeypatch.context() as broken:
            broken.setattr(running.gateway.store, "append", out)
            answer = await running.http.delete("/v1/login", headers=cookie(token))
            assert (answer.status_code, answer.json()["code"]) == (503, "bus-unavailable")
            assert "set-cookie" not in answer.headers, "whoever is logged out is so everywhere"
        await log_out(running, token)
        assert await status(running, cookie(token)) == 401


async def test_a_token_that_cannot_be_verified_yet_is_not_forgotten() -> None:
    """It may hold when the keys are there, and its copies with it."""
    async with running_gateway(auth_keys="http://127.0.0.1:1/jwks") as running:
        answer = await running.http.delete("/v1/login", headers=cookie(token_for()))
        assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
        assert "set-cookie" not in answer.headers


async def test_a_record_goes_when_its_token_is_over(tmp_path: Path) -> None:
    security = bearer(signed(claims("sec", grant("read,write tidegate.revoked"))))
    short = token_for(exp=int(time.time()) - SKEW_S + 3)
    async with guarded(tmp_path) as running:
        kept = {"id": "mallory"}, {"id": "trudy", "expires_ms": 2**62}
        for record in kept:
            path = "/v1/topics/tidegate.revoked/messages"
            assert (await running.http.post(path, json=record, headers=security)).is_success
        await log_out(running, short)
        assert len((await running.http.get(REVOKED, headers=security)).text.splitlines()) == 3
        async with asyncio.timeout(3 * SOON_S):
            while len((await running.http.get(REVOKED, headers=security)).text.splitlines()) > 2:
                await asyncio.sleep(0.1)
        shown = (await running.http.get(REVOKED, headers=security)).text.splitlines()
        assert [json.loads(line) for line in shown] == list(kept)
        assert await status(running, cookie(short)) == 401


async def test_a_logout_outlives_a_restart(tmp_path: Path) -> None:
    data, token = str(tmp_path / "data"), token_for()
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    async with running_gateway(auth_keys=keys, data=data) as running:
        await log_out(running, token)
    async with running_gateway(auth_keys=keys, data=data) as running:
        assert await status(running, bearer(token)) == 401
        # What is known of it was restored, too: it goes in its time.
        assert await status(running, bearer(token_for("bob"))) == 200


async def test_a_topic_of_before_takes_logouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, token = str(tmp_path / "data"), token_for()
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    security = bearer(signed(claims("sec", grant("read,write tidegate.revoked"))))
    schema = {"properties": {"id": {"type": "string"}}, "additionalProperties": False}
    document = TopicDefinition.parse(json.dumps({"key": ["/id"], "schema": schema}).encode())
    with monkeypatch.context() as before:
        before.setattr(system_topics, "_REVOKED_DOCUMENT", document)
        async with running_gateway(auth_keys=keys, data=data) as running:
            path = "/v1/topics/tidegate.revoked/messages"
            assert (await running.http.post(path, json={"id": "bob"}, headers=security)).is_success
    async with running_gateway(auth_keys=keys, data=data) as running:
        await log_out(running, token)
        assert await status(running, bearer(token)) == 401
        assert await status(running, bearer(token_for("bob"))) == 401


@pytest.mark.redis
@rule("access-9")
async def test_a_logout_at_one_gateway_counts_at_every_other(
    redis_bus: BusServer, tmp_path: Path
) -> None:
    shared = {
        "auth_keys": write_keys(tmp_path / "keys.json", public_jwk("HS256")),
        "redis": redis_bus.url,
        "redis_prefix": next(PREFIXES),
    }
    mine, other = token_for(), token_for(jti="another login")
    short = token_for("bob", exp=int(time.time()) - SKEW_S + 6)
    async with running_gateway(**shared) as a, running_gateway(**shared) as b:
        put = await a.http.put("/v1/topics/prices.eu", json={"key": ["/k"]}, headers=ROOT)
        assert put.status_code == 201
        async with asyncio.timeout(HANGS_S):
            while (await b.http.get("/v1/topics/prices.eu", headers=ROOT)).status_code != 200:
                await asyncio.sleep(0.05)
        async with (
            stream_of(a, cookie(mine)) as here,
            stream_of(b, cookie(mine)) as there,
            stream_of(b, cookie(other)) as goes_on,
        ):
            await log_out(a, mine)
            await log_out(b, short)
            await ends(there)
            await ends(here)
            await a.http.post("/v1/topics/prices.eu/messages", json={"k": 1}, headers=ROOT)
            assert "goodbye" not in {it.name for it in await goes_on.until("message")}
        assert [await status(each, cookie(mine)) for each in (a, b)] == [401, 401]
        async with running_gateway(**shared) as late:
            assert await status(late, cookie(mine)) == 401
            assert await status(late, cookie(other)) == 200
        # Only the leader removes what is over, and both see it gone.
        security = bearer(signed(claims("sec", grant("read tidegate.revoked"))))
        for each in (a, b):
            async with asyncio.timeout(HANGS_S):
                while len((await each.http.get(REVOKED, headers=security)).text.splitlines()) > 1:
                    await asyncio.sleep(0.2)
