"""Reports at the end of every run what was skipped and why: a skipped promise is not checked."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping

import pytest
from _pytest.unraisableexception import collect_unraisable

from tests.support.buses import BusServer, bus_server
from tests.support.clocks.jumping_loop import JumpingLoop
from tests.support.clocks.steady import steady
from tests.support.clocks.worker_threads import follow_worker_threads
from tests.support.leftovers import end_leftovers
from tests.support.outside import redis_server
from tidegate.app.http.protocol import GatewayProtocol
from tidegate.conflation import steps

OUTSIDE = ("system", "spark", "browser", "redis")
"""Markers of what a test needs outside its process."""

# A run that is started in the background, or by nohup, ignores some signals, and so would all
# processes that the tests start: what is ignored stays so in a child, what has a handler does not.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

follow_worker_threads()

# Settings of a gateway that somebody runs here would reach those of the tests.
FOR_TESTS = ("TIDEGATE_HYPOTHESIS_", "TIDEGATE_REQUIRE_", "TIDEGATE_TEST_", "TIDEGATE_TICKS")
for name in list(os.environ):
    if name.startswith("TIDEGATE_") and not name.startswith(FOR_TESTS):
        del os.environ[name]


@pytest.fixture(autouse=True)
def steps_of_their_size() -> Iterator[None]:
    """Let no test change the size of steps for those after it."""
    size = steps.ITEMS_AT_ONCE
    yield
    steps.ITEMS_AT_ONCE = size


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The address of a real Redis, one for each worker of a run; mark such tests `redis`."""
    with redis_server() as address:
        yield address


@pytest.fixture(scope="session")
def redis_bus() -> Iterator[BusServer]:
    """A Redis that keeps what it acknowledges; tests take a prefix of their own in it."""
    with bus_server("redis") as server:
        yield server


@pytest.fixture(scope="session")
def valkey_bus() -> Iterator[BusServer]:
    """A Valkey that keeps what it acknowledges; tests take a prefix of their own in it."""
    with bus_server("valkey") as server:
        yield server


def is_unit(item: pytest.Item) -> bool:
    """Whether a test stays within its process, on a clock that jumps: no marker says otherwise."""
    return not any(item.get_closest_marker(name) for name in ("nightly", *OUTSIDE))


_running: pytest.Item | None = None
"""The test that runs; marks of single parameters are not known before."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remember which test runs."""
    global _running
    _running = item
    return (yield)


def _new_loop() -> asyncio.AbstractEventLoop:
    return JumpingLoop() if _running and is_unit(_running) else asyncio.SelectorEventLoop()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give unit tests a loop whose clock jumps, and all others asyncio's own."""
    return {"loop": _new_loop}


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    """Count each test that needs something outside to the tier *system*, if it is not nightly.

    Each of three workers begins with a third of what is selected: the first with the system tests,
    the second with those that need Spark. Other tests fill the thirds; a worker that has nothing
    left takes over the end of another's.
    """
    for item in items:
        tier = _tier(item)
        if tier == "system":
            item.add_marker(tier)
        item.user_properties.append(("tier", tier))  # for tests/durations.py
    try:
        return (yield)
    finally:
        items[:] = _in_thirds(items)


def _tier(item: pytest.Item) -> str:
    if item.get_closest_marker("nightly") is not None:
        return "nightly"
    return "unit" if is_unit(item) else "system"


def _in_thirds(items: list[pytest.Item]) -> list[pytest.Item]:
    system: list[pytest.Item] = []
    spark: list[pytest.Item] = []
    units: list[pytest.Item] = []
    for item in items:
        if item.get_closest_marker("spark") is not None:
            spark.append(item)
        elif item.get_closest_marker("system") is not None:
            system.append(item)
        else:
            units.append(item)
    moved = max(0, len(items) // 3 - len(system))
    return [*system, *units[:moved], *spark, *units[moved:]]


def pytest_collection_finish() -> None:
    """Keep what was imported out of later collections: each then takes a millisecond."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """End what a test leaves behind before the next one, so that a leak fails no other."""
    try:
        return (yield)
    finally:
        left = end_leftovers()
        if item.get_closest_marker("asyncio") is not None or not is_unit(item):
            gc.collect()
            collect_unraisable(item.config)  # or pytest would lay it on the next test
        if nextitem is None or nextitem.path != item.path:
            gc.freeze()  # what a whole module leaves stays: each collection would look at it again
        assert not left, f"left running: {left}"


@pytest.fixture(name="steady")
async def steady_fixture() -> AsyncIterator[None]:
    """Deadlines in the test's own loop mind no hold of the machine."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, JumpingLoop):  # its clock minds nobody's
        yield
    else:
        with steady(loop):
            yield


@pytest.fixture(name="both_forms", params=["socket", "asgi"])
def both_forms_fixture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test over both forms of a stream: with a connection of its own, and under ASGI."""
    if request.param == "asgi":
        monkeypatch.setattr(GatewayProtocol, "can_hand_over", lambda *_: False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the number of skips, and how many for each reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    terminalreporter.write_line(f"skips: {len(skipped)}")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"  {count} x {reason}")
