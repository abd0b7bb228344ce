"""Memory given back to the system once a crowd has left.

What a connection that was cut has cost hangs together in circles, from its error's traceback to
its tasks, and waits for the garbage collector; what that frees the C library keeps for later.
After a storm of slow clients all of it would stand as if it were in use, perhaps for hours.
"""

import ctypes
import gc
from collections.abc import Callable
from typing import Final

CROWD_MIN: Final = 100


class FreedMemory:
    """Watches the number of connections; looked at now and then."""

    def __init__(self, give_back: Callable[[], None] | None = None) -> None:
        self._give_back = give_back or collect_and_give_back
        self._most = 0
        self._latest = 0

    def look(self, connections: int) -> None:
        """Give memory back if a crowd has left since it was last done, and the rest stays."""
        are_leaving = connections < self._latest
        self._latest = connections
        self._most = max(self._most, connections)
        if self._most - connections >= CROWD_MIN and not are_leaving:
            self._most = connections
            self._give_back()


def collect_and_give_back() -> None:
    """Collect garbage and ask glibc to let free pages go: some ten milliseconds, once a crowd.

    Other C libraries give back unasked.
    """
    gc.collect()
    malloc_trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def _c_library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # a platform that does not name it so
        return None


_C_LIBRARY: Final = _c_library()
