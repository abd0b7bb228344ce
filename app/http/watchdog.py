"""The watchdog of the event loop: it counts long iterations, and says which calls they were in."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import re
import selectors
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final, Self

from tidegate.app.figures import LoopFigures
from tidegate.app.logs import event

# A loop that is always held would fill the log; those between are counted.
REPORT_EVERY_S: Final = 10.0
# An iteration that does not end has no end at which it could be reported.
STUCK_S: Final = 1.0
CHECK_EVERY_S_MAX: Final = STUCK_S / 2
CALLS_SHOWN_MAX: Final = 8
# A proxy that stops ends thousands of connections at once, and each end takes half a millisecond.
EVENTS_AT_ONCE: Final = 8

_CALL: Final = re.compile(r'File "(.*)", line (\d+) in (.*)')

logger = logging.getLogger("tidegate.loop")


def calls_of(thread: int) -> list[str]:
    """Return the innermost calls under way in a thread, the outermost of them first.

    Each is a file with its line, and the name of the function. No value is read.
    """
    # A dump of all threads is what Python has for this, and it needs a file.
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        dump = file.read().decode(errors="replace")
    stack = dump.partition(f"Thread 0x{thread:016x} ")[2].partition("\n\n")[0]
    calls = _CALL.findall(stack)[:CALLS_SHOWN_MAX]
    return [f"{'/'.join(Path(file).parts[-2:])}:{line} {name}" for file, line, name in calls[::-1]]


class WatchedSelector(selectors.DefaultSelector):
    """The loop's selector: it times each iteration, and bounds the events that one begins with.

    It is called once in each iteration, so it knows how long each one took. asyncio's own debug
    mode times each callback, at several times the cost; and a client waits for the whole iteration.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        super().__init__()
        self._watchdog = watchdog
        self._left: deque[tuple[selectors.SelectorKey, int]] = deque()

    def select(self, wait_s: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the next events, at most `EVENTS_AT_ONCE`; the others come in later iterations."""
        watchdog = self._watchdog
        watchdog.iteration_ends()
        ready = self._next() if self._left else []
        if not ready:
            ready = super().select(wait_s)
            if len(ready) > EVENTS_AT_ONCE:
                self._left.extend(ready[EVENTS_AT_ONCE:])
                ready = ready[:EVENTS_AT_ONCE]
        watchdog.iteration_begins()
        return ready

    def _next(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Return some of the events that are left, without those of which nobody waits any more."""
        registered = self.get_map()
        ready: list[tuple[selectors.SelectorKey, int]] = []
        while self._left and len(ready) < EVENTS_AT_ONCE:
            key, events = self._left.popleft()
            # A descriptor that is used again, or waits for something else, has another key. The
            # kernel reports again what is still true of it.
            if registered.get(key.fd) is key:
                ready.append((key, events))
        return ready


class Watchdog:
    """Times each iteration of a loop, and reports those that took longer than a bound.

    An iteration is all that the loop does between two calls of its selector: nobody is served
    meanwhile. The loop itself reads a clock twice in an iteration. A thread checks once within the
    bound whether an iteration has lasted for half of it, and then looks at the calls under way. So
    it sees each iteration beyond the bound, unless one call keeps all of Python's threads waiting.

    Attributes:
        is_serving: False while a gateway starts: a long iteration then keeps nobody waiting.
    """

    def __init__(self, bound_s: float) -> None:
        self.figures = LoopFigures()
        self.is_serving = True
        self._bound_s = bound_s
        # To be woken costs 50 to 100 us, mostly of an idle loop: no more often than must be.
        self._check_every_s = min(bound_s, CHECK_EVERY_S_MAX)
        self._iteration = 0
        self._began_s: float | None = None
        self._seen: tuple[int, list[str]] = 0, []  # the iteration, and its calls
        self._reported_s = -REPORT_EVERY_S
        self._unreported = 0
        # A lock and no event: to wait for an event runs some Python code, twenty times a second.
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return a new event loop of asyncio's that is watched."""
        return asyncio.SelectorEventLoop(WatchedSelector(self))

    def __enter__(self) -> Self:
        """Look at the loop of this thread from now on."""
        watched = threading.get_ident()
        self._running.acquire()
        self._thread = threading.Thread(
            target=self._watch, args=(watched,), name="watchdog", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        """Look no more."""
        assert self._thread is not None, "it was entered"
        self._running.release()
        self._thread.join()

    @property
    def calls_seen(self) -> list[str]:
        """The calls that the iteration under way was seen in, or the one that has just ended."""
        iteration, calls = self._seen
        return calls if iteration == self._iteration else []

    def iteration_begins(self) -> None:
        """Note that the loop has something to do."""
        self._iteration += 1
        self._began_s = time.monotonic()

    def iteration_ends(self) -> None:
        """Note that the loop is about to wait for events."""
        began_s, self._began_s = self._began_s, None
        if began_s is None:
            return  # the first one
        took_s = time.monotonic() - began_s
        self.figures.iterations.note(took_s)
        if took_s > self._bound_s and self.is_serving:
            self.figures.held += 1
            self._report(took_s)

    def _report(self, took_s: float) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s < REPORT_EVERY_S:
            self._unreported += 1
            return
        unreported, self._unreported, self._reported_s = self._unreported, 0, now_s
        _log("was", took_s, self.calls_seen, unreported)

    def _watch(self, thread: int) -> None:
        """Look at iterations that last; this is all that the thread does."""
        wait_s, first_look_s = self._check_every_s, self._check_every_s / 2
        looked_at, look_after_s = 0, first_look_s
        while not self._running.acquire(timeout=wait_s):
            wait_s = self._check_every_s
            iteration, began_s = self._iteration, self._began_s
            if began_s is None:
                continue
            if iteration != looked_at:
                looked_at, look_after_s = iteration, first_look_s
            lasted_s = time.monotonic() - began_s
            if lasted_s < look_after_s:
                # By then it has ended, or is worth a look.
                wait_s = min(wait_s, look_after_s - lasted_s)
                continue
            look_after_s = 2 * lasted_s
            calls = calls_of(thread)
            if self._iteration != iteration or self._began_s is None:
                continue  # it has ended meanwhile
            self._seen = iteration, calls
            if lasted_s > max(STUCK_S, self._bound_s) and self.is_serving:
                _log("has been", lasted_s, calls, 0)


def _log(tense: str, took_s: float, calls: list[str], unreported: int) -> None:
    figures = {"ms": round(took_s * 1_000, 1), "unreported": unreported, "calls": calls}
    logger.warning(
        "the event loop %s held for %.0f ms: %s%s",
        tense,
        figures["ms"],
        " > ".join(calls) or "one call that could not be looked into",
        f"; {unreported} others since the last report" if unreported else "",
        extra=event("loop-held", **figures),
    )
