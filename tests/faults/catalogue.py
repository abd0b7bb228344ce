"""The catalogue: faults F1 to F14 and F25 to F28 of the plan, each with what it leaves whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial

import httpx2

from tests.faults.checks.writer import Refused
from tests.faults.crash_runs import Crash, CrashRuns, Tally
from tests.faults.kinds import (
    cluster_faults,
    gateway_faults,
    held_faults,
    pipeline_faults,
    redis_faults,
    sink_faults,
)
from tests.faults.kinds.starts import UNFIT, start_on
from tests.faults.setups.children import DidNotStart
from tests.faults.setups.gateway import CannotRun, Setup, on_redis, on_sqlite
from tests.support.network.fault_proxy import Line

LOAD_S = 0.5
KEPT = "nothing acknowledged is lost, doubled or reordered"
SUNK = "the sink topic has every message exactly once, in order"
STATE = "deliveries of pace=key in event time and the rows of a view: exactly what they have to be"
SEEN = "every loss is seen as a new epoch before anything follows"
SLOW = Line(latency_s=0.2, jitter_s=0.15)
THIN = Line(bytes_per_s=10_000, slice_bytes=500)
SLICED = Line(slice_bytes=1)
SMALL_DISK_KB = 20 << 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a fault went: what was wrong, what was measured; or why it was not played."""

    findings: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    not_run: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its name in the plan, what happens, what it has to leave whole, how it is played.

    `play` takes a seed, and whether it is to be short.
    """

    name: str
    what: str
    passes: str
    play: Callable[[int, bool], Awaitable[Outcome]]


async def play(fault: Fault, seed: int, *, short: bool = False) -> Outcome:
    """Play a fault once."""
    try:
        return await fault.play(seed, short)
    except CannotRun as reason:
        return Outcome(not_run=str(reason))
    except (httpx2.HTTPError, Refused, DidNotStart, TimeoutError) as error:
        return Outcome([f"it broke off: {type(error).__name__} {error}"])


def crashing(
    stage_of: Callable[[int], AbstractAsyncContextManager[Setup]],
    crash_of: Callable[[Setup, bool], Crash],
    *,
    keeps: bool = True,
    load_s: float = LOAD_S,
    judge: Callable[[CrashRuns, Setup], None] | None = None,
) -> Callable[[int, bool], Awaitable[Outcome]]:
    """A fault in the midst of writers and subscribers, with everything held against the ledgers."""

    async def play_it(seed: int, short: bool) -> Outcome:
        async with stage_of(seed) as setup:
            crash_runs = CrashRuns(setup.gateway.address, crash_of(setup, short), seed, keeps=keeps)
            tally = await crash_runs.run(1, (load_s, load_s), lambda: None)
            if judge is not None:
                judge(crash_runs, setup)
            back_s = max(tally.ready_s)
            figures = [*setup.figures, f"back after {back_s:.2f} s"]
            return Outcome([*setup.findings, *tally.findings], figures, tally)

    return play_it


def pipeline(
    stage_of: Callable[[int], AbstractAsyncContextManager[Setup]],
    play_on: Callable[[Setup, bool], Awaitable[None]],
) -> Callable[[int, bool], Awaitable[Outcome]]:
    """A fault of a running pipeline; what its sink has is held against what was published."""

    async def play_it(seed: int, short: bool) -> Outcome:
        async with stage_of(seed) as setup:
            await play_on(setup, short)
            return Outcome(setup.findings, setup.figures)

    return play_it


async def refused_starts(seed: int, short: bool) -> Outcome:
    """Every unfit Redis is refused."""
    found = [await start_on(name) for name in UNFIT]
    return Outcome([finding for finding in found if finding], [f"{len(UNFIT)} kinds"])


def announced_out(crash_runs: CrashRuns, setup: Setup) -> None:
    """Streams say that the bus is out, and that it is back."""
    for subscriber in crash_runs.subscribers:
        status = [out for visit in subscriber.visits for out in visit.status]
        setup.expect(
            status[:1] == [True], f"{subscriber.options}: no status said that the bus is out"
        )
        setup.expect(
            status[-1:] == [False], f"{subscriber.options}: no status said that it is back"
        )


def farewells(crash_runs: CrashRuns, setup: Setup) -> None:
    """Streams end with a goodbye."""
    for subscriber in crash_runs.subscribers:
        said = subscriber.visits[0].goodbye
        setup.expect(said == "SHUTDOWN", f"{subscriber.options}: the goodbye said {said!r}")


def no_burst(crash_runs: CrashRuns, setup: Setup) -> None:
    """No key comes oftener than its interval (I2)."""
    setup.findings += crash_runs.rate_findings()


def _stopped(seconds: float, short_s: float) -> Callable[[Setup, bool], Crash]:
    return lambda setup, short: gateway_faults.stopped(setup, short_s if short else seconds, 2.5)


def _redis_stopped(seconds: float) -> Callable[[Setup, bool], Crash]:
    return lambda setup, short: redis_faults.redis_stopped(setup, seconds)


def _line(line: Line) -> Callable[[Setup, bool], Crash]:
    return lambda setup, short: redis_faults.slow_line(setup, line, 1.0 if short else 5.0)


def _plain(crash_of: Callable[[Setup], Crash]) -> Callable[[Setup, bool], Crash]:
    return lambda setup, short: crash_of(setup)


POWER = partial(on_sqlite, strace=True, TIDEGATE_DURABILITY="power")
NO_POWER = partial(
    on_sqlite,
    strace=True,
    TIDEGATE_DURABILITY="process",
    TIDEGATE_AUTO_CREATE_TOPICS="false",
)
ALWAYS = partial(on_redis, fsync="always")
gateway, bus, spark = gateway_faults, redis_faults, pipeline_faults

FAULTS = [
    Fault("F1", "kill -9 of the gateway", KEPT, crashing(on_sqlite, _plain(gateway.killed))),
    Fault(
        "F2", "SIGTERM of the gateway", f"{KEPT}; a goodbye, and an end in time",
        crashing(on_sqlite, _plain(gateway.terminated), judge=farewells),
    ),
    Fault(
        "F3", "SIGSTOP of the gateway", f"{KEPT}; no burst afterwards",
        crashing(on_sqlite, _stopped(10.0, 1.0), judge=no_burst),
    ),
    Fault("F4a", "kill -9 of Redis, AOF everysec", KEPT,
          crashing(on_redis, _plain(bus.redis_killed))),
    Fault("F4b", "kill -9 of Redis, AOF always", KEPT, crashing(ALWAYS, _plain(bus.redis_killed))),
    Fault("F4c", "kill -9 of Redis right after a lost reply", KEPT,
          crashing(on_redis, _plain(bus.reply_lost_and_killed))),
    Fault("F5a", "loss of power, SQLite store, durability=power", KEPT,
          crashing(POWER, _plain(gateway.power_lost))),
    Fault("F5b", "loss of power, SQLite store, durability=process", SEEN,
          crashing(NO_POWER, _plain(gateway.power_lost), keeps=False, load_s=8.0)),
    Fault("F6a", "SIGSTOP of Redis for 1 s", KEPT, crashing(on_redis, _redis_stopped(1.0))),
    Fault(
        "F6b", "SIGSTOP of Redis for 12 s", f"{KEPT}; 503, not ready, streams say it",
        crashing(on_redis, _redis_stopped(12.0), judge=announced_out),
    ),
    Fault("F7", "replies of Redis are lost", KEPT, crashing(on_redis, _plain(bus.replies_lost))),
    Fault(
        "F8", "the link to Redis is a black hole", f"{KEPT}; 503, not ready, streams say it",
        crashing(on_redis, _plain(bus.half_open), judge=announced_out),
    ),
    Fault("F9a", "FLUSHALL", SEEN, crashing(on_redis, _plain(bus.flushed), keeps=False)),
    Fault("F9b", "a topic's stream is deleted", SEEN,
          crashing(on_redis, _plain(bus.stream_deleted), keeps=False)),
    Fault(
        "F9c", "older files of Redis are restored, AOF everysec", SEEN,
        crashing(on_redis, lambda setup, _: bus.older_restored(setup, 0.3), keeps=False),
    ),
    Fault(
        "F9d", "older files of Redis are restored, AOF always", SEEN,
        crashing(ALWAYS, lambda setup, _: bus.older_restored(setup, 0.3), keeps=False),
    ),
    Fault("F10", "Redis is out of memory", f"{KEPT}; 503, and taken again afterwards",
          crashing(on_redis, _plain(bus.out_of_memory))),
    Fault("F11", "a Redis that evicts or keeps nothing", "refused with exit 78 and one sentence",
          refused_starts),
    Fault(
        "F12a", "the SQLite store's disk is full", f"{KEPT}; 503, and taken again afterwards",
        crashing(partial(on_sqlite, disk_kb=SMALL_DISK_KB), _plain(gateway.disk_full)),
    ),
    Fault(
        "F12b", "the disk of Redis is full", f"{KEPT}; 503, and taken again afterwards",
        crashing(partial(on_redis, disk_kb=SMALL_DISK_KB), _plain(bus.redis_disk_full)),
    ),
    Fault("F13", "failover to a replica that is behind", SEEN,
          crashing(on_redis, _plain(bus.failed_over), keeps=False)),
    Fault("F14a", "Redis answers after 200 ms and up to 150 more", KEPT,
          crashing(on_redis, _line(SLOW))),
    Fault("F14b", "the link to Redis carries 10 kB/s", KEPT, crashing(on_redis, _line(THIN))),
    Fault("F14c", "Redis's bytes come one by one", KEPT, crashing(on_redis, _line(SLICED))),
    Fault(
        "F14d", "ten resets a second", KEPT,
        crashing(on_redis, lambda setup, short: bus.resets(setup, 1.0 if short else 5.0, 0.1)),
    ),
    Fault("F25a", "kill -9 of the Spark driver at six points of a batch", SUNK,
          pipeline(on_sqlite, spark.driver_killed)),
    Fault("F25b", "kill -9 of the Spark driver between what it holds, its commits and its end",
          STATE, pipeline(on_sqlite, held_faults.held_state_killed)),
    Fault("F26a", "kill -9 of the Python workers of Spark in a batch", SUNK,
          pipeline(on_sqlite, spark.workers_killed)),
    Fault("F26b", "a Spark driver is stopped, another takes over, the first wakes up",
          f"{SUNK}; the older run is fenced", pipeline(on_sqlite, spark.older_run_wakes)),
    Fault("F26c", "kill -9 of gateway and Redis, AOF always, while a pipeline commits", SUNK,
          pipeline(ALWAYS, spark.gateway_restarted)),
    Fault("F26d", "kill -9 of a Python worker, then of an executor of a Spark cluster", SUNK,
          pipeline(on_sqlite, cluster_faults.executor_killed)),
    Fault("F28", "a batch comes to the sink again, cut otherwise, or is older", SUNK,
          pipeline(on_sqlite, sink_faults.batches_again)),
]  # fmt: skip
