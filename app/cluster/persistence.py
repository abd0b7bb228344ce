"""The durability of a Redis: a check of its settings, and the wait for its append-only file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from tidegate.app.cluster.connection import BusConnection, translate_errors
from tidegate.app.refusals import Unavailable
from tidegate.app.stores.store import StoreUnusable
from tidegate.app.timers import Backoff

EVICTION_NONE = "noeviction"
PROBE_MS = 10_000
CODE_CHARACTERS_MAX = 20

_REFUSALS = {
    "MISCONF": "it cannot save to its disk",
    "NOREPLICAS": "it has too few replicas",
    "NOPERM": "its user may not write",
}


async def check_server(connection: BusConnection, *, syncs_replicas: bool = False) -> None:
    """Check that the server is a Redis that gateways can share.

    Args:
        connection: to the server.
        syncs_replicas: whether the gateway will wait for the disks of replicas.

    Raises:
        StoreUnusable: one sentence that says what to use instead.
    """
    server = await connection.execute("INFO", "server")
    match server.get("redis_mode", "standalone"):
        case "sentinel":
            raise StoreUnusable(
                "the bus is a Sentinel, which stores nothing: "
                "write its address as redis+sentinel://HOST:PORT/SERVICE"
            )
        case "cluster":
            raise StoreUnusable(
                "the bus is a node of a Redis Cluster, which is not supported: use a single primary"
            )
    version = tuple(map(int, server["redis_version"].split(".")[:2]))
    if version < (6, 2):
        raise StoreUnusable("the bus needs Redis 6.2 or newer, or Valkey")
    if syncs_replicas and version < (7, 2):
        raise StoreUnusable(
            "durability=power with redis_replicas needs Redis 7.2 or newer, or Valkey"
        )


def persistence_fault(settings: Mapping[str, str], *, survives_power: bool) -> str:
    """Return what is wrong with the settings of a server, "" if nothing is.

    Redis has to keep acknowledged writes after `kill -9`, or also after a power loss.

    A setting that the server hides is assumed to be right only where less is promised.
    """
    if settings.get("maxmemory-policy", EVICTION_NONE) != EVICTION_NONE:
        return "the bus would evict messages: set maxmemory-policy noeviction in Redis"
    if settings.get("appendonly") != "yes":
        return "the bus forgets what it acknowledged when Redis dies: set appendonly yes in Redis"
    if survives_power and settings.get("appendfsync") != "always":
        return "durability=power needs a bus that syncs each write: set appendfsync always in Redis"
    return ""


def rejection_reason(error: ResponseError) -> str:
    """Return in a few words why a server rejected a valid write."""
    match error:
        case OutOfMemoryError():
            return "its memory is full"
        case ReadOnlyError():
            return "it is a replica"
        case _:
            code = str(error).partition(" ")[0]
            return _REFUSALS.get(code, f"it answers {code[:CODE_CHARACTERS_MAX]}")


async def read_settings(connection: BusConnection) -> Mapping[str, str]:
    """Read what a server promises with CONFIG, or from INFO where CONFIG is not permitted."""
    try:
        found: dict[str, str] = {}
        for pattern in ("append*", "maxmemory-policy"):
            found |= dict[str, str](await connection.execute("CONFIG GET", pattern))
        return found
    except ResponseError:
        persistence, memory = (
            await connection.writer.info("persistence"),
            await connection.writer.info("memory"),
        )
        settings = {"appendonly": "yes" if int(persistence["aof_enabled"]) else "no"}
        if "maxmemory_policy" in memory:
            settings["maxmemory-policy"] = memory["maxmemory_policy"]
        return settings


# Redis replies after its `write`, with two exceptions. With `appendfsync everysec` it delays writes
# for up to two seconds while a sync of the disk runs; `kill -9` then loses the delayed writes. And
# it begins a file anew after `appendonly yes` at run time, and as a replica that gets everything
# from its primary; until that file is whole, a start reads the one before, or none.

POLL_S, POLL_S_MAX = 0.005, 0.1
WRITE_S_MAX = 10.0
"""Longer than Redis ever delays a write."""


@dataclass(frozen=True, slots=True)
class LogState:
    """The append-only file: the bytes written to it and the bytes still buffered, in one life.

    The life is that of `LIFE` in the scripts: a file of another life may lack what this one had.
    `is_rewritten`: another file is being made, or will be.
    """

    life: str
    written_bytes: int
    waiting_bytes: int
    is_rewritten: bool = False

    @classmethod
    def parse(cls, info: Mapping[str, object]) -> Self:
        """Parse the reply of `INFO`; without such a file nothing is buffered."""
        life = "".join(str(info.get(name, ""))[:16] for name in ("run_id", "master_replid"))
        sizes = (info.get(name, 0) for name in ("aof_current_size", "aof_buffer_length"))
        rewrites = (info.get(f"aof_rewrite_{name}", 0) for name in ("in_progress", "scheduled"))
        written, waiting = (int(str(size)) for size in sizes)
        return cls(life, written, waiting, any(int(str(flag)) for flag in rewrites))

    def has_written(self, earlier: Self) -> bool:
        """Return whether the bytes buffered at an earlier state are written now.

        A rewrite of the file resets its size, so the caller must compare with a state after the
        rewrite.
        """
        end = earlier.written_bytes + earlier.waiting_bytes
        return self.waiting_bytes == 0 or self.written_bytes >= end


async def wait_until_written(connection: BusConnection, life: str, *, is_whole: bool) -> None:
    """Wait until Redis has written everything that it has acknowledged so far in a life.

    `is_whole`: its file was whole before, so nothing depends on a rewrite that may run.

    Raises:
        Refused: bus-unavailable; the data is stored, but would be lost if Redis died now, or Redis
            has died and whether it is stored is not known.
    """
    backoff = Backoff(POLL_S, POLL_S_MAX)
    last = begun = await _log_state(connection)
    try:
        async with asyncio.timeout(WRITE_S_MAX):
            while True:
                if last.life != life:
                    raise Unavailable("The bus died before it had written the change.")
                if (is_whole or not last.is_rewritten) and last.has_written(begun):
                    return
                await backoff.pause()
                before, last = last, await _log_state(connection)
                is_another = before.is_rewritten and not last.is_rewritten
                if is_another or last.written_bytes < before.written_bytes:
                    begun = last  # a rewrite reset the size: compare with the new file
    except TimeoutError:
        detail = "The change is stored, but the bus has not written it to its file yet."
        raise Unavailable(detail) from None


async def _log_state(connection: BusConnection) -> LogState:
    with translate_errors():
        return LogState.parse(await connection.execute("INFO"))


# Redis replicates after it has replied. A replica that takes over lacks what had not reached it.

REPLICAS_S_MAX = 4.0
"""Shorter than the time limit of a command."""
REPLICAS_AGAIN_S_MAX = 1.5
"""While they did not answer the last time; a replica says each second what is on its disk."""


class Durability:
    """Waits until what was written survives the death of Redis, or also of its primary.

    `fault` says that too few replicas answered the last time, until as many do: who writes then
    would wait in vain.
    """

    def __init__(self, connection: BusConnection, replicas: int, *, survives_power: bool) -> None:
        """Wait for nothing yet.

        Args:
            connection: to the primary.
            replicas: how many replicas must have what was written.
            survives_power: whether they must have it on their disks (`WAITAOF`), the primary too.
        """
        self._connection = connection
        self._replicas = replicas
        self._survives_power = survives_power
        self.fault = ""
        self._whole_life = ""  # in which the file was seen whole, so a rewrite has one to replace
        self._forgotten = 0
        self._round: asyncio.Task[Reached] | None = None
        self._next_round: asyncio.Task[Reached] | None = None

    def forget(self) -> None:
        """Take the file for another one, as Redis begins with `appendonly yes` at run time."""
        self._whole_life = ""
        self._forgotten += 1

    async def wait(self, life: str, *, is_unwritten: bool = True) -> None:
        """Wait for everything that Redis has acknowledged so far in a life.

        Args:
            life: of the server that acknowledged.
            is_unwritten: False if its file is known to have everything.

        Raises:
            Refused: bus-unavailable; the data is stored, but would be lost if Redis died now, or
                Redis has died and whether it is stored is not known.
        """
        forgotten = self._forgotten
        if is_unwritten:
            is_whole = self._whole_life == life
            await wait_until_written(self._connection, life, is_whole=is_whole)
        if forgotten == self._forgotten:
            self._whole_life = life
        if self._replicas:
            await self._wait_for_replicas(life)

    def ask_again(self) -> None:
        """Find out in the background whether replicas that did not answer do so again."""
        if self.fault and (self._round is None or self._round.done()):
            self._begin_round()

    def _begin_round(self) -> asyncio.Task[Reached]:
        # All that come while a round runs share the next one: each occupies a connection.
        if self._next_round is None:
            self._next_round = asyncio.create_task(self._reach(self._round))
            self._next_round.add_done_callback(_retrieve)
        return self._next_round

    async def _wait_for_replicas(self, life: str) -> None:
        reached = await asyncio.shield(self._begin_round())
        if reached.life != life:
            raise Unavailable("The bus died before its replicas had the change.")
        if reached.replicas < self._replicas:
            counts = f"{reached.replicas} of {self._replicas} replicas have"
            raise Unavailable(f"Only {counts} what is stored; try again.")

    async def _reach(self, before: asyncio.Task[Reached] | None) -> Reached:
        if before is not None:
            await asyncio.wait([before])
        self._round, self._next_round = self._next_round, None
        reached = await self._ask_replicas()
        is_enough = reached.replicas >= self._replicas
        counts = f"{reached.replicas} of {self._replicas} replicas of the bus answer"
        self.fault = "" if is_enough else counts
        return reached

    async def _ask_replicas(self) -> Reached:
        waiting_s = min(REPLICAS_S_MAX, REPLICAS_AGAIN_S_MAX) if self.fault else REPLICAS_S_MAX
        waiting_ms = round(waiting_s * 1_000)
        with translate_errors():
            # On one connection: Redis waits for what that connection has written last.
            async with self._connection.writer.pipeline(transaction=False) as step:
                step.set(probe_key(self._connection), "", px=PROBE_MS)
                step.info()
                if self._survives_power:
                    step.execute_command("WAITAOF", 1, self._replicas, waiting_ms)
                else:
                    step.execute_command("WAIT", self._replicas, waiting_ms)
                _, info, reached = await step.execute()
        count = reached[1] if self._survives_power else reached
        return Reached(LogState.parse(info).life, int(count))


class Reached(NamedTuple):
    """How many replicas have what was written in a life."""

    life: str
    replicas: int


def _retrieve(round_: asyncio.Task[Reached]) -> None:
    # Those who waited may have gone: the error of a round is then nobody's.
    if not round_.cancelled():
        round_.exception()


async def replicas_missing(connection: BusConnection, replicas: int) -> str:
    """Return what is wrong with the number of replicas that are connected, "" if nothing is."""
    found = int((await connection.execute("INFO", "replication"))["connected_slaves"])
    if found >= replicas:
        return ""
    return f"the bus has {found} replicas, and redis_replicas asks for {replicas}"


def probe_key(connection: BusConnection) -> str:
    """Return the key that gateways write in order to see whether they can."""
    return connection.shared_key("probe")
