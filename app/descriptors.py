"""File descriptors: how many connections they allow, and asking for as many as are needed.

A process that has run out cannot accept, nor open its own files. So the bound on connections is
never above what the descriptors allow, with some to spare for everything else.
"""

import sys
from typing import Final

from app.admission import DOOR_CONNECTIONS

if sys.platform != "win32":
    import resource

# Files and sockets that are no client's, and connections accepted but not counted yet.
OTHER_DESCRIPTORS: Final = 96


def connections_that_fit(connections_max: int) -> int:
    """At most `connections_max`, and what this process's descriptors allow; at least one."""
    if sys.platform == "win32":
        return connections_max
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections_max
    return max(1, min(connections_max, soft - DOOR_CONNECTIONS - OTHER_DESCRIPTORS))


def ask_for_descriptors(connections_max: int) -> None:
    """Raise this process's soft limit as far as `connections_max` needs and the hard one allows."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections_max + DOOR_CONNECTIONS + OTHER_DESCRIPTORS
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
