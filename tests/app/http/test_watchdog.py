"""The watchdog of the event loop names what blocked it, and takes almost no time."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.deadlines import HANGS_S
from tidegate.app.http import watchdog as module
from tidegate.app.http.watchdog import Watchdog, calls_of
from tidegate.app.logs import FIGURES

BOUND_S = 0.02


class Clock:
    """Time in place of the module `time`, for the watchdog alone; it passes where a test says so.

    `tick_s` passes at each look at it.
    """

    def __init__(self) -> None:
        self.now_s = 1.0
        self.tick_s = 0.0

    def monotonic(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


@pytest.fixture(name="clock")
def clock_fixture(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The watchdog's clock, so that nothing else on the machine makes an iteration long."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def run(work: Coroutine[Any, Any, None], bound_s: float = BOUND_S) -> Watchdog:
    """Run a coroutine on a loop that is watched."""
    watchdog = Watchdog(bound_s)
    with watchdog, asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(work)
    return watchdog


@pytest.fixture
def hold_until_seen(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Callable[[], None]:
    """Holds the loop for four times the bound, until the watchdog has noted who holds it."""
    watched: list[Watchdog] = []
    begins = Watchdog.iteration_begins

    def begin(watchdog: Watchdog) -> None:
        watched[:] = [watchdog]
        begins(watchdog)

    monkeypatch.setattr(Watchdog, "iteration_begins", begin)

    def held() -> None:
        clock.now_s += 4 * BOUND_S
        [watchdog] = watched
        wait_until(lambda: bool(watchdog._seen[1]))

    return held


def wait_until(condition: Callable[[], bool]) -> None:
    """Keep the loop from everything else, until the watchdog has done something."""
    until_s = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < until_s, "the watchdog never looks"
        time.sleep(0.001)


def figures_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        getattr(record, FIGURES) for record in caplog.records if record.name == module.logger.name
    ]


async def pauses(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_an_iteration_beyond_the_bound_is_counted_and_reported(
    caplog: pytest.LogCaptureFixture, hold_until_seen: Callable[[], None]
) -> None:
    async def work() -> None:
        await pauses(3)
        hold_until_seen()
        await pauses(3)

    figures = run(work()).figures
    assert figures.held == 1
    assert figures.iterations.total == pytest.approx(4 * BOUND_S)
    [reported] = figures_of(caplog)
    assert reported["ms"] == 4 * BOUND_S * 1_000
    assert any(call.startswith("http/test_watchdog.py:") for call in reported["calls"])
    assert reported["unreported"] == 0


def test_iterations_within_the_bound_are_not_reported(
    caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    async def work() -> None:
        for _ in range(50):
            clock.now_s += BOUND_S / 2
            await asyncio.sleep(0)

    figures = run(work()).figures
    assert figures.iterations.count >= 50
    assert figures.held == 0
    assert not figures_of(caplog)


def test_the_calls_of_a_thread_are_those_that_are_under_way() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def inner() -> None:
        begun.set()
        goes_on.wait(HANGS_S)

    def outer() -> None:
        inner()

    other = threading.Thread(target=outer)
    other.start()
    assert begun.wait(HANGS_S)
    assert other.ident is not None
    calls = calls_of(other.ident)
    goes_on.set()
    other.join()
    names = [call.partition(" ")[2] for call in calls]
    assert names.index("inner") == names.index("outer") + 1
    assert calls[names.index("outer")].startswith("http/test_watchdog.py:")
    assert calls_of(0) == []


def test_reports_are_limited_and_those_between_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    async def work() -> None:
        for number in range(4):
            if number == 3:
                monkeypatch.setattr(module, "REPORT_EVERY_S", 0.0)
            clock.now_s += 2 * BOUND_S
            await asyncio.sleep(0)

    assert run(work()).figures.held == 4
    assert [each["unreported"] for each in figures_of(caplog)] == [0, 2]


def test_an_iteration_that_does_not_end_is_reported_while_it_lasts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(module, "STUCK_S", 2 * BOUND_S)

    async def work() -> None:
        clock.now_s += 3 * BOUND_S
        wait_until(lambda: bool(caplog.records))

    run(work())
    assert "has been held" in caplog.records[0].getMessage()
    assert "was held" in caplog.records[1].getMessage()


def test_a_loop_of_another_thread_is_watched_as_well(
    caplog: pytest.LogCaptureFixture, hold_until_seen: Callable[[], None]
) -> None:
    async def work() -> None:
        hold_until_seen()
        await asyncio.sleep(0)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run, work()).result().figures.held == 1
    [reported] = figures_of(caplog)
    assert any(call.endswith(" held") for call in reported["calls"])


def test_a_long_iteration_is_looked_at_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    looks: list[float] = []

    def look(thread: int) -> list[str]:
        looks.append(clock.now_s)
        return calls_of(thread)

    monkeypatch.setattr(module, "calls_of", look)

    async def work() -> None:
        await asyncio.sleep(0)
        clock.now_s += 100 * BOUND_S
        wait_until(lambda: bool(looks))
        for _ in range(10):  # a tenth of what it has lasted, while the thread checks each time
            clock.now_s += BOUND_S
            time.sleep(2 * BOUND_S)

    run(work())
    assert len(looks) == 1


def test_an_iteration_begins_with_few_of_many_events() -> None:
    """The others come in the next iterations, in their order, and none of them twice."""
    watchdog = Watchdog(BOUND_S)
    count = 3 * module.EVENTS_AT_ONCE + 1
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(contextlib.closing(module.WatchedSelector(watchdog)))
        pairs = [socket.socketpair() for _ in range(count)]
        for near, far in pairs:
            stack.callback(near.close)
            stack.callback(far.close)
            selector.register(near, selectors.EVENT_READ)
            far.send(b"x")
        found: list[int] = []
        for _ in range(4):
            ready = selector.select(0)
            assert len(ready) <= module.EVENTS_AT_ONCE
            found += [key.fd for key, _ in ready]
        assert sorted(found) == sorted(near.fileno() for near, _ in pairs)
        assert len(selector.select(0)) == module.EVENTS_AT_ONCE, "nobody has read them"


def test_events_that_wait_are_forgotten_with_their_registration() -> None:
    watchdog = Watchdog(BOUND_S)
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(contextlib.closing(module.WatchedSelector(watchdog)))
        pairs = [socket.socketpair() for _ in range(2 * module.EVENTS_AT_ONCE)]
        for near, far in pairs:
            stack.callback(near.close)
            stack.callback(far.close)
            selector.register(near, selectors.EVENT_READ)
            far.send(b"x")
        first = {key.fd for key, _ in selector.select(0)}
        waiting = [near for near, _ in pairs if near.fileno() not in first]
        gone, changed, *others = waiting
        selector.unregister(gone)
        selector.modify(changed, selectors.EVENT_WRITE)
        found = selector.select(0)
        assert {key.fd for key, _ in found} == {near.fileno() for near in others}
        later = [selector.select(0) for _ in range(3)]
        masks = {mask for ready in later for key, mask in ready if key.fileobj is changed}
        assert masks == {selectors.EVENT_WRITE}, "the kernel reports what it waits for now"


# The rest takes time on the machine, which others use as well.

REAL_BOUND_S = 0.05


def hold(seconds: float) -> None:
    """Keep the loop from everything else, on the CPU."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        sum(range(1_000))


@pytest.mark.nightly
def test_an_iteration_just_beyond_the_bound_is_looked_at(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPORT_EVERY_S", 0.0)

    async def work() -> None:
        for number in range(12):
            await asyncio.sleep(0.007 * number)  # so that it begins anywhere between two looks
            hold(1.5 * REAL_BOUND_S)

    for _ in range(10):
        caplog.clear()
        run(work(), REAL_BOUND_S)
        calls = [each["calls"] for each in figures_of(caplog)]
        assert len(calls) == 12
        if all(calls):  # on a busy machine the thread may come too late to one of them
            return
    raise AssertionError(calls)


@pytest.mark.nightly
def test_watching_an_idle_loop_costs_little() -> None:
    def cost_s() -> float:
        began = time.process_time()
        run(asyncio.sleep(1), REAL_BOUND_S)
        return time.process_time() - began

    # Measured: 0.2 % of a core. The bound leaves room for a machine that is busy, and one try may
    # meet a collection of the whole process.
    assert any(cost_s() < 0.02 for _ in range(5))
