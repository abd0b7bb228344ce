"""The last hour of a gateway: rates and the lateness of flushes, a point each half minute."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, TypedDict

from tidegate.app.metrics.topics import sums_of
from tidegate.app.streams.driver import Driver
from tidegate.app.topics.registry import TopicRegistry

PERIOD_S = 30.0
POINTS_MAX = 120
RATES = ("messages_in", "matched", "delivered")
QUANTILE = 0.99


class Point(TypedDict):
    """A half minute: rates a second over all topics of users, and the lateness of 99 of 100."""

    at_ms: int
    messages_in: float
    matched: float
    delivered: float
    flush_lateness_ms: float | None


class _Sample(NamedTuple):
    """Counts at one moment, and the cumulative histogram of lateness."""

    at_s: float
    sums: Counter[str]
    lateness: list[tuple[float, int]]


class History:
    """Keeps the points of an hour, so that a page shows what was before it was opened.

    Kept in memory: after a restart it begins again, as the counters do.
    """

    def __init__(self, topics: TopicRegistry, driver: Driver) -> None:
        self._topics, self._driver = topics, driver
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)

    @property
    def points(self) -> Sequence[Point]:
        """The points, oldest first."""
        return list(self._points)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep points while the block runs."""
        task = asyncio.create_task(self._run(), name="keep the history")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        before = await self._sample()
        while True:
            await asyncio.sleep(PERIOD_S)
            now = await self._sample()
            self._points.append(self._point(before, now))
            before = now

    async def _sample(self) -> _Sample:
        sums = await sums_of(self._topics, self._driver)
        lateness = list(self._driver.figures.flush_lateness.cumulative())
        return _Sample(asyncio.get_running_loop().time(), sums, lateness)

    def _point(self, before: _Sample, now: _Sample) -> Point:
        seconds = now.at_s - before.at_s
        # A topic that was deleted takes its counts with it.
        rates = {name: max(0, now.sums[name] - before.sums[name]) / seconds for name in RATES}
        late = quantile(before.lateness, now.lateness)
        return {
            "at_ms": self._driver.wall_ms(),
            "messages_in": rates["messages_in"],
            "matched": rates["matched"],
            "delivered": rates["delivered"],
            "flush_lateness_ms": None if late is None else 1_000 * late,
        }


def quantile(before: Sequence[tuple[float, int]], now: Sequence[tuple[float, int]]) -> float | None:
    """Return the bound at or below which 99 of 100 values were in between; None of no values.

    Above the last bound it is that bound.
    """
    counts = [
        (bound, count - earlier) for (bound, count), (_, earlier) in zip(now, before, strict=True)
    ]
    values = counts[-1][1]
    if values <= 0:
        return None
    found = next(bound for bound, count in counts if count >= QUANTILE * values)
    return found if found != float("inf") else counts[-2][0]
