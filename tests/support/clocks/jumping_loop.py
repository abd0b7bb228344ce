"""An asyncio loop whose clock jumps to the next timer when nothing is ready.

A test that waits for an interval, a heartbeat or a deadline takes no time. Unix sockets within the
process work as usual: what is written to one can be read at its other end at once, so the loop
knows when nothing is under way. Threads, child processes and TCP connections need real time: while
any of them is in use, the clock runs with the machine's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVarTuple

SECOND = 1_000_000_000
ITERATIONS_MAX = 1_000_000
Args = TypeVarTuple("Args")


class JumpingClock:
    """Nanoseconds that begin at the machine's and go on by jumps, or with the machine's clock."""

    def __init__(self) -> None:
        self.now_ns = time.monotonic_ns()
        self.outside = 0
        """How many parts outside the process are in use."""
        self._began_ns = self.now_ns
        self._wall_ns = time.time_ns()
        self._seen_ns = self.now_ns

    def jump(self, seconds: float) -> None:
        """Go on by so much, at least by a nanosecond."""
        self.now_ns += max(1, round(seconds * SECOND))

    def follow(self) -> None:
        """Go on by what has passed on the machine's clock since the last call."""
        seen_ns = time.monotonic_ns()
        if self.outside:
            self.now_ns += seen_ns - self._seen_ns
        self._seen_ns = seen_ns

    def read_ns(self) -> int:
        """The time, in nanoseconds."""
        if self.outside:
            self.follow()
        return self.now_ns

    def wall_ms(self) -> int:
        """The wall clock's milliseconds, in step with `read_ns`."""
        return (self._wall_ns + self.read_ns() - self._began_ns) // 1_000_000


class JumpingSelector(selectors.BaseSelector):
    """Waits for files of the process as long as one is ready, and then jumps."""

    def __init__(self, clock: JumpingClock) -> None:
        self._clock = clock
        self._files = selectors.DefaultSelector()
        self._iterations = 0
        """How many the loop has made since the clock jumped."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; nothing, after a jump over the time that was to be waited.

        Raises:
            RuntimeError: something was ready in each of a million iterations, so time stands still.
        """
        if self._clock.outside or timeout is None:
            found = self._files.select(timeout)
            self._clock.follow()
            return found
        found = self._files.select(0)
        self._iterations += 1
        if not found and timeout > 0:
            self._clock.jump(timeout)
            self._iterations = 0
        elif self._iterations > ITERATIONS_MAX:
            raise RuntimeError("the clock stands still: something is ready in every iteration")
        return found

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As the selector of the platform."""
        return self._files.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """As the selector of the platform."""
        return self._files.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As the selector of the platform."""
        return self._files.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """As the selector of the platform."""
        return self._files.get_map()

    def close(self) -> None:
        """As the selector of the platform."""
        self._files.close()


class JumpingLoop(asyncio.SelectorEventLoop):
    """Runs on a jumping clock until something outside the process is in use."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        super().__init__(JumpingSelector(self.clock))

    def time(self) -> float:
        """The time in seconds."""
        return self.clock.read_ns() / SECOND

    @contextlib.contextmanager
    def with_outside(self) -> Iterator[None]:
        """The clock runs with the machine's for so long."""
        self.clock.follow()
        self.clock.outside += 1
        try:
            yield
        finally:
            self.clock.follow()
            self.clock.outside -= 1

    def use_outside(self) -> None:
        """The clock runs with the machine's from now on."""
        self.clock.follow()
        self.clock.outside += 1

    # What leads out of the process

    def run_in_executor(
        self, executor: Any, func: Callable[[*Args], Any], *args: *Args
    ) -> asyncio.Future[Any]:
        """As every loop; the clock runs with the machine's until it is done."""
        self.use_outside()
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._outside_is_done)
        return future

    def _outside_is_done(self, _: asyncio.Future[Any]) -> None:
        self.clock.follow()
        self.clock.outside -= 1

    async def shutdown_default_executor(self, *args: Any) -> None:
        """As every loop; since Python 3.12 within a time that threads could not use in a jump."""
        with self.with_outside():
            await super().shutdown_default_executor(*args)

    async def create_connection(self, *args: Any, **more: Any) -> Any:
        """As every loop."""
        self._leave(more.get("sock"))
        return await super().create_connection(*args, **more)

    async def create_server(self, *args: Any, **more: Any) -> Any:
        """As every loop."""
        self._leave(more.get("sock"))
        return await super().create_server(*args, **more)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """As every loop."""
        self._leave(sock)
        await super().sock_connect(sock, address)

    async def subprocess_exec(self, *args: Any, **more: Any) -> Any:
        """As every loop."""
        self.use_outside()
        return await super().subprocess_exec(*args, **more)

    async def subprocess_shell(self, *args: Any, **more: Any) -> Any:
        """As every loop."""
        self.use_outside()
        return await super().subprocess_shell(*args, **more)

    def _leave(self, sock: socket.socket | None) -> None:
        if sock is None or sock.family != socket.AF_UNIX:
            self.use_outside()
