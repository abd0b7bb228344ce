"""What a Redis keeps when it dies, asked at the start: it may promise no less than we do."""

from __future__ import annotations

from collections.abc import Mapping

from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from app.bus.connection import BusConnection
from app.stores.store import StoreUnusable

EVICTION_NONE = "noeviction"
CODE_CHARACTERS_MAX = 20

_REFUSALS = {
    "MISCONF": "it cannot save to its disk",
    "NOREPLICAS": "it has too few replicas",
    "NOPERM": "its user may not write",
}


async def check_persistence(connection: BusConnection, *, survives_power: bool) -> None:
    """Whether what it acknowledges is there after `kill -9`, or after loss of power too.

    Raises:
        StoreUnusable: one sentence that says what to set.
    """
    if int((await connection.ask("INFO", "server"))["redis_version"].split(".")[0]) < 6:
        raise StoreUnusable("the bus needs Redis 6.2 or newer, or Valkey")
    fault = persistence_fault(await _settings(connection), survives_power=survives_power)
    if fault:
        raise StoreUnusable(fault)


def persistence_fault(settings: Mapping[str, str], *, survives_power: bool) -> str:
    """What is wrong with these settings of a server, "" if nothing is.

    A setting that is not among them cannot be seen, and is believed only where less is promised.
    """
    if settings.get("maxmemory-policy", EVICTION_NONE) != EVICTION_NONE:
        return "the bus would evict messages: set maxmemory-policy noeviction in Redis"
    if settings.get("appendonly") != "yes":
        return "the bus forgets what it acknowledged when Redis dies: set appendonly yes in Redis"
    if survives_power and settings.get("appendfsync") != "always":
        return "durability=power needs a bus that syncs each write: set appendfsync always in Redis"
    return ""


def refusal_of(error: ResponseError) -> str:
    """Why a server refuses a write that it could read, in a few words."""
    match error:
        case OutOfMemoryError():
            return "its memory is full"
        case ReadOnlyError():
            return "it is a replica"
        case _:
            code = str(error).partition(" ")[0]
            return _REFUSALS.get(code, f"it answers {code[:CODE_CHARACTERS_MAX]}")


async def syncs_every_write(connection: BusConnection) -> bool:
    """Whether nothing is lost even with the machine, so that an epoch outlives its process."""
    settings = await _settings(connection)
    return settings.get("appendonly") == "yes" and settings.get("appendfsync") == "always"


async def _settings(connection: BusConnection) -> Mapping[str, str]:
    """Its settings; where CONFIG is not permitted, what INFO tells of them."""
    try:
        found: dict[str, str] = {}
        for pattern in ("append*", "maxmemory-policy"):
            found |= dict[str, str](await connection.ask("CONFIG GET", pattern))
        return found
    except ResponseError:
        persistence, memory = (
            await connection.writer.info("persistence"),
            await connection.writer.info("memory"),
        )
        told = {"appendonly": "yes" if int(persistence["aof_enabled"]) else "no"}
        if "maxmemory_policy" in memory:
            told["maxmemory-policy"] = memory["maxmemory_policy"]
        return told
