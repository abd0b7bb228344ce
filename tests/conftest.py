"""Tells at the end of every run what was skipped and why: a skip is a promise not checked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.buses import BusServer, bus_server
from tests.support.clocks.steady import steady
from tests.support.outside import redis_server
from tidegate.app.http.protocol import GatewayProtocol


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


@pytest.fixture(name="steady")
async def steady_fixture() -> AsyncIterator[None]:
    """Deadlines in the test's own loop mind no hold of the machine."""
    with steady(asyncio.get_running_loop()):
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
