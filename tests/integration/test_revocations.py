"""Revocations by the topic `tidegate.revoked`: who may write it, what ends, what clients get."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.app.access.test_authorization import guarded
from tests.support.buses import BusServer
from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tests.support.subject_streams import ends, soon, stream_of
from tests.support.tokens import public_jwk, token_of, write_keys

TOPIC = "/v1/topics/tidegate.revoked"
SECURITY = token_of("sec", "read,write tidegate.revoked")
EVERYBODY = token_of("root", "read,write,admin,observe >")
PREFIXES = (f"revoked-{number}" for number in itertools.count())


async def revoke(running: Running, **record: Any) -> int:
    answer = await running.http.post(f"{TOPIC}/messages", json=record, headers=SECURITY)
    return answer.status_code


async def take_back(running: Running, name: str) -> dict[str, Any]:
    path = f'{TOPIC}/sow?key=["{name}"]'
    answer = await running.http.delete(path, headers=SECURITY)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def status_of(running: Running, headers: dict[str, str]) -> int:
    return (await running.http.get("/v1/topics", headers=headers)).status_code


async def until(running: Running, headers: dict[str, str], status: int) -> None:
    """Wait for the status that a subject gets."""
    async with soon():
        while await status_of(running, headers) != status:
            await asyncio.sleep(0.05)


@rule("access-9")
@pytest.mark.parametrize("named", ["ann", "t1"], ids=["sub", "jti"])
async def test_a_message_revokes_and_its_removal_takes_it_back(tmp_path: Path, named: str) -> None:
    ann, bob = token_of("ann", "read >", jti="t1"), token_of("bob", "read >", jti="t2")
    async with (
        guarded(tmp_path) as running, stream_of(running, ann) as stream,
        stream_of(running, bob) as other,
    ):  # fmt: skip
        assert await revoke(running, id=named, reason="left the desk") == 200
        await ends(stream)
        assert await status_of(running, ann) == 401
        assert await status_of(running, bob) == 200
        shown = await running.http.get(f"{TOPIC}/sow", headers=SECURITY)
        assert shown.json() == {"id": named, "reason": "left the desk"}
        assert await take_back(running, named) == {"deleted": 1}
        await until(running, ann, 200)
        await running.http.post("/v1/topics/prices.eu/messages", json={"k": 1}, headers=EVERYBODY)
        # It was never interrupted, so that the next message is the next event.
        assert await other.until("message")


async def test_only_a_grant_that_names_the_topic_revokes(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        for headers in (EVERYBODY, token_of("max", "read,admin tidegate.revoked")):
            answer = await running.http.post(f"{TOPIC}/messages", json={"id": "x"}, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
            answer = await running.http.delete(f'{TOPIC}/sow?key=["x"]', headers=headers)
            assert answer.status_code == 403
        for record in ({"id": ""}, {"id": 7}, {}, {"id": "x", "more": 1}, {"id": "x" * 256}):
            assert await revoke(running, **record) in {400, 422}
        root = token_of("root", "admin,write tidegate.>")
        for method in ("PUT", "PATCH", "DELETE"):
            answer = await running.http.request(method, TOPIC, json={}, headers=root)
            assert answer.json()["code"] == "topic-read-only"
        answer = await running.http.post(
            "/v1/topics/tidegate.sessions/messages", json={}, headers=root
        )
        assert answer.json()["code"] == "topic-read-only"


async def test_without_authentication_nobody_can_be_revoked() -> None:
    async with running_gateway() as running:
        for method, path in (("POST", "/messages"), ("DELETE", '/sow?key=["x"]')):
            answer = await running.http.request(method, TOPIC + path, json={"id": "x"})
            assert answer.json()["code"] == "topic-read-only"
        assert (await running.http.get(TOPIC)).status_code == 404


async def test_who_is_revoked_stays_so_after_a_restart(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    ann = token_of("ann", "read >")
    async with guarded(tmp_path, data=data) as running:
        assert await revoke(running, id="ann") == 200
        await until(running, ann, 401)
    keys = str(tmp_path / "keys.json")
    async with running_gateway(auth_keys=keys, data=data) as running:
        assert await status_of(running, ann) == 401


@pytest.mark.redis
@rule("access-9")
async def test_every_gateway_on_the_bus_hears_of_it(redis_bus: BusServer, tmp_path: Path) -> None:
    shared = {
        "auth_keys": write_keys(tmp_path / "keys.json", public_jwk("HS256")),
        "redis": redis_bus.url,
        "redis_prefix": next(PREFIXES),
    }
    ann = token_of("ann", "read >", exp=4_000_000_000)
    async with running_gateway(**shared) as a, running_gateway(**shared) as b:
        put = await a.http.put("/v1/topics/prices.eu", json={"key": ["/k"]}, headers=EVERYBODY)
        assert put.status_code == 201
        await until(b, ann, 200)
        async with stream_of(a, ann) as here, stream_of(b, ann) as there:
            assert await revoke(a, id="ann") == 200
            await ends(there)
            await ends(here)
        assert [await status_of(each, ann) for each in (a, b)] == [401, 401]
        async with running_gateway(**shared) as late:
            assert await status_of(late, ann) == 401
        assert await take_back(b, "ann") == {"deleted": 1}
        await until(a, ann, 200)
