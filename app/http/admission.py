"""Admission: how many connections there may be, and how many streams begin at a time."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tidegate.app.http.connection import NO_DESCRIPTOR, Connection, WriteWatch
from tidegate.app.http.telemetry import ConnectionFigures

# A limit that refused connections outright would refuse health checks too. So this many beyond it
# are read for one request: health checks are answered, others get a 429.
WAITING_CONNECTIONS_MAX: Final = 32
HEALTH_PATHS: Final = frozenset({b"/healthz", b"/readyz", b"/metrics"})
CONNECTIONS: Final = "connections"
ADDRESS: Final = "address"
IPV6_NETWORK_BITS: Final = 64  # what one customer has


class ConnectionLimits:
    """Counts connections in and out.

    Args:
        figures: has the bound, and keeps the counts.
        per_address_max: of these from one address (IPv6: one network of 64 bits); 0 for any.
    """

    def __init__(self, figures: ConnectionFigures, per_address_max: int = 0) -> None:
        self._figures = figures
        self._per_address_max = per_address_max
        self._admitted: dict[Connection, str] = {}
        self._per_address: dict[str, int] = {}
        self._waiting: dict[Connection, str] = {}  # oldest first

    def enter(self, connection: Connection, address: str) -> None:
        """Count an accepted connection. If too many wait for admission, abort the oldest."""
        self._figures.connections += 1
        origin = _origin(address) if self._per_address_max else ""
        if self._has_room(origin):
            self._admit(connection, origin)
            return
        self._waiting[connection] = origin
        if len(self._waiting) > WAITING_CONNECTIONS_MAX:
            oldest = next(iter(self._waiting))
            self.refuse(oldest)
            del self._waiting[oldest]
            oldest.abort()

    def admits(self, connection: Connection) -> bool:
        """Admit a connection if there is room, and return whether it is admitted."""
        origin = self._waiting.get(connection)
        if origin is not None and self._has_room(origin):
            del self._waiting[connection]
            self._admit(connection, origin)
        return connection in self._admitted

    def refuse(self, connection: Connection) -> None:
        """Count a waiting connection as refused for want of room."""
        reason = self._full_limit(self._waiting.get(connection, "")) or CONNECTIONS
        self._figures.refused_by[reason] += 1

    def leave(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._figures.connections -= 1
        self._waiting.pop(connection, None)
        origin = self._admitted.pop(connection, None)
        if origin is None:
            return
        self._per_address[origin] -= 1
        if not self._per_address[origin]:
            del self._per_address[origin]

    def _has_room(self, origin: str) -> bool:
        return not self._full_limit(origin)

    def _full_limit(self, origin: str) -> str:
        """Return which limit leaves no room for one more; "" if neither."""
        if len(self._admitted) >= self._figures.connections_max:
            return CONNECTIONS
        of_origin = self._per_address.get(origin, 0)
        is_full = self._per_address_max and of_origin >= self._per_address_max
        return ADDRESS if is_full else ""

    def _admit(self, connection: Connection, origin: str) -> None:
        self._admitted[connection] = origin
        self._per_address[origin] = self._per_address.get(origin, 0) + 1


def _origin(address: str) -> str:
    """Return what counts as one address."""
    if ":" not in address:
        return address
    whole = int(ipaddress.IPv6Address(address.partition("%")[0]))
    return str(whole >> (128 - IPV6_NETWORK_BITS))


class HandedOver(NamedTuple):
    """A connection that a stream has taken over.

    Args:
        transport: to write to; its buffer is full if `is_paused`.
        connection: what is below the transport.
        write_watch: needs a call after each write.
        limits: count the connection until it is lost.
        served: what the server calls at a shutdown, and waits for.
    """

    transport: asyncio.Transport
    connection: Connection
    write_watch: WriteWatch
    limits: ConnectionLimits
    served: set[Any]
    is_paused: bool

    @property
    def descriptor(self) -> int:
        """The socket's number, to write to while nothing waits in the transport, or none."""
        is_plain = self.transport.get_extra_info("sslcontext") is None
        return self.connection.descriptor if is_plain else NO_DESCRIPTOR

    def write(self, framed: bytes) -> None:
        """Hand bytes to the transport, under the watch."""
        self.transport.write(framed)
        self.write_watch.note_write(self.connection)

    def leave(self, stream: asyncio.Protocol) -> None:
        """Forget the connection: it is lost."""
        self.limits.leave(self.connection)
        self.served.discard(stream)


# One opening costs a third of a millisecond, so these cost as much as a turn of the streams. No
# fewer than connections are accepted in a turn: those beyond would wait here, and take memory.
OPENINGS_A_TURN: Final = 16


class OpeningPace:
    """Begins the requests for streams, a few in each turn of the loop, in the order they came.

    After a restart all clients come back at once. Begun as they come, thousands of openings would
    stand in one turn of the loop, and flushes to the clients that are there, publishes and health
    checks would wait for all of them. Requests that wait have been read and hold no task.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._left = OPENINGS_A_TURN  # that may begin before the loop's next turn
        self._is_called = False

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def begin(self, opening: Callable[[], None]) -> None:
        """Call what begins a stream, now or in its turn."""
        if self._left:  # then nobody waits
            self._left -= 1
            opening()
        else:
            self._waiting.append(opening)
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Begin the next ones: the loop has served all others since the last call."""
        begun = min(OPENINGS_A_TURN, len(self._waiting))
        self._left = OPENINGS_A_TURN - begun
        # Called again also after the last ones: what comes until then is of the same turn.
        self._is_called = begun > 0
        if begun:
            asyncio.get_running_loop().call_soon(self._turn)
        for _ in range(begun):
            self._waiting.popleft()()
