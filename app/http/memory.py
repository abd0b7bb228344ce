"""The memory of the process: what the collector looks through, and what goes back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable
from typing import Final

# Connections that were cut leave cycles, from an error's traceback to its task, which wait for the
# collector; the C library keeps what that frees. After a storm it would count as used for hours.
CROWD_MIN: Final = 100
# Of 700 objects each; a collection of the middle generation visits them all, 0.2 ms for each.
MIDDLE_COLLECTION_EVERY: Final = 3
FULL_COLLECTION_EVERY: Final = 333  # collections of the middle generation
# Each is some 74 objects: so many take a collection 10 ms, and 10,000 took it 350.
TOPICS_AT_ONCE: Final = 250


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
    """Collect garbage and ask glibc to let free pages go: some milliseconds, once a crowd.

    Other C libraries give back unasked. What was there at start stays out: to look through it held
    the loop for 60 ms. Topics are in no cycle, so one that is deleted is freed without that.
    """
    gc.collect()
    give_back_free_pages()


def give_back_free_pages() -> None:
    """Ask glibc to let free pages go."""
    malloc_trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def freeze_what_started() -> None:
    """Take what the start has made out of all later collections of garbage.

    Modules, models and routes are 200,000 objects that live as long as the process. A full
    collection visits each: 60 ms, in which nobody is served. Frames and boards hold no cycles.
    """
    gc.collect()  # or garbage of the start would be kept for ever
    gc.freeze()
    # A long list is visited as well, 3 ms for each 100,000 rows of a snapshot or a journal. So full
    # collections are ten times rarer than by default. What they are for, cycles of connections
    # that were cut, adds up to 100 MB at most until then, and `FreedMemory` comes before that.
    gc.set_threshold(700, MIDDLE_COLLECTION_EVERY, FULL_COLLECTION_EVERY)


class KeptTopics:
    """Takes topics that are made while the process serves out of later collections.

    They stay, and one that is deleted is in no cycle. Requests that run at that moment are taken
    out with them: of those that are cut then, a cycle may stay. That is little, as topics are few
    beside requests; so nothing else is taken out once the start is over.
    """

    def __init__(self) -> None:
        self._fresh = 0

    def note(self) -> None:
        """Count a topic that was made; the last of `TOPICS_AT_ONCE` takes them all out."""
        self._fresh += 1
        if self._fresh >= TOPICS_AT_ONCE and gc.get_freeze_count():  # `freeze_what_started` ran
            self._fresh = 0
            gc.collect()
            gc.freeze()


def _c_library() -> ctypes.CDLL | None:
    with contextlib.suppress(OSError, TypeError):  # a platform that does not name it so
        return ctypes.CDLL(None)
    return None


_C_LIBRARY: Final = _c_library()
