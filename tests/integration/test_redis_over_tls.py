"""Several gateways on a Redis with TLS and users: the ACL file of `deploy/` is enough for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import redis

from dev import ROOT
from tests.support.buses import binary_of
from tests.support.certificates import Authority
from tests.support.children import COMMAND
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.ports import lasting_port
from tests.support.sessions import attached, opened, subscribed
from tests.support.tokens import public_jwk, token_of, write_keys
from tidegate.app.cluster.membership import HEARTBEAT_S

pytestmark = pytest.mark.redis

PASSWORD = "not-so-secret"
OPERATOR = "user operator on >operator ~* &* +@all\n"
NEIGHBOUR = "user neighbour on >neighbour ~neighbour:* &* +@all -@dangerous\n"
"""Another program's user, as one Redis often has: all commands, on keys of its own."""


class Secured:
    """A Redis with TLS and users; `operator` may look at everything."""

    def __init__(self, port: int, authority: Authority) -> None:
        self.url = f"rediss://tidegate:{PASSWORD}@127.0.0.1:{port}"
        # Of any type: commands are sent here as they stand.
        self.operator, self.neighbour = (
            cast("Any", redis).Redis(
                port=port, username=name, password=name, ssl=True,
                ssl_ca_certs=str(authority.cert), decode_responses=True,
            )
            for name in ("operator", "neighbour")
        )  # fmt: skip

    def denied(self) -> list[str]:
        """What the user asked for and may not."""
        log = self.operator.acl_log()
        return [f"{entry['context']} {entry['object']}" for entry in log]


@pytest.fixture(name="secured")
def secured_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secured]:
    authority = Authority(tmp_path)
    server, port = authority.server("redis"), lasting_port()
    rules = (ROOT / "deploy" / "redis.acl").read_text()
    assert rules.count(">CHANGE-ME") == 1
    acl = tmp_path / "redis.acl"
    acl.write_text(rules.replace("CHANGE-ME", PASSWORD) + OPERATOR + NEIGHBOUR)
    command = [
        binary_of("redis"), "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1",
        "--tls-cert-file", str(server.cert), "--tls-key-file", str(server.key),
        "--tls-ca-cert-file", str(authority.cert), "--tls-auth-clients", "no",
        "--aclfile", str(acl), "--dir", str(tmp_path), "--save", "", "--appendonly", "yes",
        "--maxmemory-policy", "noeviction", "--logfile", str(tmp_path / "redis.log"),
    ]  # fmt: skip
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        made = Secured(port, authority)
        until = time.monotonic() + HANGS_S
        while time.monotonic() < until:
            assert process.poll() is None, (tmp_path / "redis.log").read_text()
            with contextlib.suppress(redis.ConnectionError):
                made.operator.ping()
                break
            time.sleep(0.02)
        yield made
    finally:
        process.kill()
        process.wait()


async def test_gateways_share_all_with_the_least_privileges(
    secured: Secured, tmp_path: Path
) -> None:
    given = {"redis": secured.url, "durability": "process"}
    async with running_gateway(**given) as one, running_gateway(**given) as other:
        await one.topic(history={"messages": 5})
        await one.topic("fast", source={"topic": "px", "interval": "100ms"}, key=["/k"])
        await eventually(lambda: _knows(other, "px"), "the topic is known")
        for number in range(20):
            await one.publish({"k": number % 3, "v": number})
        await other.publish({"k": 9, "v": 1}, headers={"Idempotency-Key": "one"})
        await one.publish(
            {"k": 9, "v": 2}, headers={"Tidegate-Producer": "p", "Tidegate-Sequence": "1"}
        )
        assert (await one.http.delete("/v1/topics/px/sow?key=[0]")).status_code == 200
        stage = await other.http.post(
            "/v1/topics/px/messages", json={"k": 1}, headers={"Tidegate-Stage": "s"}
        )
        assert stage.status_code == 201
        commit = {"producer": "w", "run": 1, "sequence": 1, "stages": ["s"]}
        assert (await one.http.post("/v1/topics/px/commits", json=commit)).status_code == 200
        assert (await one.http.get("/v1/topics/px/messages?from=epoch")).status_code == 200

        # A session is reached, read and moved from the other gateway.
        session = await opened(one)
        await subscribed(other, session, topic="px", options="conflation=none")
        async with attached(other, session) as stream:
            await other.publish({"k": 1, "v": 100})
            await stream.raw_until(b'"v": 100')
        assert (await one.http.get("/v1/sessions")).status_code == 200
        assert (await one.http.delete(f"/v1/sessions/{session}")).status_code == 204
        assert (await other.http.get("/readyz")).status_code == 200
        assert (await one.http.patch("/v1/topics/px", json={"description": "x"})).status_code == 200
        assert (await one.http.delete("/v1/topics/fast")).status_code == 204
    async with running_gateway(**given) as again:
        await eventually(lambda: _knows(again, "px"), "it reads what is there")
        assert json.loads((await again.http.get("/v1/topics/px/sow")).text.splitlines()[0])
        assert secured.denied() == []


