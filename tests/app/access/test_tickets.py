"""A ticket is good at every gateway of its issuer, for one stream wherever that is opened."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.access.test_authorization import ROOT
from tests.support.buses import BusServer
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, Stream, eventually, running_gateway
from tests.support.rules import rule
from tests.support.subject_streams import AT, ends, stream_of
from tests.support.tokens import grant, public_jwk, token_of, write_keys
from tidegate.app.access.grants import Grants, Subject, parse_grants
from tidegate.app.access.tickets import packed, unpacked

ANN = token_of("ann", grant("read prices.>", filter="/desk = 'a'"), groups=["traders"], jti="t1")
PREFIXES = (f"tickets-{number}" for number in itertools.count())
POLICY = 'claim = "groups"\n[[grants.traders]]\ntopics = "prices.>"\ncan = ["read"]\n'


def peers_of(running: Running) -> Any:
    app: Any = running.server.config.app
    return app.state.gateway.peers


@contextlib.asynccontextmanager
async def two(bus: BusServer, folder: Path, policy: str = "") -> AsyncIterator[list[Running]]:
    shared: dict[str, Any] = {
        "auth_keys": write_keys(folder / "keys.json", public_jwk("HS256")),
        "redis": bus.url,
        "redis_prefix": next(PREFIXES),
    }
    own, other = folder / "policy.toml", folder / "other.toml"
    own.write_text(policy)
    other.write_text(POLICY.replace("prices.>", "others"))
    async with (
        running_gateway(**shared, auth_policy=str(other)) as a,
        running_gateway(**shared, auth_policy=str(own)) as b,
    ):
        made = await a.http.put("/v1/topics/prices.eu", json={"key": ["/k"]}, headers=ROOT)
        assert made.status_code == 201
        for desk in "ab":
            message = {"k": desk, "desk": desk}
            await a.http.post("/v1/topics/prices.eu/messages", json=message, headers=ROOT)
        await eventually(lambda: len(peers_of(a).membership.others) == 1, "they know each other")
        await eventually(lambda: len(peers_of(b).membership.others) == 1, "they know each other")
        async with asyncio.timeout(HANGS_S):
            while (await records_at(b)) != 2:
                await asyncio.sleep(0.05)
        yield [a, b]


async def records_at(running: Running) -> int:
    answer = await running.http.get("/v1/topics/prices.eu", headers=ROOT)
    return int(answer.json()["keys"]) if answer.status_code == 200 else 0


async def ticket_of(running: Running) -> str:
    answer = await running.http.post("/v1/tickets", headers=ANN)
    assert answer.status_code == 201
    return str(answer.json()["ticket"])


async def shown(running: Running, at: str) -> list[Any]:
    async with running.http.stream("GET", at) as answer:
        if answer.status_code != 200:
            return [answer.status_code]
        events = await Stream(answer).until("group_end")
    return sorted(json.loads(it.text)["k"] for it in events if it.name == "message")


@pytest.mark.redis
@rule("access-8")
async def test_a_ticket_opens_one_stream_at_any_gateway(
    redis_bus: BusServer, tmp_path: Path
) -> None:
    async with two(redis_bus, tmp_path) as (a, b):
        at = f"{AT}?ticket={await ticket_of(a)}"
        assert await shown(b, at) == ["a"]
        # The very same stream comes again, here or there; no other one does.
        assert [await shown(it, at) for it in (a, b)] == [["a"], ["a"]]
        assert [await shown(it, f"{at}&filter=/k='b'") for it in (a, b)] == [[401], [401]]
        name, _, secret = (await ticket_of(a)).partition(".")
        for made_up in (f"{name}.x", f"nobody.{secret}", f".{secret}", secret, f"{name}."):
            assert [await shown(it, f"{AT}?ticket={made_up}") for it in (a, b)] == [[401], [401]]
        async with stream_of(b, {}, f"{AT}?ticket={await ticket_of(a)}") as stream:
            record = {"id": "t1"}
            revoking = token_of("root", "write tidegate.>")
            path = "/v1/topics/tidegate.revoked/messages"
            assert (await a.http.post(path, json=record, headers=revoking)).status_code == 200
            await ends(stream)
        assert await shown(b, at) == [401]


@pytest.mark.redis
async def test_a_ticket_has_the_grants_of_the_gateway_that_takes_it(
    redis_bus: BusServer, tmp_path: Path
) -> None:
    async with two(redis_bus, tmp_path, POLICY) as (a, b):
        tickets = [await ticket_of(it) for it in (a, b)]
        assert await shown(b, f"{AT}?ticket={tickets[0]}") == ["a", "b"]
        assert await shown(a, f"{AT}?ticket={tickets[1]}") == ["a"]


@pytest.mark.redis
async def test_few_are_asked_about_at_once(
    redis_bus: BusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(redis_bus, tmp_path) as (a, b):
        asked, most = [0], [0]
        request = peers_of(b)._request

        async def noted(*given: Any) -> bytes:
            asked[0] += 1
            most[0] = max(most[0], asked[0])
            try:
                return bytes(await request(*given))
            finally:
                asked[0] -= 1

        monkeypatch.setattr(peers_of(b), "_request", noted)
        gateway = peers_of(a).gateway
        made_up = [shown(b, f"{AT}?ticket={gateway}.{number}") for number in range(60)]
        assert await asyncio.gather(*made_up) == [[401]] * 60
        assert 1 <= most[0] <= 16


def test_a_subject_is_told_whole() -> None:
    own = parse_grants([grant("read px", filter="/k = 1", select="[-/,+/k]"), grant("write >")])
    subject = Subject(
        "ann", 7, Grants(), own=own, values=("x",), key_id="k", token_id="j", token="t",
        certificate="c",
    )  # fmt: skip
    assert unpacked(packed(subject)) == subject
