"""Admission: how many connections there may be, and how many requests begin in an iteration."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import httptools

from tidegate.app.figures import ADDRESS, CONNECTIONS, ConnectionFigures
from tidegate.app.http.problems import STREAMS
from tidegate.app.http.requests import has_ending
from tidegate.app.http.wire import Fields, cors_fields, too_many_connections
from tidegate.app.streams.connection import Connection

# A limit that refused connections outright would refuse health checks too. So this many beyond it
# are read for one request: health checks are answered, others get a 429.
WAITING_CONNECTIONS_MAX: Final = 32
HEALTH_PATHS: Final = frozenset({b"/healthz", b"/readyz", b"/metrics"})
SETTING_OF: Final = {CONNECTIONS: "connections_max", ADDRESS: "connections_per_address_max"}
IPV6_NETWORK_BITS: Final = 64  # what one customer has
MESSAGES: Final = "/messages"  # how the paths of publishes end


class ConnectionLimits:
    """Counts connections in and out.

    Args:
        figures: has the bound, and keeps the counts.
        per_address_max: the most from one address (IPv6: a network of 64 bits); 0: no limit.
    """

    def __init__(self, figures: ConnectionFigures, per_address_max: int = 0) -> None:
        self._figures = figures
        self._per_address_max = per_address_max
        self._admitted: dict[Connection, str] = {}
        self._per_address: dict[str, int] = {}
        self._waiting: dict[Connection, str] = {}  # oldest first
        self._refused: set[Connection] = set()  # of those that wait: they have their answer

    def enter(self, connection: Connection, address: str) -> None:
        """Count an accepted connection. If too many wait for admission, abort the oldest.

        `address`: empty for a trusted proxy, of whose connections `attribute` knows the client.
        """
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

    def attribute(self, connection: Connection, address: str) -> None:
        """Count a proxy's connection to the client whose request it brings now."""
        origin = _origin(address) if self._per_address_max else ""
        if connection in self._waiting:
            self._waiting[connection] = origin
        elif self._admitted.get(connection, origin) != origin:
            self._release(connection)
            if self._has_room(origin):
                self._admit(connection, origin)
            else:
                self._waiting[connection] = origin

    def refusal(
        self, connection: Connection, target: bytes, fields: Fields, origins: Sequence[str]
    ) -> bytes:
        """Refuse a waiting connection; return the answer to its request, b"" for a health check.

        `origins`: whose pages may read the answer.
        """
        path = httptools.parse_url(target).path or b""
        if path in HEALTH_PATHS:
            return b""
        setting = self.refuse(connection)
        accepts = [value for name, value in fields if name == b"accept"]
        return too_many_connections(setting, path, accepts, cors_fields(origins, fields))

    def refuse(self, connection: Connection) -> str:
        """Count a waiting connection as refused for want of room, once; return the setting."""
        reason = self._full_limit(self._waiting.get(connection, "")) or CONNECTIONS
        if connection not in self._refused:  # one that lingers after its answer may be cut, too
            self._refused.add(connection)
            self._figures.refused_by[reason] += 1
        return SETTING_OF[reason]

    def leave(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._figures.connections -= 1
        self._figures.ended += 1
        self._waiting.pop(connection, None)
        self._refused.discard(connection)
        self._release(connection)

    def _release(self, connection: Connection) -> None:
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
        is_full = origin and of_origin >= self._per_address_max
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


# How many requests of one kind begin in an event-loop iteration. All other clients wait for them:
# a plain publish takes 0.1 ms, a plain opening 0.3 ms. A request that needs the application may
# take several milliseconds, so it is the last of its kind in its iteration.
BEGUN_MAX: Final = 4


class IterationLimit:
    """Begins a few requests in each event-loop iteration; the others wait in order.

    A connection has at most one request here, so connections take turns, however many requests each
    of them has pipelined. Requests that wait have been read and hold no task.
    """

    def __init__(self) -> None:
        self._left = BEGUN_MAX
        self._waiting: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    def begin(self, request: Callable[[], None]) -> None:
        """Call what begins a request, now or in one of the next iterations."""
        if self._waiting or not self._left:
            self._waiting.append(request)
        else:
            self._begin(request)

    def exhaust(self) -> None:
        """Let the request that begins be the last one of this iteration."""
        if self._left:
            self._left = 0
            asyncio.get_running_loop().call_soon(self._renew)

    def _begin(self, request: Callable[[], None]) -> None:
        self._left -= 1
        if not self._left:
            # Not before: another iteration costs as much as a tenth of a plain request. And not
            # after the request: one that fails must not keep the others waiting.
            asyncio.get_running_loop().call_soon(self._renew)
        request()

    def _renew(self) -> None:
        self._left = BEGUN_MAX
        while self._left and self._waiting:
            self._begin(self._waiting.popleft())


class RequestLimits:
    """How many requests of each kind begin in an event-loop iteration.

    Publishes wait behind no openings, of which a restart brings thousands, and behind no queries.
    """

    def __init__(self) -> None:
        self.publishes, self.openings, self.others = (IterationLimit() for _ in range(3))

    def limit_of(self, method: str, path: str) -> IterationLimit:
        """Return the limit that a request counts against."""
        if has_ending(path, STREAMS):
            return self.openings
        is_publish = method == "POST" and path.endswith(MESSAGES)
        return self.publishes if is_publish else self.others
