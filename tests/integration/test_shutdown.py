"""A real gateway process ends at SIGTERM, whether its readers read or not."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from asyncio.subprocess import Process
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.support.children import ended, serving
from tests.support.clocks.stopwatch import Stopwatch
from tests.support.deadlines import HANGS_S, LOOPS_S
from tests.support.gateways import client_of

END_S_MAX = 30.0
"""Three seconds are promised, and test_frozen_clients.py measures them. A shutdown that waited for
a peer that reads nothing would take the whole write timeout here, ten minutes."""
SHORT = {"TIDEGATE_WRITE_TIMEOUT": "2s", "TIDEGATE_QUEUE_MESSAGES_MAX": "100"}


@pytest.mark.system
@pytest.mark.nightly
async def test_open_and_frozen_streams_hold_no_shutdown_up() -> None:
    async with (
        serving(TIDEGATE_WRITE_TIMEOUT="10m") as (process, address),
        client_of(address) as remote,
    ):
        await remote.topic()
        pad = "x" * 100_000
        async with (
            remote.subscribe("conflation=1h") as idle,
            remote.subscribe("conflation=50ms", command="subscribe") as busy,
            remote.frozen("conflation=none", query="&command=subscribe"),
            remote.frozen("conflation=50ms", query="&command=subscribe"),
        ):
            for version in range(100):
                await remote.publish({"k": version % 10, "v": version, "pad": pad})
                await busy.next()
            with Stopwatch(process.pid) as watch:
                process.send_signal(signal.SIGTERM)
                for stream in (idle, busy):
                    goodbye = (await stream.rest())[-1]
                    assert goodbye.name == "goodbye"
                    assert json.loads(goodbye.text) == {"reason": "SHUTDOWN", "reconnect": True}
                    assert stream.parser.retry_ms is not None
                status, logged = await ended(process)
            assert watch.taken_s < END_S_MAX
        assert status == 0
        assert "Traceback" not in logged


@pytest.mark.nightly
async def test_frozen_and_slow_clients_hold_nobody_up() -> None:
    """Three that never read, one that reads on: it gets every version on time, memory stays."""
    async with (
        serving(**SHORT) as (process, address),
        client_of(address) as remote,
    ):
        await remote.topic()
        pad = "x" * 20_000
        async with (
            remote.frozen("conflation=none", query="&command=subscribe"),
            remote.frozen("conflation=50ms", query="&command=subscribe"),
            remote.frozen("conflation=50ms,pace=key", query="&command=subscribe"),
            remote.subscribe("conflation=none", command="subscribe") as fast,
        ):
            before_bytes = resident_bytes(process)
            waits_s, cut = [], 0.0
            deadline = time.monotonic() + LOOPS_S
            version = 0
            while cut < 3 or version < 150:
                assert time.monotonic() < deadline, "the frozen ones are not cut"
                version += 1
                began_at = time.monotonic()
                await remote.publish(*[{"k": k, "v": version, "pad": pad} for k in range(20)])
                rows = await fast.values(20)
                waits_s.append(time.monotonic() - began_at)
                assert [row["v"] for row in rows] == [version] * 20
                cut = await closed(remote.http, "WRITE_TIMEOUT")
            grown_bytes = resident_bytes(process) - before_bytes
        # 100,000 messages of journal may be held; what clients have not taken may not.
        published_bytes = version * 20 * (len(pad) + 30)
        assert grown_bytes < published_bytes * 1.5 + (64 << 20)
        waits_s.sort()
        assert waits_s[len(waits_s) // 2] < 0.5, "the fast one waits for the others"
        summary = f"{version} versions, median wait {waits_s[len(waits_s) // 2] * 1e3:.0f} ms"
        assert cut == 3, summary


async def closed(http: httpx2.AsyncClient, reason: str) -> float:
    answer = await http.get("/metrics")
    name = f'tidegate_sessions_closed_total{{reason="{reason}"}} '
    counts = [line for line in answer.text.splitlines() if line.startswith(name)]
    return float(counts[0].removeprefix(name)) if counts else 0.0


def resident_bytes(process: Process) -> int:
    return int(psutil.Process(process.pid).memory_info().rss)


@pytest.mark.system
async def test_a_hangup_ends_no_stream() -> None:
    async with serving() as (process, address), client_of(address) as remote:
        await remote.topic()
        async with remote.subscribe("conflation=none", command="subscribe") as stream:
            process.send_signal(signal.SIGHUP)
            assert process.stderr is not None
            async with asyncio.timeout(HANGS_S):
                while b"nothing to read again" not in await process.stderr.readline():
                    pass
            await remote.publish({"k": 1})
            assert await stream.values(1) == [{"k": 1}]


@pytest.mark.system
async def test_a_hangup_ends_no_start(tmp_path: Path) -> None:
    """The import of a merger stands for a start that takes its time."""
    (tmp_path / "slow.py").write_text(
        "import os, signal\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "def merge(older, newer):\n    return newer\n"
    )
    variables = {"TIDEGATE_MERGERS": "slow:merge", "PYTHONPATH": str(tmp_path)}
    async with serving(**variables) as (_, address), client_of(address) as remote:
        assert (await remote.http.get("/healthz")).status_code == 200
