"""The memory of the process: when garbage is collected, and what goes back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable
from typing import Final

# CPython's own threshold of 700 is below what one request of 1,000 messages allocates and frees.
YOUNG_OBJECTS: Final = 5_000  # a collection of the youngest generation visits them in 0.4 ms
MIDDLE_COLLECTION_EVERY: Final = 4  # collections of the youngest one
# By itself hardly ever: a full collection takes 120 ms with 10,000 subscribers. `MemoryReclaimer`
# starts one when it is worth it.
FULL_COLLECTION_EVERY: Final = 100  # collections of the middle generation
ENDED_MIN: Final = 100  # connections


class MemoryReclaimer:
    """Reclaims the memory of connections that have ended; called once a second.

    asyncio's transport refers to its own methods, so some 2 KiB of each connection wait for a full
    collection. The C library also keeps what many connections free at once.
    """

    def __init__(self, reclaim: Callable[[], None] | None = None) -> None:
        self._reclaim = reclaim or collect_and_give_back
        self._latest = 0
        self._reclaimed = 0  # connections that had ended at the latest collection

    def check(self, connections: int, ended: int) -> None:
        """Reclaim memory if a quarter of the connections have ended, and no more are leaving.

        `connections`: open now; `ended`: closed since the start.
        """
        are_leaving = connections < self._latest
        self._latest = connections
        if ended - self._reclaimed >= max(ENDED_MIN, connections // 4) and not are_leaving:
            self._reclaimed = ended
            self._reclaim()


def collect_and_give_back() -> None:
    """Collect garbage and ask glibc to let free pages go; other C libraries give back unasked."""
    gc.collect()
    give_back_free_pages()


def give_back_free_pages() -> None:
    """Ask glibc to let free pages go."""
    malloc_trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def configure_collector() -> None:
    """Exclude what the start has created from collections, and let collections be rare.

    Modules, models and routes are 200,000 objects that live as long as the process does.
    """
    gc.collect()  # or garbage of the start would be kept for ever
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_COLLECTION_EVERY, FULL_COLLECTION_EVERY)


def _c_library() -> ctypes.CDLL | None:
    with contextlib.suppress(OSError, TypeError):  # a platform that does not name it so
        return ctypes.CDLL(None)
    return None


_C_LIBRARY: Final = _c_library()
