"""Faults of the bus: of Redis itself, and of the road to it."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import time
from functools import partial

from tests.faults.kinds.gateway_faults import NOTICED_S_MAX, fill
from tests.faults.stages.children import RedisChild, ask
from tests.faults.stages.stage import OK, UNAVAILABLE, Stage, redis_binary
from tests.faults.stages.world import LONG
from tests.faults.voyage import Crash, crash_of
from tests.support.deadlines import HANGS_S
from tests.support.network.fault_proxy import BLACK_HOLE, Line

SCRIPTS = b"EVALSHA"
INFO_REPLICATION = b"INFO replication\r\nQUIT\r\n"
LOST_REPLIES = 12
LIVES_WITH_LOST_REPLY = 4
WRITERS_THAT_REPEAT = (b"long-keyed", b"long-numbered")
SPARE_BYTES = 50_000


def redis_killed(stage: Stage) -> Crash:
    """`kill -9` of Redis."""
    crash = crash_of(stage.redis)

    async def and_back(chance: random.Random) -> float:
        return await crash(chance) + await stage.back()

    return and_back


def redis_stopped(stage: Stage, seconds: float) -> Crash:
    """SIGSTOP of Redis: nothing is answered, and nobody hangs up."""

    async def crash(_: random.Random) -> float:
        stage.redis.signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        if seconds > NOTICED_S_MAX / 2:
            await out(stage)
        await asyncio.sleep(stopped_at + seconds - time.monotonic())
        stage.redis.signal(signal.SIGCONT)
        return await stage.back()

    return crash


def replies_lost(stage: Stage) -> Crash:
    """The work is done and the answer is lost, again and again."""

    async def crash(chance: random.Random) -> float:
        for number in range(1, LOST_REPLIES + 1):
            stage.proxy.drop_reply(chance.randint(1, 4), SCRIPTS)
            lost = await stage.in_time(partial(has_lost, stage, number), NOTICED_S_MAX)
            stage.expect(lost, "no reply was lost: nothing was written any more")
        stage.figures.append(f"{stage.proxy.lost_replies} replies lost")
        return await stage.back()

    return crash


def reply_lost_and_killed(stage: Stage) -> Crash:
    """A reply is lost, and Redis dies before whoever asked can ask again; some times over."""

    async def crash(chance: random.Random) -> float:
        took_s = 0.0
        for number in range(1, LIVES_WITH_LOST_REPLY + 1):
            mark = WRITERS_THAT_REPEAT[number % len(WRITERS_THAT_REPEAT)]
            stage.proxy.drop_reply(1, mark, then_refuse=True)
            lost = await stage.in_time(partial(has_lost, stage, number), NOTICED_S_MAX)
            stage.expect(lost, "no reply was lost: nothing was written any more")
            took_s = await crash_of(stage.redis, early=0.0)(chance)
            stage.proxy.clear()
            took_s += await stage.back()
        stage.figures.append(f"{stage.proxy.lost_replies} replies lost")
        return took_s

    return crash


def half_open(stage: Stage) -> Crash:
    """Nothing arrives any more in either direction, and no end is told."""

    async def crash(_: random.Random) -> float:
        stage.proxy.carry(up=BLACK_HOLE, down=BLACK_HOLE)
        await out(stage)
        stage.proxy.clear()
        return await stage.back()

    return crash


def flushed(stage: Stage) -> Crash:
    """FLUSHALL: definitions, messages and numbers are gone."""

    async def crash(_: random.Random) -> float:
        await tell_redis(stage, "FLUSHALL")
        return await stage.back()

    return crash


def stream_deleted(stage: Stage) -> Crash:
    """One topic's stream is deleted under readers."""

    async def crash(_: random.Random) -> float:
        await tell_redis(stage, f"DEL {{tidegate:{LONG}}}:stream")
        return await stage.back()

    return crash


def older_restored(stage: Stage, more_s: float) -> Crash:
    """Redis comes back with its files of a moment ago."""
    files, copy = stage.folder / "redis" / "appendonlydir", stage.folder / "older"

    async def crash(_: random.Random) -> float:
        stage.redis.signal(signal.SIGSTOP)  # so that the copy is of one moment
        shutil.copytree(files, copy)
        stage.redis.signal(signal.SIGCONT)
        await asyncio.sleep(more_s)
        await stage.redis.kill()
        shutil.rmtree(files)
        copy.rename(files)
        return await stage.redis.start() + await stage.back()

    return crash


