"""Faults of the bus: of Redis itself, and of the connections to it."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import time
from functools import partial

from tests.faults.crash_runs import Crash, crash_of
from tests.faults.kinds.gateway_faults import NOTICED_S_MAX, fill
from tests.faults.setups.children import RedisChild, ask
from tests.faults.setups.gateway import OK, UNAVAILABLE, Setup, redis_binary
from tests.faults.setups.held import LONG
from tests.support.deadlines import HANGS_S
from tests.support.network.fault_proxy import BLACK_HOLE, Line

SCRIPTS = b"EVALSHA"
INFO_REPLICATION = b"INFO replication\r\nQUIT\r\n"
LOST_REPLIES = 12
LIVES_WITH_LOST_REPLY = 4
WRITERS_THAT_REPEAT = (b"long-keyed", b"long-numbered")
SPARE_BYTES = 50_000


def redis_killed(setup: Setup) -> Crash:
    """`kill -9` of Redis."""
    crash = crash_of(setup.redis)

    async def and_back(chance: random.Random) -> float:
        return await crash(chance) + await setup.back()

    return and_back


def redis_stopped(setup: Setup, seconds: float) -> Crash:
    """SIGSTOP of Redis: nothing is answered, and nobody hangs up."""

    async def crash(_: random.Random) -> float:
        setup.redis.signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        if seconds > NOTICED_S_MAX / 2:
            await out(setup)
        await asyncio.sleep(stopped_at + seconds - time.monotonic())
        setup.redis.signal(signal.SIGCONT)
        return await setup.back()

    return crash


def replies_lost(setup: Setup) -> Crash:
    """The work is done and the answer is lost, again and again."""

    async def crash(chance: random.Random) -> float:
        for number in range(1, LOST_REPLIES + 1):
            setup.proxy.drop_reply(chance.randint(1, 4), SCRIPTS)
            lost = await setup.in_time(partial(has_lost, setup, number), NOTICED_S_MAX)
            setup.expect(lost, "no reply was lost: nothing was written any more")
        setup.figures.append(f"{setup.proxy.lost_replies} replies lost")
        return await setup.back()

    return crash


def reply_lost_and_killed(setup: Setup) -> Crash:
    """A reply is lost, and Redis dies before whoever asked can ask again; some times over."""

    async def crash(chance: random.Random) -> float:
        took_s = 0.0
        for number in range(1, LIVES_WITH_LOST_REPLY + 1):
            mark = WRITERS_THAT_REPEAT[number % len(WRITERS_THAT_REPEAT)]
            setup.proxy.drop_reply(1, mark, then_refuse=True)
            lost = await setup.in_time(partial(has_lost, setup, number), NOTICED_S_MAX)
            setup.expect(lost, "no reply was lost: nothing was written any more")
            took_s = await crash_of(setup.redis, early=0.0)(chance)
            setup.proxy.clear()
            took_s += await setup.back()
        setup.figures.append(f"{setup.proxy.lost_replies} replies lost")
        return took_s

    return crash


def half_open(setup: Setup) -> Crash:
    """Nothing arrives any more in either direction, and no end is seen."""

    async def crash(_: random.Random) -> float:
        setup.proxy.carry(up=BLACK_HOLE, down=BLACK_HOLE)
        await out(setup)
        setup.proxy.clear()
        return await setup.back()

    return crash


def flushed(setup: Setup) -> Crash:
    """FLUSHALL: definitions, messages and numbers are gone."""

    async def crash(_: random.Random) -> float:
        await tell_redis(setup, "FLUSHALL")
        return await setup.back()

    return crash


def stream_deleted(setup: Setup) -> Crash:
    """One topic's stream is deleted under readers."""

    async def crash(_: random.Random) -> float:
        await tell_redis(setup, f"DEL {{tidegate:{LONG}}}:stream")
        return await setup.back()

    return crash


def older_restored(setup: Setup, more_s: float) -> Crash:
    """Redis comes back with its files of a moment ago."""
    files, copy = setup.folder / "redis" / "appendonlydir", setup.folder / "older"

    async def crash(_: random.Random) -> float:
        setup.redis.signal(signal.SIGSTOP)  # so that the copy is of one moment
        shutil.copytree(files, copy)
        setup.redis.signal(signal.SIGCONT)
        await asyncio.sleep(more_s)
        await setup.redis.kill()
        shutil.rmtree(files)
        copy.rename(files)
        return await setup.redis.start() + await setup.back()

    return crash


