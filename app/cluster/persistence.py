"""The durability of a Redis: a check of its settings, and the wait for its append-only file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from tidegate.app.cluster.connection import BusConnection, bus_unavailable, translate_errors
from tidegate.app.delivery.timers import Backoff
from tidegate.app.stores.store import StoreUnusable

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


class AppendOnlyFile:
    """Waits for what Redis has acknowledged before its file has it."""

    def __init__(self, connection: BusConnection) -> None:
        self._connection = connection
        self._whole_life = ""  # in which the file was seen whole, so a rewrite has one to replace

    async def wait(self, life: str, *, is_unwritten: bool) -> None:
        """Wait for what a script has written in a life, where it says that this is to be done.

        Raises:
            Problem: as `wait_until_written`.
        """
        if is_unwritten:
            is_whole = self._whole_life == life
            await wait_until_written(self._connection, life, is_whole=is_whole)
        self._whole_life = life

    def forget(self) -> None:
        """Take the file for another one, as Redis begins with `appendonly yes` at run time."""
        self._whole_life = ""


async def wait_until_written(connection: BusConnection, life: str, *, is_whole: bool) -> None:
    """Wait until Redis has written everything that it has acknowledged so far in a life.

    `is_whole`: its file was whole before, so nothing depends on a rewrite that may run.

    Raises:
        Problem: bus-unavailable; the data is stored, but would be lost if Redis died now, or Redis
            has died and whether it is stored is not known.
    """
    backoff = Backoff(POLL_S, POLL_S_MAX)
    last = begun = await _log_state(connection)
    try:
        async with asyncio.timeout(WRITE_S_MAX):
            while True:
                if last.life != life:
                    detail = "The bus died before it had written the messages; they may be missing."
                    raise bus_unavailable(detail)
                if (is_whole or not last.is_rewritten) and last.has_written(begun):
                    return
                await backoff.pause()
                before, last = last, await _log_state(connection)
                is_another = before.is_rewritten and not last.is_rewritten
                if is_another or last.written_bytes < before.written_bytes:
                    begun = last  # a rewrite reset the size: compare with the new file
    except TimeoutError:
        detail = "The messages are stored, but the bus has not written them to its file yet."
        raise bus_unavailable(detail) from None


async def _log_state(connection: BusConnection) -> LogState:
    with translate_errors():
        return LogState.parse(await connection.execute("INFO"))


# Redis replicates after it has replied. A replica that takes over lacks what had not reached it.

REPLICAS_S_MAX = 4.0
"""Shorter than the time limit of a command."""


async def wait_for_replicas(
    connection: BusConnection, life: str, replicas: int, *, to_disk: bool
) -> None:
    """Wait until replicas have everything that Redis has acknowledged so far in a life.

    Args:
        connection: to the primary.
        life: of the server that acknowledged.
        replicas: how many.
        to_disk: whether they must have synced it to their disks (`WAITAOF`), and the primary too.

    Raises:
        Problem: bus-unavailable; the data is stored, but would be lost if the primary died now, or
            Redis has died and whether it is stored is not known.
    """
    waiting_ms = round(REPLICAS_S_MAX * 1_000)
    with translate_errors():
        # On one connection: Redis waits for what that connection has written last.
        async with connection.writer.pipeline(transaction=False) as step:
            step.set(probe_key(connection), "", px=PROBE_MS)
            step.info()
            if to_disk:
                step.execute_command("WAITAOF", 1, replicas, waiting_ms)
            else:
                step.execute_command("WAIT", replicas, waiting_ms)
            _, info, reached = await step.execute()
    if LogState.parse(info).life != life:
        detail = "The bus died before its replicas had the messages; they may be missing."
        raise bus_unavailable(detail)
    count = int(reached[1] if to_disk else reached)
    if count < replicas:
        detail = f"The messages are stored, but {count} of {replicas} replicas have them."
        raise bus_unavailable(detail)


def probe_key(connection: BusConnection) -> str:
    """Return the key that gateways write in order to see whether they can."""
    return connection.shared_key("probe")
