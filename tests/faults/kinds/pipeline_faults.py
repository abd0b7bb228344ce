"""Faults of the pipeline's own processes: the driver, its workers, the gateway that it needs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import psutil

from tests.faults.setups.gateway import Setup
from tests.faults.setups.pipeline import (
    NEWEST,
    RAW,
    ROWS_PER_BATCH,
    PipelineChild,
    has_all,
    judge,
    publish,
    sunk,
)
from tests.faults.setups.waiting import happens
from tests.support.deadlines import HANGS_S
from tests.support.network.turnstile import Hold, Turnstile, turnstile

MESSAGES = 500
SOME_BATCHES_MAX = 2
EXIT_FENCED, EXIT_IN_USE = 1, 78

Place = Callable[[int], Hold]
"""Where a batch is to stand, after so many batches have gone by."""


OF_STAGES = b'.0"]'
"""In a commit; one that asks whether a batch is known names no stage that there is."""


def _at(method: str, path: str, *, answered: bool = False, saying: bytes = b"") -> Place:
    return lambda passes: Hold(method, path, passes, answered, saying)


BEFORE_PLAN = _at("GET", f"/v1/topics/{RAW}")
IN_READ = _at("GET", f"/v1/topics/{RAW}/messages")
IN_STAGE = _at("POST", f"/v1/topics/{NEWEST}/messages")
BEFORE_COMMIT = _at("POST", f"/v1/topics/{NEWEST}/commits", saying=OF_STAGES)
AFTER_COMMIT = _at("POST", f"/v1/topics/{NEWEST}/commits", answered=True, saying=OF_STAGES)
PLACES: dict[str, Place] = {
    "before the offset log": BEFORE_PLAN,
    "after the offset log": IN_READ,
    "while it stages": IN_STAGE,
    "after staging, before the commit": BEFORE_COMMIT,
    "after the commit, before Spark's": AFTER_COMMIT,
}
"""Places of a batch at which the driver is killed; the sixth, after Spark's, is no request."""


async def driver_killed(setup: Setup, short: bool) -> None:
    """`kill -9` of the whole driver at six points, each from the checkpoint of the one before."""
    await publish(setup.gateway.address, 0, MESSAGES)
    async with turnstile(setup.gateway.address) as relay:
        late: Hold | None = None
        for name, place in PLACES.items():
            async with PipelineChild(setup.folder, relay.address) as running:
                hold = relay.hold(place(setup.chance.randrange(1, 1 + SOME_BATCHES_MAX)))
                reached = await running.gets_to(hold.reached)
                setup.expect(reached, f"{name}: it did not get there: {running.logged[-500:]}")
                if late is not None:  # what a dead driver asked arrives only now
                    late.released.set()
            late = hold
        async with PipelineChild(setup.folder, relay.address) as running:
            before = _last_noted(running)
            noted = await happens(lambda: _last_noted(running) > before, HANGS_S)
            setup.expect(noted, f"no batch was noted: {running.logged[-500:]}")
        await _arrives(setup, relay)


async def workers_killed(setup: Setup, short: bool) -> None:
    """`kill -9` of the Python workers in the midst of a batch; the short way of those that ask.

    Without the daemons that start workers Spark fails some times more, and each time the stream
    waits longer: a minute in all.
    """
    await publish(setup.gateway.address, 0, MESSAGES)
    async with turnstile(setup.gateway.address) as relay:
        hold = relay.hold(IN_STAGE(setup.chance.randrange(SOME_BATCHES_MAX)))
        async with PipelineChild(setup.folder, relay.address) as running:
            setup.expect(await running.gets_to(hold.reached), "no batch was staged")
            killed = _kill_workers(running.pid, urlsplit(relay.address).port if short else None)
            setup.figures.append(f"{killed} Python workers killed")
            setup.expect(killed > 0, "there was no Python worker")
            hold.released.set()
            await finish(setup, running)


