"""The plain way to conflate with Spark: state and a timer for each key, a message at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

INTERVAL_MS = 1_000
OUTPUT = "key string, messages long, value string, due_ms long"
STATE = "messages long, value string"


class LatestOfKey(StatefulProcessor):
    """The newest message of a key, an interval after the first that is held."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._held = handle.getValueState("held", STATE)

    def handleInputRows(self, record: Any, rows: Iterator[Row], timers: Any) -> Iterator[Row]:  # noqa: N802 - Spark's name
        for row in rows:
            held = self._held.get() if self._held.exists() else None
            if held is None:
                self._handle.registerTimer(row.ts + INTERVAL_MS)
            self._held.update((1 if held is None else held[0] + 1, row.value))
        return iter(())

    def handleExpiredTimer(self, record: Any, timers: Any, expired: Any) -> Iterator[Row]:  # noqa: N802 - Spark's name
        held = self._held.get()
        assert held is not None
        self._held.clear()
        due_ms = expired.getExpiryTimeInMs()
        yield Row(key=record[0], messages=held[0], value=held[1], due_ms=due_ms)

    def close(self) -> None:
        pass
