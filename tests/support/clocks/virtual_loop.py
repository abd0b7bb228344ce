"""An event loop on a virtual clock: nothing waits, nothing is random but by its seed, no I/O.

Time stands still while there is something to run and then jumps to the next timer. What is ready
at the same time runs in an order that the seed decides: code that only works in the order in
which a real loop happens to call it is found out.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
import sys
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

SECOND = 1_000_000_000
ITERATIONS_MAX = 100_000
"""More iterations at one moment are an endless loop."""

Returned = TypeVar("Returned")
Args = TypeVarTuple("Args")
Context = contextvars.Context | None


class Stuck(Exception):
    """What was to be run is not done, and nothing will ever happen, or nothing else."""


def virtual_loop(seed: int | None = None) -> VirtualLoop:
    """A loop of its own for one `run`.

    Args:
        seed: of the order among what is ready at the same time; None keeps it first come, first
            served, as real loops do.
    """
    return VirtualLoop(seed)  # type: ignore[abstract]  # what is missing is I/O


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs one coroutine and whatever it starts; `now_ns` begins at zero."""

    def __init__(self, seed: int | None) -> None:
        self.now_ns = 0
        self.failures: list[dict[str, Any]] = []
        self.tasks_made = 0
        self._chance = None if seed is None else random.Random(seed)
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._count = 0

    def run(self, main: Coroutine[Any, Any, Returned]) -> Returned:
        """Run to the end of `main`, then cancel what is left.

        Raises:
            Stuck: it waits for what nobody will do.
        """
        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        events._set_running_loop(self)
        try:
            task: asyncio.Task[Returned] = self.create_task(main)
            self._run_until(task)
            return task.result()
        finally:
            self._cancel_rest()
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*before)

    def time(self) -> float:
        return self.now_ns / SECOND

    def _run_until(self, task: asyncio.Future[Any]) -> None:
        iterations, since_ns = 0, self.now_ns
        while not task.done():
            self._turn()
            iterations += 1
            if self.now_ns != since_ns:
                iterations, since_ns = 0, self.now_ns
            elif iterations > ITERATIONS_MAX:
                raise Stuck(f"time stands still at {since_ns} ns")

    def _turn(self) -> None:
        """Run one iteration of the loop: the callbacks that are ready now, in some order."""
        if not self._ready:
            self._jump()
        callbacks, self._ready = self._ready, []
        if self._chance is not None and len(callbacks) > 1:
            self._chance.shuffle(callbacks)
        for handle in callbacks:
            if not handle.cancelled():
                handle._run()

    def _jump(self) -> None:
        """To the next timer."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise Stuck(f"nothing is left to happen at {self.now_ns} ns")
        self.now_ns = max(self.now_ns, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self.now_ns:
            self._ready.append(heapq.heappop(self._timers)[2])

    def _cancel_rest(self) -> None:
        rest = [task for task in asyncio.all_tasks(self) if not task.done()]
        for task in sorted(rest, key=lambda task: task.get_name()):
            task.cancel()
        for task in rest:
            self._run_until(task)

    def _close_generator(self, generator: Any) -> None:
        self.create_task(generator.aclose())

    # What asyncio asks of a loop

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context = None,
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def call_at_ns(
        self,
        when_ns: int,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context = None,
    ) -> asyncio.TimerHandle:
        """As `call_at`, without a float between."""
        timer = asyncio.TimerHandle(when_ns / SECOND, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when_ns, self._count, timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context = None,
    ) -> asyncio.TimerHandle:
        wait_ns = round(delay * SECOND) or int(delay > 0)  # a rest of a ns is a wait as well
        return self.call_at_ns(self.now_ns + wait_ns, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Any,  # what it may be depends on the version of Python
        *,
        name: str | None = None,
        context: Context = None,
        **more: Any,
    ) -> asyncio.Task[Any]:
        self.tasks_made += 1
        name = name or f"task {self.tasks_made}"
        return asyncio.Task(coro, loop=self, name=name, context=context, **more)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody caught; `failures` has it for the test to look at."""
        self.failures.append(context)

    def get_task_factory(self) -> None:
        return None

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""
