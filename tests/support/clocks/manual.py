"""A clock that only a test moves, for drivers whose timers the test fires itself."""

from __future__ import annotations

from tidegate.app.streams.driver import Driver


class Clock:
    """Monotonic nanoseconds; call it to read it."""

    def __init__(self) -> None:
        self.now_ns = 1

    def __call__(self) -> int:
        return self.now_ns

    def forward(self, driver: Driver, ns: int) -> None:
        """Let time pass, and everything happen that is due by then."""
        self.now_ns += ns
        while (due := driver.engine.next_deadline()) is not None and due <= self.now_ns:
            driver.engine.advance(due)
        driver.engine.advance(self.now_ns)
        driver.dispatch()