def _knows(gateway: Running, topic: str) -> bool:
    return gateway.gateway.catalog.find(topic) is not None


def test_the_user_can_do_nothing_else(secured: Secured) -> None:
    with redis.Redis.from_url(secured.url) as client:
        assert client.set("{tidegate}:probe", "1")
        for command in (
            ("GET", "other"), ("SET", "{tidegater}:x", "1"), ("KEYS", "*"), ("FLUSHALL",),
            ("CONFIG", "SET", "dir", "/tmp"), ("ACL", "LIST"), ("EVAL", "return 1", "0"),
            ("SHUTDOWN",), ("PUBLISH", "x", "y"), ("MONITOR",), ("CLIENT", "KILL", "ID", "1"),
        ):  # fmt: skip
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)


@pytest.mark.nightly
async def test_another_user_of_the_server_is_no_gateway(secured: Secured, tmp_path: Path) -> None:
    """It can neither join, nor send a request to a gateway, nor write what one would read."""
    shared = {
        "redis": secured.url,
        "durability": "process",
        "auth_keys": write_keys(tmp_path / "keys.json", public_jwk("HS256")),
    }
    security = token_of("sec", "read,write tidegate.revoked")
    async with running_gateway(**shared) as one, running_gateway(**shared) as two:
        answer = await one.http.post(
            "/v1/topics/tidegate.revoked/messages", json={"id": "ann"}, headers=security
        )
        assert answer.status_code == 200
        names = {one.gateway.id, two.gateway.id}
        call = msgspec.msgpack.encode(("evil-1", "evil", "call", b"", 2**52))
        gone = "{tidegate:tidegate.revoked}"
        script = "return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])"
        late = str(2**52)
        for command in (
            ("ZADD", "{tidegate}:gateways", late, "evil"),
            ("ZREM", "{tidegate}:gateways", one.gateway.id),
            ("EVAL", script, "1", "{tidegate}:gateways", late, "evil"),
            ("EVAL", "return redis.call('DEL', '{tidegate}:gateways')", "0"),
            ("RPUSH", f"{{tidegate}}:inbox:{one.gateway.id}", call),
            ("BLPOP", f"{{tidegate}}:inbox:{one.gateway.id}", "0.1"),
            ("RENAME", "neighbour:x", f"{{tidegate}}:inbox:{two.gateway.id}"),
            ("COPY", f"{gone}:sow", "neighbour:stolen"),
            ("SET", "{tidegate}:lease:duties", "evil"),
            ("DEL", f"{gone}:stream", f"{gone}:sow", f"{gone}:state"),
            ("XADD", f"{gone}:stream", "*", "i", "x"),
            ("HGETALL", f"{gone}:sow"),
            ("XREAD", "COUNT", "1", "STREAMS", f"{gone}:stream", "0"),
            ("SORT", "neighbour:x", "BY", "{tidegate}:*", "GET", "{tidegate}:*"),
        ):
            # Also from inside a script, where the refusal is an error of the script.
            with pytest.raises((redis.exceptions.NoPermissionError, redis.ResponseError)) as no:
                secured.neighbour.execute_command(*command)
            assert "permission" in str(no.value) or "can't access" in str(no.value), command
        await asyncio.sleep(2 * HEARTBEAT_S)
        for each in (one, two):
            assert each.gateway.peers is not None
            assert {each.gateway.id, *each.gateway.peers.membership.others} == names
            for _ in range(2):
                answer = await each.http.get("/v1/topics", headers=token_of("ann", "read >"))
                assert answer.status_code == 401
            shown = await each.http.get("/v1/sessions", headers=token_of("obi", "observe >"))
            assert shown.status_code == 200


@pytest.mark.nightly
def test_nobody_comes_in_without_a_password_or_trust(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = secured.url.replace(f"tidegate:{PASSWORD}@", "")
    with redis.Redis.from_url(plain) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    monkeypatch.delenv("SSL_CERT_FILE")
    done = subprocess.run(
        [str(COMMAND), "serve", "--redis", secured.url, "--port", "0"],
        capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert done.returncode == 78
    assert "TLS failed" in done.stderr
    assert PASSWORD not in done.stderr
    assert "Traceback" not in done.stderr
