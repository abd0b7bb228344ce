"""What there is to say of a running stream at a moment: on the terminal, to metrics, to a topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """Where a stream stands."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # for its next start, after a failure
    FAILED = "failed"  # for a reason that no start mends
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Pace:
    """How its newest batch went.

    `batch` is its number, `rows_per_s` how fast rows were worked off, `batch_s` how long it took,
    `lag` how many messages of a topic it left for the next; None where nothing says so.
    """

    batch: int | None = None
    rows_per_s: float = 0.0
    batch_s: float = 0.0
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A stream at a moment; counts are those since the command was started.

    `held` is how many keys wait for the end of their interval, None where none can;
    `merger_failures` those since the checkpoint began, None without a merger. `working_s` is
    for how long a batch has been worked on, None where none is; `finds_nothing`, whether there was
    nothing to read when it last looked. `error` is why it last failed, in a sentence; `at_s` is
    when this was seen, in seconds of the epoch.
    """

    name: str
    state: State = State.STARTING
    pace: Pace = Pace()
    batches: int = 0
    messages: int = 0
    published: int = 0
    repeated: int = 0
    refused: int = 0
    held: int | None = None
    merger_failures: int | None = None
    working_s: float | None = None
    finds_nothing: bool = False
    restarts: int = 0
    error: str = ""
    at_s: float = 0.0


def pace_of(progress: Mapping[str, Any] | None, before: Pace = Pace()) -> Pace:
    """From what Spark tells of a query's newest trigger (`StreamingQuery.lastProgress`).

    One that found nothing to read was no batch: the pace is what it was `before`.
    """
    took = (progress or {}).get("durationMs", {})
    if not progress or "addBatch" not in took:
        return before
    lags = [lag for source in progress.get("sources", ()) if (lag := _lag(source)) is not None]
    took_ms = took.get("triggerExecution", 0)
    return Pace(
        batch=progress.get("batchId"),
        rows_per_s=float(progress.get("processedRowsPerSecond") or 0.0),
        batch_s=took_ms / 1000,
        lag=sum(lags) if lags else None,
    )


def finds_nothing(status: Mapping[str, Any]) -> bool:
    """Whether a query waits since there is nothing to read (`StreamingQuery.status`)."""
    is_busy = status.get("isDataAvailable") or status.get("isTriggerActive")
    return not is_initializing(status) and not is_busy


def is_initializing(status: Mapping[str, Any]) -> bool:
    """Whether a query has not looked at its sources yet (`StreamingQuery.status`)."""
    return str(status.get("message", "")).startswith("Initializing")


def _lag(source: Mapping[str, Any]) -> int | None:
    """Positions between where a batch of a topic ended and the topic's newest."""
    ended, newest = _position(source.get("endOffset")), _position(source.get("latestOffset"))
    if ended is None or newest is None:
        return None
    return max(0, newest - ended)


def _position(offset: Any) -> int | None:
    """Of `{"bookmark": "<epoch>-<position>"}`, which Spark gives as a text or as it is."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    bookmark = offset.get("bookmark") if isinstance(offset, Mapping) else None
    position = bookmark.rpartition("-")[2] if isinstance(bookmark, str) else ""
    return int(position) if position.isdigit() else None