def out_of_memory(setup: Setup) -> Crash:
    """`maxmemory` is reached, nothing may be evicted, and memory is given again."""

    async def crash(_: random.Random) -> float:
        found = (await tell_redis(setup, "INFO memory")).partition("used_memory:")[2]
        used_bytes = int(found.partition("\r")[0])
        await tell_redis(setup, f"CONFIG SET maxmemory {used_bytes + SPARE_BYTES}")
        await refused(setup, HANGS_S)
        await tell_redis(setup, "CONFIG SET maxmemory 0")
        return await setup.back()

    return crash


def redis_disk_full(setup: Setup) -> Crash:
    """The disk of Redis's files fills up, and room is made again."""
    ballast = setup.folder / "redis" / "ballast"

    async def crash(_: random.Random) -> float:
        fill(ballast)
        await refused(setup)
        ballast.unlink()
        return await setup.back()

    return crash


def failed_over(setup: Setup) -> Crash:
    """A replica that is behind takes the place of a Redis that is gone."""

    async def crash(_: random.Random) -> float:
        folder = setup.folder / "replica"
        folder.mkdir()
        given = ("--replicaof", "127.0.0.1", str(setup.redis.port))
        replica = RedisChild(redis_binary(), folder, setup.redis.fsync, *given)
        await setup.children.enter_async_context(replica)
        await replica.start()

        async def follows() -> bool:
            return b"master_link_status:up" in await ask(replica.port, INFO_REPLICATION)

        setup.expect(await setup.in_time(follows, NOTICED_S_MAX), "the replica never followed")
        replica.signal(signal.SIGSTOP)
        await asyncio.sleep(0.3)  # what is written now never comes to it
        await setup.redis.kill()
        replica.signal(signal.SIGCONT)
        await ask(replica.port, b"REPLICAOF NO ONE\r\nQUIT\r\n")
        setup.proxy.lead_to("127.0.0.1", replica.port)
        return await setup.back()

    return crash


def slow_line(setup: Setup, line: Line, seconds: float) -> Crash:
    """The road is slow, thin or in slices for a while."""

    async def crash(_: random.Random) -> float:
        setup.proxy.carry(up=line, down=line)
        await asyncio.sleep(seconds)
        setup.proxy.clear()
        return await setup.back()

    return crash


def resets(setup: Setup, seconds: float, every_s: float) -> Crash:
    """Every connection is reset many times a second."""

    async def crash(_: random.Random) -> float:
        before = setup.proxy.connections
        for _turn in range(int(seconds / every_s)):
            await asyncio.sleep(every_s)
            setup.proxy.reset()
        a_second = (setup.proxy.connections - before) / seconds
        setup.figures.append(f"{a_second:.0f} connections a second")
        return await setup.back()

    return crash


def has_lost(setup: Setup, replies: int) -> bool:
    """Whether the proxy has dropped so many replies."""
    return setup.proxy.lost_replies >= replies


async def refused(setup: Setup, within_s: float = NOTICED_S_MAX) -> None:
    """Refusals say that nothing can be written: publishing answers 503, and `/healthz` 200."""
    began_at = time.monotonic()
    happened = await setup.in_time(setup.refuses, within_s)
    setup.expect(happened, f"publishing answers {await setup.publish()} and not bus-unavailable")
    setup.figures.append(f"seen after {time.monotonic() - began_at:.1f} s")
    alive = await setup.status("/healthz")
    setup.expect(alive == OK, f"/healthz answers {alive}")


async def out(setup: Setup) -> None:
    """Publishing and `/readyz` say that the bus is out with 503, `/healthz` answers 200 (I26)."""
    await refused(setup)

    async def is_not_ready() -> bool:
        return await setup.status("/readyz") == UNAVAILABLE

    not_ready = await setup.in_time(is_not_ready, NOTICED_S_MAX)
    setup.expect(not_ready, f"/readyz answers {await setup.status('/readyz')}")


async def tell_redis(setup: Setup, command: str) -> str:
    """What Redis itself answers, past the proxy."""
    answer = await ask(setup.redis.port, f"{command}\r\nQUIT\r\n".encode())
    return answer.decode(errors="replace")
