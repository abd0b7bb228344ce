"""Written: whether what a server has answered is out of its own memory.

Redis answers behind its `write`, but for one case: with `appendfsync everysec` it puts writes off
for up to two seconds while a sync of the disk goes on. `kill -9` takes along what is put off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from app.bus.connection import BusConnection, reaching
from app.problems import Problem

LOOK_S, LOOK_S_MAX = 0.005, 0.1
PATIENCE_S = 10.0
"""More than Redis puts a write off for."""


@dataclass(frozen=True, slots=True)
class LogState:
    """An append-only file: the bytes that are in it, and those that are still to be written."""

    written_bytes: int
    waiting_bytes: int

    @classmethod
    def of(cls, told: Mapping[str, object]) -> Self:
        """From `INFO persistence`; nothing waits where there is no such file."""
        sizes = (told.get(name, 0) for name in ("aof_current_size", "aof_buffer_length"))
        return cls(*(int(str(size)) for size in sizes))

    def has_written(self, earlier: Self) -> bool:
        """Whether all is written that waited then. A file that was rewritten does not tell."""
        end = earlier.written_bytes + earlier.waiting_bytes
        return self.waiting_bytes == 0 or self.written_bytes >= end


async def written(connection: BusConnection) -> None:
    """Until all is written that the server has answered so far.

    Raises:
        Problem: bus-unavailable; it is there, and may go with the server.
    """
    pause_s, begun = LOOK_S, await _look(connection)
    last = begun
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not last.has_written(begun):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LOOK_S_MAX)
                before, last = last, await _look(connection)
                if last.written_bytes < before.written_bytes:
                    begun = last  # the file was rewritten meanwhile, and counts anew
    except TimeoutError:
        detail = "It is stored, but the bus has not written it yet."
        raise Problem("bus-unavailable", detail, headers={"Retry-After": "1"}) from None


async def _look(connection: BusConnection) -> LogState:
    with reaching():
        return LogState.of(await connection.ask("INFO", "persistence"))
