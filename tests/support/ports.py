"""Ports that a server can have again: no neighbour is given one while the server is down.

The kernel gives ports of its own range to all that ask for any: to servers on port 0, and to each
connection that leaves. One of those may be taken before a server that was killed is back on it.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST, USUAL_RANGE_FROM = 10_240, 32_768
"""Below the first, services have names; from the second on, Linux gives ports away by itself."""

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()
_chance = random.SystemRandom()  # tests seed the shared one, and two workers would draw alike


def lasting_port() -> int:
    """Return a port outside the kernel's range that nobody listens on; each is given once."""
    low = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else USUAL_RANGE_FROM
    while True:
        port = _chance.randrange(LOWEST, max(low, LOWEST + 1_000))
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
