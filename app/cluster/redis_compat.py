"""Workarounds for redis-py: writes to a lost connection, and cancellations that it drops."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as ConnectionLost

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection


@cache
def reporting_lost_writes(base: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a subclass of a connection class that raises ConnectionLost if a write fails.

    From Python 3.12 to 3.14.0, `StreamWriter.writelines` raises AttributeError or TypeError on a
    connection that is already lost (python/cpython issue 136234; 3.12 keeps the bug). redis-py 8
    catches only OSError and timeouts there, so that its callers would not retry.
    """

    class ReportingLostWrites(base):  # type: ignore[misc,valid-type]  # chosen at run time
        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            try:
                await super().send_packed_command(command, check_health)
            except (AttributeError, TypeError) as error:  # the command was packed before
                raise ConnectionLost("the connection was lost before a write") from error

    return ReportingLostWrites


def raise_if_cancelled() -> None:
    """Raise a cancellation that redis-py dropped; call it in each iteration of a Redis loop.

    redis-py drops a cancellation that arrives while it checks whether an idle connection is alive.

    Raises:
        CancelledError: the task was cancelled and has not noticed.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
