"""The memory of the process: what the collector looks through, and what goes back to the system."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
from collections.abc import Callable
from typing import Final

# The C library keeps what a crowd frees. After a storm it would count as used for hours.
CROWD_MIN: Final = 100
# Of 700 objects each; a collection of the middle generation visits them all, 0.2 ms for each.
MIDDLE_COLLECTION_EVERY: Final = 3
# Collections of the middle generation: a full one visits 33,000 objects at most, in some 10 ms.
FULL_COLLECTION_EVERY: Final = 8
OLDEST: Final = 2  # the generation that only a full collection visits


class FreedMemory:
    """Gives memory back after a crowd of connections has left; called once a second."""

    def __init__(self, give_back: Callable[[], None] | None = None) -> None:
        self._give_back = give_back or collect_and_give_back
        self._most = 0
        self._latest = 0

    def look(self, connections: int) -> None:
        """Return memory to the system once many connections have left and no more are leaving."""
        are_leaving = connections < self._latest
        self._latest = connections
        self._most = max(self._most, connections)
        if self._most - connections >= CROWD_MIN and not are_leaving:
            self._most = connections
            self._give_back()


def collect_and_give_back() -> None:
    """Collect garbage and ask glibc to let free pages go; other C libraries give back unasked."""
    gc.collect()
    give_back_free_pages()


def give_back_free_pages() -> None:
    """Ask glibc to let free pages go."""
    malloc_trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def freeze_survivors() -> None:
    """Let a full collection of garbage visit only what was made since the last one.

    Modules, models and routes are 200,000 objects, 10,000 subscribers are 260,000, as many topics
    740,000. A collection that visits them all holds the loop for 60 to 350 ms, in which nobody is
    served. So whatever survives one is left alone from then on, by freezing it. Counts of
    references free it, so what lives long here should be in no cycle when it ends.
    """
    gc.callbacks.append(_keep_survivors)
    gc.collect()  # or garbage of the start would be kept for ever
    # Python waits until there is a quarter as much new as the last full collection has kept. That
    # was all of the start; this one keeps next to nothing.
    gc.collect()
    gc.set_threshold(700, MIDDLE_COLLECTION_EVERY, FULL_COLLECTION_EVERY)


def undo_ring(transport: asyncio.BaseTransport) -> None:
    """Undo asyncio's rings of a lost transport and its own methods: no collection would find them.

    Python 3.12 and later have the second one, and keep it where a closed transport is lost.
    """
    for name in ("_read_ready_cb", "_write_ready"):
        getattr(transport, "__dict__", {}).pop(name, None)


def _keep_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == OLDEST:
        gc.freeze()


def _c_library() -> ctypes.CDLL | None:
    with contextlib.suppress(OSError, TypeError):  # a platform that does not name it so
        return ctypes.CDLL(None)
    return None


_C_LIBRARY: Final = _c_library()
