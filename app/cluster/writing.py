"""Writing to Redis where the connection is lost already, which some versions of Python mistake."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as ConnectionLost

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection


@cache
def failing_at_write(base: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a class of connections whose writes fail as redis-py says, whatever Python raises.

    `writelines` of a stream that was lost raises AttributeError or TypeError in Python 3.12 and
    3.13, up to the release in which it was mended, and redis-py lets those pass.
    """

    class FailingAtWrite(base):  # type: ignore[misc,valid-type]  # chosen at run time
        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            try:
                await super().send_packed_command(command, check_health)
            except (AttributeError, TypeError) as error:  # the command was packed before
                raise ConnectionLost("the connection was lost before a write") from error

    return FailingAtWrite
