"""Probes of load balancers and orchestrators: by address, and by clients that know no Host."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.gateways import eventually, running_gateway
from tests.support.tokens import public_jwk, write_keys
from tests.support.wire import connected, exchange, get, parse_answer, request
from tidegate.app.topics.registry import Fault

PROBED = ("/healthz", "/readyz")


async def test_health_is_answered_under_any_host() -> None:
    async with running_gateway() as running:
        for path in PROBED:
            for host in ("10.1.2.3:8080", "gateway.pods.example", "[fd00::7]:8080"):
                assert (await exchange(running.address, request(path, host=host))).status == 200
        other = request("/v1/topics", host="10.1.2.3:8080")
        assert (await exchange(running.address, other)).status == 421


@pytest.mark.parametrize("path", PROBED)
async def test_health_is_answered_to_http_1_0_without_a_host(path: str) -> None:
    async with running_gateway() as running:
        for target, status in ((path, 200), ("/v1/topics", 400)):
            async with connected(running.address) as wire:
                await wire.send(b"GET %b HTTP/1.0\r\n\r\n" % target.encode())
                assert parse_answer(await wire.reader.read()).status == status
            async with connected(running.address) as wire:
                await wire.send(b"GET %b HTTP/1.1\r\n\r\n" % target.encode())
                assert parse_answer(await wire.reader.read()).status == 400


async def test_an_origin_without_a_host_to_compare_it_with_is_another_one() -> None:
    lines = (b"POST /healthz HTTP/1.0", b"Origin: http://localhost", b"Content-Length: 0", b"", b"")
    async with running_gateway() as running, connected(running.address) as wire:
        await wire.send(b"\r\n".join(lines))
        answer = parse_answer(await wire.reader.read())
    assert (answer.status, answer.code) == (403, "origin-not-allowed")


async def test_a_page_of_another_site_learns_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway() as running:
        found = [Fault("secret.topic", "unusable", "its key is gone")]
        monkeypatch.setattr(running.gateway.catalog, "faults", lambda: found)
        for host, names in (("localhost", ["secret.topic"]), ("evil.example", [])):
            answer = await exchange(running.address, request("/readyz", host=host))
            state = json.loads(answer.body)
            assert [each["topic"] for each in state.get("topics", ())] == names
            assert state["topics_at_fault"] == 1


async def test_the_absolute_form_of_a_name_is_the_name() -> None:
    async with running_gateway() as running:
        for host in ("localhost.", "localhost.:8080", "LOCALHOST."):
            assert (await exchange(running.address, request("/", host=host))).status == 200
        for host in (".", "localhost..", "127.0.0.1..", "evil.localhost."):
            assert (await exchange(running.address, request("/", host=host))).status == 421


KUBELET = (
    "GET {} HTTP/1.1\r\nHost: 10.244.0.7:8080\r\nUser-Agent: kube-probe/1.30\r\n"
    "Accept: */*\r\nConnection: close\r\n\r\n"
)
"""A probe of Kubernetes: by the address of the pod, each on a connection of its own."""


@pytest.mark.parametrize("path", PROBED)
async def test_a_probe_of_the_kubelet_is_answered_and_its_connection_closed(
    path: str, tmp_path: Path
) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("EdDSA"))
    for given in ({}, {"auth_keys": keys}):
        async with running_gateway(**given) as running:
            for _ in range(3):
                answer = await exchange(running.address, KUBELET.format(path).encode())
                assert (answer.status, answer.headers["connection"]) == (200, "close")
            await eventually(
                lambda: running.server.figures.connections == 0, "the probes have left"
            )


async def test_a_gateway_that_stops_closes_idle_probes_and_answers_those_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, is_answered = asyncio.Event(), asyncio.Event()
    kept = get(first=b"GET /readyz HTTP/1.1")

    async def fault() -> None:
        asked.set()
        await is_answered.wait()

    async with (
        running_gateway(shutdown_grace="1m") as running,
        connected(running.address) as idle,
        connected(running.address) as under_way,
    ):
        await idle.send(kept)
        assert (await idle.read_answer()).status == 200
        monkeypatch.setattr(running.gateway.store, "fault", fault)
        await under_way.send(2 * kept)
        await asked.wait()
        running.server.stop()
        assert await idle.read_to_end() == b""
        with pytest.raises(ConnectionError):
            await exchange(running.address, request("/readyz"))
        is_answered.set()
        assert (await under_way.read_answer()).status == 200, "the store was asked before"
        answer = parse_answer(await under_way.read_to_end())
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert "shutting down" in json.loads(answer.body)["detail"]