async def gateway_restarted(setup: Setup, short: bool) -> None:
    """`kill -9` of the gateway, and of Redis where there is one, in the midst of two batches."""
    await publish(setup.gateway.address, 0, MESSAGES)
    async with turnstile(setup.gateway.address) as relay:
        hold = relay.hold(IN_STAGE(1))
        async with PipelineChild(setup.folder, relay.address) as running:
            for place in (BEFORE_COMMIT, AFTER_COMMIT):
                setup.expect(await running.gets_to(hold.reached), "no batch got there")
                await setup.gateway.kill()
                if setup.redis_child is not None:
                    await setup.redis.kill()
                    await setup.redis.start()
                await setup.gateway.start()
                at_place = hold
                hold = relay.hold(place(1))
                at_place.released.set()
            setup.expect(await running.gets_to(hold.reached), "no batch got there")
            hold.released.set()
            await finish(setup, running)


async def older_run_wakes(setup: Setup, short: bool) -> None:
    """A driver is stopped in a batch, a second takes over its checkpoint, the first wakes up."""
    await publish(setup.gateway.address, 0, MESSAGES)
    async with turnstile(setup.gateway.address) as relay:
        hold = relay.hold(BEFORE_COMMIT(1))
        async with PipelineChild(setup.folder, relay.address) as first:
            setup.expect(await first.gets_to(hold.reached), "no batch got there")
            async with PipelineChild(setup.folder, relay.address) as refused:
                status = await refused.exit_status()
            setup.expect(status == EXIT_IN_USE, f"a second driver was let in: {status}")
            first.signal_all(signal.SIGSTOP)
            (first.checkpoint / "lock").unlink()  # as on another machine, where nobody sees it
            await _arrives(setup, relay)
            # Where it slept longer than a request may take it begins again: with these.
            await publish(setup.gateway.address, MESSAGES, MESSAGES + ROWS_PER_BATCH)
            first.signal_all(signal.SIGCONT)
            hold.released.set()
            status = await first.exit_status()
            setup.expect(status == EXIT_FENCED, f"the older run ended with {status}")
            setup.expect("[producer-fenced" in first.logged, f"it said {first.logged[-500:]}")
        numbers = await sunk(setup.gateway.address)
        setup.expect(len(numbers) == MESSAGES, f"the sink has {len(numbers)} messages")
        setup.findings += judge(numbers, MESSAGES)


async def _arrives(setup: Setup, relay: Turnstile) -> None:
    """A run that nothing happens to brings everything."""
    async with PipelineChild(setup.folder, relay.address) as running:
        await finish(setup, running)


async def finish(setup: Setup, running: PipelineChild) -> None:
    """Wait until the sink has everything, stop, and hold it against the ledger."""
    address, began_at = setup.gateway.address, time.monotonic()

    async def is_done() -> bool:
        return running.ended or await has_all(address, MESSAGES)

    await happens(is_done, HANGS_S)
    setup.figures.append(f"all there after {time.monotonic() - began_at:.1f} s")
    status = await running.stop()
    setup.expect(status == 0, f"it ended with {status}: {running.logged[-500:]}")
    setup.findings += judge(await sunk(address), MESSAGES)


def _last_noted(running: PipelineChild) -> int:
    """The last batch in Spark's own commit log."""
    names = [path.name for path in (running.checkpoint / "spark" / "commits").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _kill_workers(driver: int, port: int | None) -> int:
    """Kill what works for the driver's Java in Python, or of it who is connected to a port."""
    killed = 0
    for child in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.Error):
            works = "-m pyspark" in " ".join(child.cmdline())
            if works and (port is None or is_connected(child, port)):
                child.kill()
                killed += 1
    return killed


def is_connected(process: psutil.Process, port: int) -> bool:
    """Whether a process has a connection to a port."""
    return any(to.raddr and to.raddr.port == port for to in process.net_connections())