def out_of_memory(stage: Stage) -> Crash:
    """`maxmemory` is reached, nothing may be evicted, and memory is given again."""

    async def crash(_: random.Random) -> float:
        found = (await tell_redis(stage, "INFO memory")).partition("used_memory:")[2]
        used_bytes = int(found.partition("\r")[0])
        await tell_redis(stage, f"CONFIG SET maxmemory {used_bytes + SPARE_BYTES}")
        await refused(stage, HANGS_S)
        await tell_redis(stage, "CONFIG SET maxmemory 0")
        return await stage.back()

    return crash


def redis_disk_full(stage: Stage) -> Crash:
    """The disk of Redis's files fills up, and room is made again."""
    ballast = stage.folder / "redis" / "ballast"

    async def crash(_: random.Random) -> float:
        fill(ballast)
        await refused(stage)
        ballast.unlink()
        return await stage.back()

    return crash


def failed_over(stage: Stage) -> Crash:
    """A replica that is behind takes the place of a Redis that is gone."""

    async def crash(_: random.Random) -> float:
        folder = stage.folder / "replica"
        folder.mkdir()
        given = ("--replicaof", "127.0.0.1", str(stage.redis.port))
        replica = RedisChild(redis_binary(), folder, stage.redis.fsync, *given)
        await stage.children.enter_async_context(replica)
        await replica.start()

        async def follows() -> bool:
            return b"master_link_status:up" in await ask(replica.port, INFO_REPLICATION)

        stage.expect(await stage.in_time(follows, NOTICED_S_MAX), "the replica never followed")
        replica.signal(signal.SIGSTOP)
        await asyncio.sleep(0.3)  # what is written now never comes to it
        await stage.redis.kill()
        replica.signal(signal.SIGCONT)
        await ask(replica.port, b"REPLICAOF NO ONE\r\nQUIT\r\n")
        stage.proxy.lead_to("127.0.0.1", replica.port)
        return await stage.back()

    return crash


def slow_line(stage: Stage, line: Line, seconds: float) -> Crash:
    """The road is slow, thin or in slices for a while."""

    async def crash(_: random.Random) -> float:
        stage.proxy.carry(up=line, down=line)
        await asyncio.sleep(seconds)
        stage.proxy.clear()
        return await stage.back()

    return crash


def resets(stage: Stage, seconds: float, every_s: float) -> Crash:
    """Every connection is reset many times a second."""

    async def crash(_: random.Random) -> float:
        before = stage.proxy.connections
        for _turn in range(int(seconds / every_s)):
            await asyncio.sleep(every_s)
            stage.proxy.reset()
        a_second = (stage.proxy.connections - before) / seconds
        stage.figures.append(f"{a_second:.0f} connections a second")
        return await stage.back()

    return crash


def has_lost(stage: Stage, replies: int) -> bool:
    """Whether the proxy has dropped so many replies."""
    return stage.proxy.lost_replies >= replies


async def refused(stage: Stage, within_s: float = NOTICED_S_MAX) -> None:
    """That nothing can be written is told: publishing answers 503, and `/healthz` 200."""
    began_at = time.monotonic()
    happened = await stage.in_time(stage.refuses, within_s)
    stage.expect(happened, f"publishing answers {await stage.publish()} and not bus-unavailable")
    stage.figures.append(f"told after {time.monotonic() - began_at:.1f} s")
    alive = await stage.status("/healthz")
    stage.expect(alive == OK, f"/healthz answers {alive}")


async def out(stage: Stage) -> None:
    """That the bus is out is told: publishing and `/readyz` answer 503, `/healthz` 200 (I26)."""
    await refused(stage)

    async def is_not_ready() -> bool:
        return await stage.status("/readyz") == UNAVAILABLE

    not_ready = await stage.in_time(is_not_ready, NOTICED_S_MAX)
    stage.expect(not_ready, f"/readyz answers {await stage.status('/readyz')}")


async def tell_redis(stage: Stage, command: str) -> str:
    """What Redis itself answers, past the proxy."""
    answer = await ask(stage.redis.port, f"{command}\r\nQUIT\r\n".encode())
    return answer.decode(errors="replace")
