"""A plain publish is answered at once for its subject too, for as long as its token holds."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tests.support.subject_streams import soon
from tests.support.tokens import bearer, claims, grant, public_jwk, signed, token_of, write_keys
from tidegate.app.access.access import csrf_proof
from tidegate.app.access.tokens import SKEW_S
from tidegate.app.http.hot_path import HotPath

PX = "/v1/topics/px/messages"
ROOT = token_of("root", "read,write,admin,observe >", "read,write tidegate.>")
REVOKED = "/v1/topics/tidegate.revoked/messages"


@pytest.fixture(name="at_once")
def at_once_fixture(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request that could be answered at once was."""
    found: list[bool] = []
    answer = HotPath.answer

    def count(hot_path: HotPath, *more: Any) -> bool:
        found.append(answer(hot_path, *more))
        return found[-1]

    monkeypatch.setattr(HotPath, "answer", count)
    return found


def keys_of(folder: Path, number: int = 1) -> str:
    return write_keys(folder / "keys.json", public_jwk("HS256", f"k{number}", number))


async def defined(running: Running) -> None:
    answer = await running.http.put("/v1/topics/px", json={"key": ["/k"]}, headers=ROOT)
    assert answer.status_code == 201, answer.text


async def publish(running: Running, headers: dict[str, str], path: str = PX) -> int:
    answer = await running.http.post(path, json={"k": 1}, headers=headers)
    return answer.status_code


def access_of(running: Running) -> Any:
    app: Any = running.server.config.app
    return app.state.access


@rule("access-4")
async def test_only_a_token_that_may_write_is_answered_at_once(
    tmp_path: Path, at_once: list[bool]
) -> None:
    ann, eve = token_of("ann", "write px"), token_of("eve", "read px")
    async with running_gateway(auth_keys=keys_of(tmp_path)) as running:
        await defined(running)
        assert [await publish(running, ann) for _ in range(3)] == [200] * 3
        assert at_once == [True, True, True]
        assert await publish(running, eve) == 403
        assert await publish(running, {}) == 401
        forged = {"Authorization": ann["Authorization"][:-4] + "AAAA"}
        assert await publish(running, forged) == 401
        assert await publish(running, ann, "/v1/topics/secret/messages") == 403
        assert at_once == [True] * 3 + [False] * 4


@rule("access-9")
@pytest.mark.parametrize("by", ["sub", "jti"])
async def test_nothing_is_published_at_once_after_a_revocation(tmp_path: Path, by: str) -> None:
    ann = token_of("ann", "write px", jti="t-1")
    async with running_gateway(auth_keys=keys_of(tmp_path)) as running:
        await defined(running)
        assert [await publish(running, ann) for _ in range(3)] == [200] * 3
        record = {"id": {"sub": "ann", "jti": "t-1"}[by]}
        assert (await running.http.post(REVOKED, json=record, headers=ROOT)).status_code == 200
        assert await publish(running, ann) == 401


@rule("access-9")
async def test_nothing_is_published_at_once_after_the_end_of_a_token(tmp_path: Path) -> None:
    ann = token_of("ann", "write px", exp=int(time.time()) + 60)
    async with running_gateway(auth_keys=keys_of(tmp_path)) as running:
        await defined(running)
        assert [await publish(running, ann) for _ in range(3)] == [200] * 3
        access = access_of(running)
        now_ms = access.now_ms
        access.now_ms = lambda: now_ms() + (61 + SKEW_S) * 1_000
        assert await publish(running, ann) == 401


@rule("access-9")
@pytest.mark.parametrize("change", ["keys", "policy", "grants"])
async def test_nothing_is_published_at_once_after_a_change(tmp_path: Path, change: str) -> None:
    policy = tmp_path / "policy.toml"
    mapped = 'claim = "groups"\n[grants]\ndesk = [{topics = "px", can = ["%s"]}]\n'
    policy.write_text(mapped % "write")
    ann = token_of("ann", groups=["desk"])
    async with running_gateway(auth_keys=keys_of(tmp_path), auth_policy=str(policy)) as running:
        await defined(running)
        assert [await publish(running, ann) for _ in range(3)] == [200] * 3
        match change:
            case "keys":
                keys_of(tmp_path, 2)
            case "policy":
                policy.write_text('revoked = ["ann"]\n' + mapped % "write")
            case "grants":
                policy.write_text(mapped % "read")
        async with soon():
            while await publish(running, ann) == 200:
                await asyncio.sleep(0.05)
        assert await publish(running, ann) == (403 if change == "grants" else 401)


async def test_the_limits_of_a_subject_hold(tmp_path: Path) -> None:
    ann, bob = token_of("ann", "write px"), token_of("bob", "write px")
    limits = {"subject_publish_messages_max": 3}
    async with running_gateway(auth_keys=keys_of(tmp_path), **limits) as running:
        await defined(running)
        assert 429 in [await publish(running, ann) for _ in range(8)]
        assert await publish(running, bob) == 200


@rule("access-7")
async def test_a_cookie_s_proof_is_asked_for_each_time(tmp_path: Path, at_once: list[bool]) -> None:
    token = signed(claims("ann", grant("write px")))
    cookie = {"Cookie": f"__Host-tidegate={token}"}
    proven = {**cookie, "Tidegate-CSRF": csrf_proof(token)}
    async with running_gateway(auth_keys=keys_of(tmp_path)) as running:
        await defined(running)
        assert [await publish(running, proven) for _ in range(3)] == [200] * 3
        assert await publish(running, cookie) == 403
        assert await publish(running, {**cookie, "Tidegate-CSRF": "x" * 43}) == 403
        assert await publish(running, {**bearer(token), "Origin": "https://evil.example"}) == 403
    assert not any(at_once)


@rule("access-14")
async def test_whoever_revokes_is_noted_each_time(tmp_path: Path, at_once: list[bool]) -> None:
    log = tmp_path / "audit"
    keys = keys_of(tmp_path)
    async with running_gateway(auth_keys=keys, audit_log=str(log)) as running:
        for _ in range(3):
            answer = await running.http.post(REVOKED, json={"id": "eve"}, headers=ROOT)
            assert answer.status_code == 200
        app: Any = running.server.config.app
        await app.state.gateway.audit.write()
        assert '"event":"revoked"' in log.read_text()
    assert not any(at_once)
