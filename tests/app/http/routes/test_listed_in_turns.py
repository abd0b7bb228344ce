"""Long lists are made over several event-loop iterations, with a few entries in each."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any

import pytest

from tests.support.gateways import running_gateway
from tidegate.app.http.routes import operations, sessions, topics
from tidegate.app.metrics.exposition import exposition

AT_ONCE = 2
ENTRIES = 9


@contextlib.asynccontextmanager
async def counted_by_turn(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> AsyncIterator[Counter[int]]:
    """Count the calls of a function in each iteration of the loop."""
    calls: Counter[int] = Counter()
    iteration = 0
    real: Callable[..., Any] = getattr(module, name)

    def counting(*values: Any, **named: Any) -> Any:
        calls[iteration] += 1
        return real(*values, **named)

    async def turning() -> None:
        nonlocal iteration
        while True:
            iteration += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(module, name, counting)
    task = asyncio.create_task(turning())
    yield calls
    task.cancel()


async def test_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "DESCRIBED_AT_ONCE", AT_ONCE)
    async with running_gateway() as running:
        for number in range(ENTRIES):
            await running.topic(f"t{number}")
        async with counted_by_turn(monkeypatch, topics, "description") as calls:
            listed = (await running.http.get("/v1/topics")).json()["topics"]
        assert [each["topic"] for each in listed] == [f"t{number}" for number in range(ENTRIES)]
        assert (calls.total(), max(calls.values())) == (ENTRIES, AT_ONCE)


async def test_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "VIEWED_AT_ONCE", AT_ONCE)
    async with running_gateway() as running:
        for _ in range(ENTRIES):
            (await running.http.post("/v1/sessions")).raise_for_status()
        async with counted_by_turn(monkeypatch, sessions, "session_view") as calls:
            listed = (await running.http.get("/v1/sessions")).json()["sessions"]
        ids = [each["session"] for each in listed]
        assert (len(ids), ids) == (ENTRIES, sorted(ids))
        assert (calls.total(), max(calls.values())) == (ENTRIES, AT_ONCE)


async def test_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "TOPICS_AT_ONCE", AT_ONCE)
    async with running_gateway() as running:
        for number in range(ENTRIES):
            await running.topic(f"t.{number}")
        async with (
            running.subscribe("conflation=1h", topic="t.*"),
            counted_by_turn(monkeypatch, operations, "_view") as calls,
        ):
            lanes = (await running.http.get("/v1/lanes")).json()["lanes"]
        assert [lane["topic"] for lane in lanes] == [f"t.{number}" for number in range(ENTRIES)]
        assert (calls.total(), max(calls.values())) == (ENTRIES, AT_ONCE)


async def test_the_text_of_metrics_is_made_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noting(families: Any) -> bytes:
        threads.append(threading.current_thread())
        return exposition(families)

    monkeypatch.setattr(operations, "exposition", noting)
    async with running_gateway() as running:
        assert (await running.http.get("/metrics")).status_code == 200
        assert threads
        assert threading.current_thread() not in threads
