"""An `Idempotency-Key` belongs to its subject: equal keys of other subjects are independent."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.app.access.test_authorization import ROOT
from tests.support.buses import BusServer
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Remote, running_gateway
from tests.support.rules import rule
from tests.support.tokens import public_jwk, token_of, write_keys

PX = "/v1/topics/px"
ANN, EVE = token_of("ann", "write px"), token_of("eve", "write px")
AGAIN = token_of("ann", "write px", jti="renewed")
PREFIXES = (f"retries-{number}" for number in itertools.count())


async def publish(remote: Remote, headers: dict[str, str], value: object) -> Any:
    """What the answer to a publish under the one key says: its code, or whether it is known."""
    headers = {**headers, "Idempotency-Key": "k-1"}
    answer = await remote.http.post(f"{PX}/messages", json=value, headers=headers)
    found = answer.json()
    return found["duplicate"] if answer.is_success else found["code"]


def keys_of(folder: Path) -> str:
    return write_keys(folder / "keys.json", public_jwk("HS256"))


@rule("publish-1")
@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_two_subjects_may_have_one_key(tmp_path: Path, kind: str) -> None:
    place = ":memory:" if kind == "memory" else str(tmp_path / "data")
    shared = {"auth_keys": keys_of(tmp_path), "data": place}
    async with running_gateway(**shared) as running:
        await running.http.put(PX, json={"key": ["/k"]}, headers=ROOT)
        assert await publish(running, ANN, {"k": 1}) is False
        # Neither a conflict, which would tell that the key is in use, nor Ann's answer.
        assert await publish(running, EVE, {"k": 2}) is False
        assert await publish(running, EVE, {"k": 1}) == "idempotency-conflict"
        # A token that is renewed is of the same subject.
        assert await publish(running, AGAIN, {"k": 1}) is True
        assert len((await running.http.get(f"{PX}/sow", headers=ROOT)).text.splitlines()) == 2
    if kind == "file":
        async with running_gateway(**shared) as running:
            assert await publish(running, ANN, {"k": 1}) is True
            assert await publish(running, EVE, {"k": 2}) is True


async def send(
    remote: Remote, headers: dict[str, str], value: object, path: str = "messages", **more: str
) -> Any:
    answer = await remote.http.post(f"{PX}/{path}", json=value, headers={**headers, **more})
    found = answer.json()
    return found.get("duplicate", "staged") if answer.is_success else found["code"]


async def check_names(a: Remote, b: Remote) -> None:
    """Producers and stages of two subjects, at one gateway or two."""
    numbered = {"Tidegate-Producer": "etl", "Tidegate-Sequence": "7"}
    assert await send(b, EVE, {"k": 1}, **numbered) is False
    # Nobody voids the numbers of another, or fences its runs.
    assert await send(a, ANN, {"k": 2}, **{**numbered, "Tidegate-Sequence": "1"}) is False
    assert await send(b, ANN, {"k": 2}, **{**numbered, "Tidegate-Sequence": "1"}) is True
    commit = {"producer": "etl", "run": 9, "sequence": 8, "stages": ["part"]}
    assert await send(a, ANN, {"k": "ann's"}, **{"Tidegate-Stage": "part"}) == "staged"
    assert await send(b, EVE, commit, "commits") == "precondition-failed"
    assert await send(b, EVE, {"k": "eve's"}, **{"Tidegate-Stage": "part"}) == "staged"
    assert await send(b, EVE, commit, "commits") is False
    assert await send(b, ANN, commit | {"run": 1, "sequence": 2}, "commits") is False
    # Of the gateway that answered: another may still have to read of the commits.
    kept = (await b.http.get(f"{PX}/sow", headers=ROOT)).text
    assert ["eve's" in kept, "ann's" in kept] == [True, True]


@rule("publish-3")
@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_producers_and_stages_are_their_subject_s(tmp_path: Path, kind: str) -> None:
    place = ":memory:" if kind == "memory" else str(tmp_path / "data")
    async with running_gateway(auth_keys=keys_of(tmp_path), data=place) as running:
        await running.http.put(PX, json={"key": ["/k"]}, headers=ROOT)
        await check_names(running, running)


async def test_a_stage_is_answered_by_its_own_name(tmp_path: Path) -> None:
    async with running_gateway(auth_keys=keys_of(tmp_path)) as running:
        await running.http.put(PX, json={"key": ["/k"]}, headers=ROOT)
        headers = {**ANN, "Tidegate-Stage": "part"}
        answer = await running.http.post(f"{PX}/messages", json={"k": 1}, headers=headers)
        assert answer.json() == {"topic": "px", "stage": "part", "messages": 1}


async def test_a_store_of_before_starts(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    async with running_gateway(data=data) as running:
        await running.topic()
        assert await publish(running, {}, {"k": 1}) is False
        assert await publish(running, {}, {"k": 1}) is True
    # Its keys are nobody's now: as keys of another subject they neither answer nor refuse.
    async with running_gateway(data=data, auth_keys=keys_of(tmp_path)) as running:
        assert await publish(running, ANN, {"k": 2}) is False
        assert await publish(running, ANN, {"k": 2}) is True


@pytest.mark.redis
@rule("publish-1")
async def test_a_key_is_its_subject_s_at_every_gateway(
    redis_bus: BusServer, tmp_path: Path
) -> None:
    shared = {
        "auth_keys": keys_of(tmp_path),
        "redis": redis_bus.url,
        "redis_prefix": next(PREFIXES),
    }
    async with running_gateway(**shared) as a, running_gateway(**shared) as b:
        assert (await a.http.put(PX, json={"key": ["/k"]}, headers=ROOT)).status_code == 201
        async with asyncio.timeout(HANGS_S):
            while (await b.http.get(PX, headers=ROOT)).status_code != 200:
                await asyncio.sleep(0.05)
        assert await publish(a, ANN, {"k": 1}) is False
        assert await publish(b, EVE, {"k": 2}) is False
        assert await publish(b, ANN, {"k": 1}) is True
        assert await publish(a, EVE, {"k": 2}) is True
        assert await publish(b, ANN, {"k": 2}) == "idempotency-conflict"
        await check_names(a, b)
    async with running_gateway(**shared) as late:
        assert await publish(late, ANN, {"k": 1}) is True
