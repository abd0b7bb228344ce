"""The audit log: who changed what and who was refused, counted, and without secrets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tests.support.tokens import public_jwk, token_of, write_keys
from tidegate.app.access.audit import ACTIONS_MAX, REFUSALS_MAX, AuditLog, Kind
from tidegate.app.http.audited import refused_code
from tidegate.app.settings.settings import SettingsInvalid
from tidegate.app.topics.system_topics import AUDIT

ROOT = token_of("root", "read,write,admin,observe >", "read tidegate.>")
EVE = token_of("eve", "read,write prices.>")
CANARY = "canary-7f3a"


def log_of(file: Path | None = None) -> tuple[AuditLog, list[dict[str, Any]]]:
    published: list[dict[str, Any]] = []
    name = None if file is None else str(file)
    log = AuditLog(name, lambda line: published.append(json.loads(line)), lambda: 5, "g")
    return log, published


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@contextlib.asynccontextmanager
async def guarded(folder: Path, **more: Any) -> AsyncIterator[Running]:
    keys = write_keys(folder / "keys.json", public_jwk("HS256"))
    (folder / "policy.toml").write_text("")
    policy = str(folder / "policy.toml")
    async with running_gateway(
        auth_keys=keys, auth_policy=policy, audit_log=str(folder / "audit"), **more
    ) as running:
        yield running


async def test_equal_events_are_counted_and_written_once() -> None:
    log, published = log_of()
    for _ in range(1_000):
        log.refuse(Kind("refused", "forbidden", "eve"))
    log.act(Kind("topic-deleted", sub="root", topic="px"))
    await log.write()
    await log.write()
    assert published == [
        {
            "at_ms": 5, "event": "topic-deleted", "sub": "root", "topic": "px", "count": 1,
            "gateway": "g",
        },
        {
            "at_ms": 5, "event": "refused", "code": "forbidden", "sub": "eve", "count": 1_000,
            "gateway": "g",
        },
    ]  # fmt: skip


async def test_a_flood_of_different_ones_is_counted_together_and_hides_no_action() -> None:
    log, published = log_of()
    for number in range(5_000):
        log.refuse(Kind("refused", "forbidden", f"eve{number}"))
        log.refuse(Kind("refused", "unauthenticated", client=f"10.0.0.{number}"))
    for number in range(ACTIONS_MAX):
        log.act(Kind("topic-deleted", topic=f"t{number}"))
    await log.write()
    refused = [each for each in published if each["event"] == "refused"]
    assert len(refused) <= REFUSALS_MAX + 2
    assert sum(each["count"] for each in refused) == 10_000
    assert len(published) == len(refused) + ACTIONS_MAX


async def test_a_file_is_appended_to_its_owner_alone_reads_it_and_it_may_be_rotated(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit"
    log, _ = log_of(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for number in range(2):
        log.act(Kind("login", sub=f"s{number}"))
        await log.write()
    file.rename(tmp_path / "audit.1")
    log.act(Kind("login", sub="s2"))
    await log.write()
    assert [each["sub"] for each in lines_of(tmp_path / "audit.1")] == ["s0", "s1"]
    assert [each["sub"] for each in lines_of(file)] == ["s2"]


async def test_two_writes_at_a_time_write_each_line_once(tmp_path: Path) -> None:
    log, _ = log_of(tmp_path / "audit")
    log.act(Kind("one"))
    first = asyncio.create_task(log.write())
    await asyncio.sleep(0)  # it writes in a thread now
    log.act(Kind("two"))
    await asyncio.gather(first, log.write())
    assert [line["event"] for line in lines_of(tmp_path / "audit")] == ["one", "two"]


async def test_a_write_that_is_cancelled_writes_each_line_once(tmp_path: Path) -> None:
    log, _ = log_of(tmp_path / "audit")
    log.act(Kind("one"))
    stopped = asyncio.create_task(log.write())
    await asyncio.sleep(0)  # it writes in a thread now
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    log.act(Kind("two"))
    await log.write()  # the last one of a gateway that stops
    assert [line["event"] for line in lines_of(tmp_path / "audit")] == ["one", "two"]


async def test_a_full_disk_stops_nothing_is_said_once_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, published = log_of(tmp_path / "audit")
    (tmp_path / "audit").unlink()
    (tmp_path / "audit").mkdir()  # as a disk that takes nothing
    for number in range(3):
        log.act(Kind("login", sub=f"s{number}"))
        await log.write()
    assert len(published) == 3
    assert caplog.text.count("the audit log waits") == 1
    (tmp_path / "audit").rmdir()
    log.act(Kind("login", sub="s3"))
    await log.write()
    assert [each["sub"] for each in lines_of(tmp_path / "audit")] == ["s0", "s1", "s2", "s3"]
    assert "written again" in caplog.text or log._is_failing is False


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="audit_log"):
        log_of(tmp_path / "nosuch" / "audit")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"code":"forbidden"}', "forbidden"),
        (b'retry: 5\nevent: refused\ndata: {"code":"limit-reached"}\n\n', "limit-reached"),
        (b"event: hello\ndata: {}\n\n", ""),
        (b'{"code":7}', ""),
        (b"[]", ""),
        (b"\xff", ""),
        (b"", ""),
    ],
)
def test_the_code_of_a_refusal_is_read_from_what_is_sent(body: bytes, code: str) -> None:
    assert refused_code(body) == code


@rule("access-14")
async def test_administration_and_refusals_are_logged_and_secrets_are_not(tmp_path: Path) -> None:
    # Sent: what only the stream of a session knows, tokens, payloads, keys and filters.
    async with guarded(tmp_path, subject_sessions_max=1) as running:
        http = running.http
        body = {"key": ["/k"], "description": CANARY}
        token = ROOT["Authorization"].split()[1]
        await http.put("/v1/topics/prices.eu", json=body, headers=ROOT)
        await http.patch("/v1/topics/prices.eu", json={"priority": "high"}, headers=ROOT)
        await http.post("/v1/topics/prices.eu/messages", json={"k": CANARY}, headers=ROOT)
        at = "/v1/topics/prices.eu"
        await http.delete(f"{at}/sow?filter=/k = '{CANARY}'", headers=ROOT)
        session = (await http.post("/v1/sessions", json={}, headers=ROOT)).json()["session"]
        refused = await http.post("/v1/sessions", json={}, headers=ROOT)
        assert refused.status_code == 429
        stream = await http.get(f"{at}/subscribe?filter=/k = '{CANARY}'", headers=ROOT)
        assert "event: refused" in stream.text
        await http.delete(f"/v1/sessions/{session}", headers=ROOT)
        await http.post("/v1/login", json={"token": token})
        ticket = (await http.post("/v1/tickets", headers=ROOT)).json()["ticket"]
        await http.get("/v1/topics", headers={"Authorization": f"Bearer {CANARY}"})
        await http.get(f"/v1/topics/secret/sow?filter=/k = '{CANARY}'", headers=EVE)
        await http.get("/v1/topics", headers={"Host": f"{CANARY}.example"})
        cookie = {"Cookie": f"__Host-tidegate={token}"}
        await http.put("/v1/topics/prices.eu", json=body, headers=cookie)
        await http.delete(at, headers={**ROOT, "Origin": f"https://{CANARY}.example"})
        await http.delete(at, headers=ROOT)
        (tmp_path / "policy.toml").write_text('revoked = ["mallory"]')
        async with asyncio.timeout(HANGS_S):
            while "access-changed" not in (tmp_path / "audit").read_text():
                await asyncio.sleep(0.1)
        await running.gateway.audit.write()
        text = (tmp_path / "audit").read_text()
        events = lines_of(tmp_path / "audit")
        seen = {(it["event"], it.get("code", ""), it.get("sub", "")) for it in events}
        assert seen == {
            ("topic-defined", "", "root"), ("topic-changed", "", "root"),
            ("records-removed", "", "root"), ("session-closed", "", "root"),
            ("login", "", "root"), ("ticket-issued", "", "root"), ("topic-deleted", "", "root"),
            ("access-changed", "", ""), ("refused", "limit-reached", "root"),
            ("refused", "unauthenticated", ""), ("refused", "forbidden", "eve"),
            ("refused", "host-not-allowed", ""), ("refused", "csrf", ""),
            ("refused", "origin-not-allowed", ""),
        }  # fmt: skip
        assert {it["topic"] for it in events if it.get("code") == "forbidden"} == {"secret"}
        for secret in (CANARY, token, token.split(".")[2], ticket, session):
            assert secret not in text
        # The topic has the same, for those alone who are granted it by its own name.
        path = "/v1/topics/tidegate.audit/messages"
        async with asyncio.timeout(HANGS_S):
            while True:
                answer = await http.get(path, headers=ROOT)
                if answer.text.count("\n") == len(events):
                    break
                await asyncio.sleep(0.1)
        values = [json.loads(line)["value"] for line in answer.text.splitlines()]
        assert values == events
        assert (await http.get(path, headers=EVE)).status_code == 403
        everything = token_of("max", "read,write,admin,observe >")
        assert (await http.get(path, headers=everything)).status_code == 403


@rule("access-14")
async def test_who_revokes_is_logged_and_who_publishes_is_not(tmp_path: Path) -> None:
    writer = token_of("sec", "read,write tidegate.revoked", "read,write,admin px")
    async with guarded(tmp_path) as running:
        at = "/v1/topics/tidegate.revoked"
        await running.http.put("/v1/topics/px", json={}, headers=writer)
        for path, message in (("/v1/topics/px", {"id": CANARY}), (at, {"id": CANARY}), (at, {})):
            await running.http.post(f"{path}/messages", json=message, headers=writer)
        taken = await running.http.delete(f'{at}/sow?key=["{CANARY}"]', headers=writer)
        assert taken.json() == {"deleted": 1}
        await running.gateway.audit.write()
        events = lines_of(tmp_path / "audit")
        acts = [(it["event"], it["sub"], it["topic"], it["count"]) for it in events if "sub" in it]
        assert acts == [
            ("topic-defined", "sec", "px", 1), ("revoked", "sec", "tidegate.revoked", 1),
            ("records-removed", "sec", "tidegate.revoked", 1),
        ]  # fmt: skip


async def test_without_authentication_changes_are_logged_too(tmp_path: Path) -> None:
    async with running_gateway(audit_log=str(tmp_path / "audit")) as running:
        await running.topic()
        await running.publish({"k": 1})
        await running.gateway.audit.write()
        [event] = lines_of(tmp_path / "audit")
        assert (event["event"], event["topic"], event["client"]) == (
            "topic-defined", "px", "127.0.0.1",
        )  # fmt: skip


async def test_the_topic_has_the_last_events_before_a_stop() -> None:
    # Other gateways on the bus serve them on.
    async with running_gateway() as running:
        for number in range(3):
            await running.topic(name=f"px{number}")
    topic = running.gateway.driver.engine.topic(AUDIT)
    events = [json.loads(frame.payload) for frame in topic.journal.after(0)]
    assert [(it["event"], it["topic"]) for it in events if "topic" in it] == [
        ("topic-defined", "px0"), ("topic-defined", "px1"), ("topic-defined", "px2"),
    ]  # fmt: skip
