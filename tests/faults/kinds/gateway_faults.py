"""Faults of the gateway's own process and disk, with the SQLite store."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import signal
import sqlite3
from pathlib import Path

from tests.faults.crash_runs import Crash, crash_of
from tests.faults.kinds import power
from tests.faults.setups.gateway import OK, Setup
from tests.faults.setups.held import define
from tests.support.clocks.stopwatch import Stopwatch

END_S_MAX = 6.0  # CONTRACT promises 3; as much again is a busy machine's
NOTICED_S_MAX = 10.0
BALLAST_BYTES = 64 << 10


def killed(setup: Setup) -> Crash:
    """`kill -9`, and now and then again while it starts."""
    return crash_of(setup.gateway)


def terminated(setup: Setup) -> Crash:
    """SIGTERM: it says goodbye, ends with 0 in time, and starts again."""

    async def crash(_: random.Random) -> float:
        with Stopwatch(setup.gateway.pid) as watch:
            setup.gateway.signal(signal.SIGTERM)
            status = await setup.gateway.ended()
        setup.expect(status == 0, f"it ended with {status}")
        setup.expect(watch.taken_s <= END_S_MAX, f"it took {watch.taken_s:.1f} s to end")
        setup.figures.append(f"ended after {watch.taken_s:.2f} s")
        return await setup.gateway.start()

    return crash


def stopped(setup: Setup, seconds: float, after_s: float) -> Crash:
    """SIGSTOP for some seconds; the load goes on for a while afterwards."""

    async def crash(_: random.Random) -> float:
        setup.gateway.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        setup.gateway.signal(signal.SIGCONT)
        back_s = await setup.back()
        await asyncio.sleep(after_s)
        return back_s

    return crash


def disk_full(setup: Setup) -> Crash:
    """The store's disk fills up, publishing is refused, room is made, and it is killed too."""
    ballast = setup.folder / "store" / "ballast"

    async def crash(chance: random.Random) -> float:
        fill(ballast)
        refused = await setup.in_time(setup.refuses, NOTICED_S_MAX)
        setup.expect(refused, "a full disk is not answered with 503 bus-unavailable")
        alive = await setup.status("/healthz")
        setup.expect(alive == OK, f"/healthz answers {alive}")
        ballast.unlink()
        setup.figures.append(f"accepted again after {await setup.back():.2f} s")
        return await crash_of(setup.gateway)(chance)

    return crash


def power_lost(setup: Setup) -> Crash:
    """Loss of power: `kill -9`, and of the files only what was synced is sure to be left."""
    store, trace = setup.folder / "store", setup.folder / "trace"
    disk = power.Disk(store)

    async def crash(chance: random.Random) -> float:
        pid = setup.gateway.pid
        await setup.gateway.kill()
        disk.follow(await power.noted(trace, pid))
        setup.figures.append(f"{disk.lose_power(chance)} writes lost")
        note_another_start(store / "tidegate.db")
        took_s = await setup.gateway.start()
        async with setup.client() as http:  # a definition may be lost too
            await define(http)
        return took_s

    return crash


def note_another_start(database: Path) -> None:
    """Have the store believe that the machine was another start of itself, as it would be."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE life SET boot = 'before the loss of power'")


def fill(path: Path) -> None:
    """Write until there is no room."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(os.urandom(BALLAST_BYTES))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
