"""Admission: how many connections there may be, and how many requests begin at a time."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final

import httptools

from tidegate.app.figures import ADDRESS, CONNECTIONS, ConnectionFigures
from tidegate.app.http.problems import STREAMS
from tidegate.app.http.wire import Fields, cors_fields, too_many_connections
from tidegate.app.streams.connection import Connection

# A limit that refused connections outright would refuse health checks too. So this many beyond it
# are read for one request: health checks are answered, others get a 429.
WAITING_CONNECTIONS_MAX: Final = 32
HEALTH_PATHS: Final = frozenset({b"/healthz", b"/readyz", b"/metrics"})
SETTING_OF: Final = {CONNECTIONS: "connections_max", ADDRESS: "connections_per_address_max"}
IPV6_NETWORK_BITS: Final = 64  # what one customer has


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
        """Count a waiting connection as refused for want of room; return the limit's setting."""
        reason = self._full_limit(self._waiting.get(connection, "")) or CONNECTIONS
        self._figures.refused_by[reason] += 1
        return SETTING_OF[reason]

    def leave(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._figures.connections -= 1
        self._waiting.pop(connection, None)
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


# How much CPU time the requests of one turn may take together; one may take longer. After it others
# have a few turns for themselves: a publish and its flush take four, and meet one such request, not
# four. A turn without requests costs some 20 us.
TURN_S: Final = 0.001
REST_TURNS: Final = 3
REQUESTS_A_TURN_MAX: Final = 16
_WEIGHT: Final = 1 / 8  # of the latest turn in the mean


class Pace:
    """Begins requests: in each turn of the loop as many as take a millisecond, the others in order.

    Begun as they come, those of twenty connections, or of all clients after a restart, would stand
    in one turn, before whatever a good client waits for. Requests that wait have been read and hold
    no task.

    Args:
        rest_turns: without another request, after one that took half a millisecond or more.
    """

    def __init__(self, rest_turns: int = 0) -> None:
        # Its place in the order; a number, so that equal places keep it; what begins the request.
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._begun = 0
        self._begun_before = 0  # the latest turn
        self._began_at_s = 0.0
        self._cost_s = TURN_S / REQUESTS_A_TURN_MAX  # of one request, and of all else in its turn
        self._left = REQUESTS_A_TURN_MAX  # that may begin before the next turn
        self._rest_turns, self._rest = rest_turns, 0  # turns until others may begin
        self._is_called = False

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def begin(self, place: int, request: Callable[[], None]) -> None:
        """Call what begins a request, now or in its turn; the lowest place comes first."""
        if not self._is_called:
            self._began_at_s, self._begun_before = time.thread_time(), self._begun
        try:
            if self._left and not (self._waiting and self._waiting[0][0] <= place):
                self._begin(request)
            else:
                heappush(self._waiting, (place, next(self._numbers), request))
        finally:
            if not self._is_called:
                self._is_called = True
                # After the request, whose time it takes.
                asyncio.get_running_loop().call_soon(self._turn)

    def _begin(self, request: Callable[[], None]) -> None:
        self._begun += 1
        self._left -= 1
        request()
        # What is done at once is known at once; the rest of it is in the mean.
        if time.thread_time() - self._began_at_s > TURN_S:
            self._left = 0

    def _turn(self) -> None:
        """Begin the next ones: the loop has run what began before, and served all others."""
        now_s = time.thread_time()
        if begun := self._begun - self._begun_before:
            taken_s = (now_s - self._began_at_s) / begun
            cost_s = min(TURN_S, max(TURN_S / REQUESTS_A_TURN_MAX, taken_s))
            self._cost_s += _WEIGHT * (cost_s - self._cost_s)
        self._began_at_s, self._begun_before = now_s, self._begun
        allowed = min(REQUESTS_A_TURN_MAX, max(1, int(TURN_S / self._cost_s)))
        self._rest = self._rest_turns if begun and allowed == 1 else max(0, self._rest - 1)
        self._left = 0 if self._rest else allowed
        try:
            while self._left and self._waiting:
                self._begin(heappop(self._waiting)[2])
        finally:  # one that fails must not hold up all others for ever
            # Called again also after the last ones: what comes until then is of the same turn.
            self._is_called = self._begun > self._begun_before or self._rest > 0
            if self._is_called:
                asyncio.get_running_loop().call_soon(self._turn)


# What one request of rest is worth, in requests that another waits: with hundreds of connections
# that ask all the time, those wait for hundreds of requests. Bounded, so that each has its turn.
REST_WORTH: Final = 100
REST_WORTH_MAX: Final = 10_000


class Paces:
    """Begins requests: those for streams in the order they came, others by how long they rested.

    A client that asks as fast as it is answered, or sends many requests in a row, waits for itself;
    one that asks now and then hardly at all. Time that a request waits is no rest of its
    connection.

    Attributes:
        rested: what `TurnLoop` reads first: connections that were answered, and are idle.
    """

    def __init__(self) -> None:
        self.openings, self.requests = Pace(), Pace(REST_TURNS)
        self.rested: dict[int, int] = {}
        self._begun = 0
        self._answered = count()

    def rest(self, connection: Connection) -> None:
        """Let a connection rest from now: it is new, or its request has been answered."""
        connection.rests_since = self._begun  # a client wins nothing by opening another

    def answered(self, connection: Connection, *, is_idle: bool) -> None:
        """Let a connection rest; its next request is read before others if none is there yet."""
        self.rest(connection)
        if is_idle:
            self.rested[connection.descriptor] = next(self._answered)

    def wake(self, connection: Connection) -> None:
        """Note that a connection asks, or ends."""
        place = self.rested.pop(connection.descriptor, None)
        connection.place = None if connection.has_rested else place
        connection.has_rested |= place is not None

    def expect(self, connection: Connection) -> None:
        """Read the next piece of a request as early as its first one, once.

        Many clients send a body by itself. It would wait behind all that the loop has to do.
        """
        place, connection.place = connection.place, None
        if connection.has_rested and place is not None:
            self.rested[connection.descriptor] = place

    def begin(
        self, path: str, connection: Connection, request: Callable[[], None], *,
        at_once: bool = False,
    ) -> None:  # fmt: skip
        """Call what begins a request, now or in its turn.

        `at_once`: it is answered at once. So it is begun now where its connection has rested: the
        loop takes few of these in a turn.
        """
        has_rested, connection.has_rested = connection.has_rested, False
        if at_once and has_rested:
            self._begin(request)
        elif path.endswith(STREAMS):
            self.openings.begin(0, request)
        else:
            rested = self._begun - connection.rests_since
            place = self._begun - min(REST_WORTH_MAX, REST_WORTH * rested)
            self.requests.begin(place, partial(self._begin, request))

    def _begin(self, request: Callable[[], None]) -> None:
        self._begun += 1
        request()
