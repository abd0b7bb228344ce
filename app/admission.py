"""Admission: how many connections are served at once, and a door for health checks beside it.

A bound that simply refused would refuse those who want to know whether the gateway is well.
"""

import ipaddress
from typing import Final, Protocol

from app.connection import ConnectionFigures

# Connections beyond the bound that are listened to for one request: health checks get their
# answer, others are told to come back.
DOOR_CONNECTIONS: Final = 32
HEALTH_PATHS: Final = frozenset({b"/healthz", b"/readyz", b"/metrics"})
CONNECTIONS: Final = "connections"
ADDRESS: Final = "address"
IPV6_NETWORK_BITS: Final = 64  # what one customer has


class Guest(Protocol):
    """A connection, as far as the door is concerned."""

    def abort(self) -> None:
        """Close it at once."""


class Admission:
    """Counts connections in and out.

    Args:
        figures: has the bound, and keeps the counts.
        per_address_max: of these from one address (IPv6: one network of 64 bits); 0 for any.
    """

    def __init__(self, figures: ConnectionFigures, per_address_max: int = 0) -> None:
        self._figures = figures
        self._per_address_max = per_address_max
        self._inside: dict[Guest, str] = {}
        self._per_address: dict[str, int] = {}
        self._at_the_door: dict[Guest, str] = {}  # oldest first

    def enter(self, guest: Guest, address: str) -> None:
        """A connection was accepted. With too many at the door the oldest there is cut."""
        self._figures.connections += 1
        origin = _origin(address) if self._per_address_max else ""
        if self._has_room(origin):
            self._let_in(guest, origin)
            return
        self._at_the_door[guest] = origin
        if len(self._at_the_door) > DOOR_CONNECTIONS:
            oldest = next(iter(self._at_the_door))
            self.refuse(oldest)
            del self._at_the_door[oldest]
            oldest.abort()

    def admits(self, guest: Guest) -> bool:
        """Whether its requests are served: it is inside, or there is room by now."""
        origin = self._at_the_door.get(guest)
        if origin is not None and self._has_room(origin):
            del self._at_the_door[guest]
            self._let_in(guest, origin)
        return guest in self._inside

    def refuse(self, guest: Guest) -> None:
        """Who waits at the door is turned away for want of room."""
        reason = self._lack(self._at_the_door.get(guest, "")) or CONNECTIONS
        self._figures.refused_by[reason] += 1

    def leave(self, guest: Guest) -> None:
        """A connection has ended."""
        self._figures.connections -= 1
        self._at_the_door.pop(guest, None)
        origin = self._inside.pop(guest, None)
        if origin is None:
            return
        self._per_address[origin] -= 1
        if not self._per_address[origin]:
            del self._per_address[origin]

    def _has_room(self, origin: str) -> bool:
        return not self._lack(origin)

    def _lack(self, origin: str) -> str:
        """In what there is no room for one more; "" if there is in both."""
        if len(self._inside) >= self._figures.connections_max:
            return CONNECTIONS
        of_origin = self._per_address.get(origin, 0)
        is_full = self._per_address_max and of_origin >= self._per_address_max
        return ADDRESS if is_full else ""

    def _let_in(self, guest: Guest, origin: str) -> None:
        self._inside[guest] = origin
        self._per_address[origin] = self._per_address.get(origin, 0) + 1


def _origin(address: str) -> str:
    """What counts as one address."""
    if ":" not in address:
        return address
    whole = int(ipaddress.IPv6Address(address.partition("%")[0]))
    return str(whole >> (128 - IPV6_NETWORK_BITS))
