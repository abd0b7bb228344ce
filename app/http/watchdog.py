"""The watchdog of the event loop: it counts turns that are too long, and says what they did."""

from __future__ import annotations

import asyncio
import gc
import logging
import selectors
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Final, Self

from tidegate.app.figures import LoopFigures
from tidegate.app.logs import event

# A loop that is always held would fill the log; those between are counted.
REPORT_EVERY_S: Final = 10.0
# A turn that does not end has no end at which it could be reported.
STUCK_S: Final = 1.0
LOOK_EVERY_S_MAX: Final = STUCK_S / 2
CALLS_SHOWN_MAX: Final = 8

PRODUCT = "tidegate."
# Every request goes through these; the route says more than their names.
LAYERS = ("tidegate.app.http.", __name__)
# Where a function has no local `topic`, one of these may know it.
KNOWS_TOPIC = ("self", "feed", "flush", "subscriber", "subscription", "entry")

logger = logging.getLogger("tidegate.loop")


@dataclass(frozen=True, slots=True)
class Work:
    """What the loop is doing: the request if there is one, the topic, and the calls under way.

    `calls` are those of the product, the outermost first; `line` is where the innermost one is.
    """

    method: str | None
    route: str | None
    topic: str | None
    calls: tuple[str, ...]
    line: str

    def __str__(self) -> str:
        """Return one line for people."""
        request = f"{self.method} {self.route}" if self.route else ""
        topic = f"topic {self.topic}" if self.topic else ""
        calls = " > ".join(self.calls[-CALLS_SHOWN_MAX:])
        return ", ".join(part for part in (request, topic, calls, self.line) if part)


def work_of(frame: FrameType | None) -> Work:
    """Return what a stack of calls, given by its innermost frame, is at work on.

    No value of a message is read: only names of functions, the route, and the topic's name.
    """
    method = route = topic = None
    calls: list[str] = []
    line = ""
    for each in _outwards(frame):
        module = each.f_globals.get("__name__", "")
        line = line or f"{module}:{each.f_lineno}"
        if not module.startswith(PRODUCT):
            continue
        if not module.startswith(LAYERS):
            calls.append(each.f_code.co_qualname)
            topic = topic or _topic_in(each.f_locals)
        scope = each.f_locals.get("scope")
        if isinstance(scope, dict) and "method" in scope:
            method, route = scope["method"], getattr(scope.get("route"), "path", "no route")
            topic = scope.get("path_params", {}).get("topic", topic)
    return Work(method, route, topic, tuple(reversed(calls)), line)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _topic_in(names: dict[str, Any]) -> str | None:
    """Return the topic that a function works on, as far as its names say."""
    found = [names.get("topic"), *(getattr(names.get(name), "topic", None) for name in KNOWS_TOPIC)]
    for each in found:
        name = each if isinstance(each, str) else getattr(each, "name", None)
        if isinstance(name, str):
            return name
    return None


@dataclass(frozen=True, slots=True)
class _Look:
    """What the thread saw of a turn: its work, and the clocks at that moment."""

    turn: int
    work: Work
    at_s: float
    cpu_s: float


class WatchedSelector(selectors.DefaultSelector):
    """The loop's selector. It is asked once in each turn, so it knows how long each one took.

    asyncio's own debug mode times each callback, at several times the cost; and a client waits for
    the whole turn.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        super().__init__()
        self._watchdog = watchdog

    def select(self, wait_s: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for the next events, between two turns."""
        watchdog = self._watchdog
        watchdog.turn_ends()
        ready = super().select(wait_s)
        watchdog.turn_begins()
        return ready


