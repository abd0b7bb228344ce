"""The watchdog of the event loop: it counts long iterations, and says what they did."""

from __future__ import annotations

import asyncio
import gc
import logging
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Final, Self

from tidegate.app.figures import LoopFigures
from tidegate.app.logs import event

# A loop that is always held would fill the log; those between are counted.
REPORT_EVERY_S: Final = 10.0
# An iteration that does not end has no end at which it could be reported.
STUCK_S: Final = 1.0
CHECK_EVERY_S_MAX: Final = STUCK_S / 2
# Meant for timers of CPU time, which the gateway does not use.
INTERRUPT: Final = signal.SIGVTALRM
CALLS_SHOWN_MAX: Final = 8
# An iteration is sampled again once it has lasted so many times as long. Each signal leaves a byte
# in the loop's own pipe, which holds a few hundred until the iteration ends.
SAMPLED_AGAIN: Final = 1.125
# A proxy that stops ends thousands of connections at once, and each end takes half a millisecond.
EVENTS_AT_ONCE: Final = 8

PRODUCT = "tidegate."
# Every request goes through these; the route says more than their names.
PASSED_MODULES = ("tidegate.app.http.", __name__)
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
        if not module.startswith(PASSED_MODULES):
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
class _Sample:
    """What was seen of an iteration: its work, and the clocks at that moment."""

    iteration: int
    work: Work
    at_s: float
    cpu_s: float


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
    bound whether an iteration has lasted for half of it, and interrupts that one by a signal, whose
    handler is given the calls under way. So it sees each iteration beyond the bound. An alarm for
    each iteration would need no thread, but two system calls each time.

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
        self._warn_at_s = STUCK_S
        self._collected_s = self._collection_began_s = 0.0
        self._sample: _Sample | None = None
        self._reported_s = -REPORT_EVERY_S
        self._unreported = 0
        # A lock and no event: to wait for an event runs some Python code, twenty times a second.
        self._running = threading.Lock()
        self._restore = ExitStack()

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return a new event loop of asyncio's that is watched."""
        return asyncio.SelectorEventLoop(WatchedSelector(self))

    def __enter__(self) -> Self:
        """Watch loops of this thread from now on; only the main thread is sampled."""
        gc.callbacks.append(self._note_collection)
        self._restore.callback(gc.callbacks.remove, self._note_collection)
        if threading.current_thread() is threading.main_thread():  # Python's rule for signals
            self._start_sampling()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Watch no more."""
        self._restore.close()

    @property
    def work_seen(self) -> Work | None:
        """What the iteration under way was seen to do, or the one that has just ended."""
        sample = self._sample
        return sample.work if sample is not None and sample.iteration == self._iteration else None

    def iteration_begins(self) -> None:
        """Note that the loop has something to do."""
        self._collected_s = 0.0
        self._warn_at_s = STUCK_S
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
        sample = self._sample
        if sample is None or sample.iteration != self._iteration:
            _log("was", took_s, None, None, self._collected_s, unreported)
            return
        # From the sample on: where the machine is busy, the loop was not held by its own work.
        cpu_share = (time.thread_time() - sample.cpu_s) / max(now_s - sample.at_s, 1e-6)
        _log("was", took_s, sample.work, cpu_share, self._collected_s, unreported)

    def _start_sampling(self) -> None:
        before = signal.signal(INTERRUPT, self._take_sample)
        self._restore.callback(signal.signal, INTERRUPT, before)
        signal.siginterrupt(INTERRUPT, False)  # libraries may not repeat what was interrupted
        thread = threading.Thread(
            target=self._check, args=(threading.get_ident(),), name="watchdog", daemon=True
        )
        self._running.acquire()
        thread.start()
        self._restore.callback(thread.join)
        self._restore.callback(self._running.release)

    def _check(self, watched: int) -> None:
        """Interrupt iterations that last; this is all that the thread does."""
        wait_s, long_s = self._check_every_s, self._check_every_s / 2
        iteration, sample_at_s = 0, long_s
        while not self._running.acquire(timeout=wait_s):
            wait_s = self._check_every_s
            began_s = self._began_s
            if began_s is None:
                continue
            if iteration != self._iteration:
                iteration, sample_at_s = self._iteration, long_s
            lasted_s = time.monotonic() - began_s
            if lasted_s < sample_at_s:
                # By then it has ended, or is worth a sample.
                wait_s = min(wait_s, sample_at_s - lasted_s)
            else:
                sample_at_s = lasted_s * SAMPLED_AGAIN
                signal.pthread_kill(watched, INTERRUPT)

    def _take_sample(self, _number: int, frame: FrameType | None) -> None:
        """Note the calls under way; Python calls this between two instructions of them."""
        if self._began_s is None:
            return  # the iteration has just ended
        try:
            work = work_of(frame)
        except Exception:  # it must not end up in the work that was interrupted
            logger.debug("the work under way could not be read", exc_info=True)
            return
        now_s = time.monotonic()
        self._sample = _Sample(self._iteration, work, now_s, time.thread_time())
        lasted_s = now_s - self._began_s
        if lasted_s > max(self._warn_at_s, self._bound_s) and self.is_serving:
            self._warn_at_s = 2 * lasted_s
            _log("has been", lasted_s, work, None, 0.0, 0)

    def _note_collection(self, phase: str, about: dict[str, int]) -> None:
        # Full collections alone can take long; a signal waits for their end.
        if about["generation"] < 2:
            return
        if phase == "start":
            self._collection_began_s = time.monotonic()
        else:
            self._collected_s += time.monotonic() - self._collection_began_s


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
