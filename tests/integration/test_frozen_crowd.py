"""A crowd that does not read: its cost while it is there, and that nothing stays of it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import psutil
import pytest

from tests.support.children import ended, serving
from tests.support.clocks.stopwatch import Stopwatch
from tests.support.deadlines import LOOPS_S
from tests.support.gateways import Remote, client_of, eventually, running_gateway

CROWD = 200
OPTIONS = ("conflation=none", "conflation=50ms", "conflation=50ms,pace=key", "conflation=50ms,oof")
KEYS = 20
PAD = "x" * 5_000
QUEUE_BYTES_MAX = 256 << 10
END_S_MAX = 3.0


@contextlib.asynccontextmanager
async def frozen_crowd(remote: Remote, count: int) -> AsyncIterator[None]:
    """Subscribers of all kinds that have read `hello` and nothing more."""
    async with contextlib.AsyncExitStack() as stack:
        for at in range(count):
            options = OPTIONS[at % len(OPTIONS)]
            await stack.enter_async_context(remote.frozen(options, query="&command=subscribe"))
        yield


async def published(remote: Remote, version: int) -> None:
    await remote.publish(*[{"k": k, "v": version, "pad": PAD} for k in range(KEYS)])


async def figure(remote: Remote, name: str) -> float:
    """One number of the metrics, 0 for what is not there yet."""
    text = (await remote.http.get("/metrics")).text
    found = [line for line in text.splitlines() if line.startswith(name + " ")]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


async def crowd_comes_and_is_cut(remote: Remote, process: psutil.Process, count: int) -> int:
    """The greatest memory seen meanwhile."""
    cut = "tidegate_connections_given_up_total"
    before, greatest_bytes = await figure(remote, cut), 0
    async with frozen_crowd(remote, count), asyncio.timeout(LOOPS_S):
        version = 0
        while await figure(remote, cut) < before + count:
            version += 1
            await published(remote, version)
            greatest_bytes = max(greatest_bytes, process.memory_info().rss)
    return greatest_bytes


@pytest.mark.nightly
async def test_memory_and_descriptors_come_back_when_a_frozen_crowd_has_been_cut() -> None:
    async with (
        serving(TIDEGATE_WRITE_TIMEOUT="2s", TIDEGATE_QUEUE_BYTES_MAX="256KiB") as (child, address),
        client_of(address) as remote,
    ):
        await remote.topic(history={"messages": 100})
        process = psutil.Process(child.pid)
        await crowd_comes_and_is_cut(remote, process, 20)  # until caches and pools are filled
        resting_bytes, descriptors = process.memory_info().rss, process.num_fds()
        greatest_bytes = await crowd_comes_and_is_cut(remote, process, CROWD)
        assert greatest_bytes < resting_bytes + 1.5 * CROWD * QUEUE_BYTES_MAX
        assert await figure(remote, 'tidegate_sessions{state="attached"}') == 0
        assert process.num_fds() <= descriptors
        limit_bytes = 1.25 * resting_bytes  # the C library's pages are shared with who stays
        await eventually(lambda: process.memory_info().rss < limit_bytes, "memory is given back")
        child.terminate()
        assert (await ended(child))[0] == 0


@pytest.mark.nightly
async def test_a_frozen_crowd_does_not_hold_a_shutdown_up() -> None:
    async with serving(TIDEGATE_WRITE_TIMEOUT="10m") as (child, address):
        async with client_of(address) as remote:
            await remote.topic()
            async with frozen_crowd(remote, CROWD):
                for version in range(10):
                    await published(remote, version)
                with Stopwatch(child.pid) as watch:
                    child.send_signal(signal.SIGTERM)
                    status, logged = await ended(child)
                assert watch.taken_s < END_S_MAX
        assert status == 0
        assert "connections did not end in time and were cut" in logged
        assert "Traceback" not in logged


async def test_no_task_and_no_session_stays_behind_a_frozen_crowd() -> None:
    async with running_gateway(write_timeout="500ms") as running:
        await running.topic()
        async with running.subscribe():
            pass  # what is started once, with the first stream
        await eventually(lambda: not running.server.server_state.tasks, "it has ended")
        tasks = len(asyncio.all_tasks())
        figures = running.server.figures
        async with frozen_crowd(running, 20), asyncio.timeout(LOOPS_S):
            version = 0
            while figures.given_up < 20:
                version += 1
                await published(running, version)
                await asyncio.sleep(0.05)
        await eventually(lambda: figures.connections == 1, "the publisher's is left")
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks, "no task is left")
        assert not running.server.server_state.tasks
        assert running.gateway.driver.engine.stats().sessions == 0
        assert running.gateway.driver.closed_sessions == {"WRITE_TIMEOUT": 20}