class Watchdog:
    """Times each turn of a loop, and reports those that took longer than a bound.

    A turn is all that the loop does between two looks for events: nobody is served meanwhile. The
    loop itself reads a clock twice in a turn, and nothing else. A thread looks once within the
    bound, and again at a turn that it has found under way; only of one that has lasted for half the
    bound does it read the stack. So it sees each turn beyond the bound.

    Attributes:
        is_serving: False while a gateway starts: a long turn then keeps nobody waiting.
    """

    def __init__(self, bound_s: float) -> None:
        self.figures = LoopFigures()
        self._bound_s = bound_s
        # To be woken costs 50 to 100 us, mostly of an idle loop: no more often than must be.
        self._look_every_s = min(bound_s, LOOK_EVERY_S_MAX)
        self.is_serving = True
        # Written by the loop alone. A turn that begins has its time set first and its number last.
        self._turn = 0
        self._began_s: float | None = None
        self._collected_s = self._collection_began_s = 0.0
        # Written by the thread alone.
        self._seen: _Look | None = None
        self._reported_s = -REPORT_EVERY_S
        self._unreported = 0
        # A lock and no event: to wait for an event runs some Python code, twenty times a second.
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None

    # --- In the loop's thread

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return a new event loop of asyncio's that is watched."""
        return asyncio.SelectorEventLoop(WatchedSelector(self))

    def __enter__(self) -> Self:
        """Watch loops of this thread from now on."""
        looked_at = threading.get_ident()
        cpu_clock = time.pthread_getcpuclockid(looked_at)
        self._thread = threading.Thread(
            target=self._look_on, args=(looked_at, cpu_clock), name="watchdog", daemon=True
        )
        gc.callbacks.append(self._collects)
        self._running.acquire()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Watch no more."""
        gc.callbacks.remove(self._collects)
        self._running.release()
        if self._thread is not None:
            self._thread.join()

    def turn_begins(self) -> None:
        """Note that the loop has something to do."""
        self._collected_s = 0.0
        self._began_s = time.monotonic()
        self._turn += 1

    def turn_ends(self) -> None:
        """Note that the loop is about to look for events."""
        began_s, self._began_s = self._began_s, None
        if began_s is None:
            return  # the first one
        took_s = time.monotonic() - began_s
        self.figures.turns.note(took_s)
        if took_s > self._bound_s and self.is_serving:
            self.figures.held += 1
            self._report(took_s)

    def _report(self, took_s: float) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s < REPORT_EVERY_S:
            self._unreported += 1
            return
        unreported, self._unreported, self._reported_s = self._unreported, 0, now_s
        seen = self._seen
        if seen is None or seen.turn != self._turn:
            # The thread gets no turn while one call of C code runs, such as a large sort.
            _log("was", took_s, None, None, self._collected_s, unreported)
            return
        # From the look on: where the machine is busy, the loop was not held by its own work.
        cpu_share = (time.thread_time() - seen.cpu_s) / max(now_s - seen.at_s, 1e-6)
        _log("was", took_s, seen.work, cpu_share, self._collected_s, unreported)

    def _collects(self, phase: str, about: dict[str, int]) -> None:
        # Full collections alone can take long; the thread gets no turn to see them.
        if about["generation"] < 2 or self._thread is None:
            return
        if phase == "start":
            self._collection_began_s = time.monotonic()
        else:
            self._collected_s += time.monotonic() - self._collection_began_s

    # --- In the watchdog's own thread

    def _look_on(self, looked_at: int, cpu_clock: int) -> None:
        warned_turn, warn_at_s = 0, STUCK_S
        wait_s, long_s = self._look_every_s, self._look_every_s / 2
        while not self._running.acquire(timeout=wait_s):
            wait_s = self._look_every_s
            began_s, turn = self._began_s, self._turn
            if began_s is None:
                continue
            now_s = time.monotonic()
            lasted_s = now_s - began_s
            if lasted_s < long_s:
                wait_s = long_s - lasted_s  # by then it has ended, or is worth its stack
                continue
            # Documented for debuggers, and the one way to see the stack of another thread.
            try:
                work = work_of(sys._current_frames().get(looked_at))  # noqa: SLF001 - it is public
            except Exception:  # the stack goes on changing while it is read
                logger.debug("the work under way could not be read", exc_info=True)
                continue
            cpu_s = time.clock_gettime(cpu_clock)
            if self._turn == turn:  # else it has ended while it was looked at
                self._seen = _Look(turn, work, now_s, cpu_s)
            if turn != warned_turn:
                warned_turn, warn_at_s = turn, STUCK_S
            if lasted_s > max(warn_at_s, self._bound_s) and self.is_serving:
                warn_at_s = 2 * lasted_s
                _log("has been", lasted_s, work, None, 0.0, 0)


def _log(
    tense: str,
    took_s: float,
    work: Work | None,
    cpu_share: float | None,
    collected_s: float,
    unreported: int,
) -> None:
    figures = {
        "ms": round(took_s * 1_000, 1),
        "cpu_percent": None if cpu_share is None else round(100 * min(1.0, cpu_share)),
        "collection_ms": round(collected_s * 1_000, 1),
        "unreported": unreported,
        "method": work and work.method,
        "route": work and work.route,
        "topic": work and work.topic,
        "calls": work and list(work.calls),
        "line": work and work.line,
    }
    logger.warning(
        "the event loop %s held for %.0f ms: %s%s%s",
        tense,
        figures["ms"],
        "one call that could not be looked into" if work is None else work,
        "" if cpu_share is None else f" (on the CPU {figures['cpu_percent']} %)",
        f"; {unreported} others since the last report" if unreported else "",
        extra=event("loop-held", **figures),
    )
